//! The two sides at which TLS is ended: towards a sandbox as our own authority, towards an upstream as its verifier.

mod authority;
mod leaves;
mod trust;

pub(crate) use authority::Authority;
pub(crate) use leaves::Leaves;
pub(crate) use trust::{InvalidRoots, Trust};

use std::os::fd::OwnedFd;

/// ALPN names (RFC 7301 registry).
pub(crate) const ALPN_H1: &[u8] = b"http/1.1";
pub(crate) const ALPN_H2: &[u8] = b"h2";

/// What interception needs, for every sandbox of the role.
pub(crate) struct Interception {
    pub(crate) leaves: Leaves,
    pub(crate) trust: Trust,
}

impl Interception {
    /// Reads the authority's key from the directory, or makes one there.
    pub(crate) fn load(directory: &OwnedFd) -> std::io::Result<Self> {
        Ok(Self {
            leaves: Leaves::new(Authority::load(directory)?)?,
            trust: Trust::of_the_system(),
        })
    }

    /// The authority's certificate as PEM.
    pub(crate) fn authority(&self) -> &str {
        self.leaves.authority().pem()
    }
}
