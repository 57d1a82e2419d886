//! The local identity provider: the peer of a unix socket, or the holder of a bearer token file.
//!
//! Invariant: keeps no token, only hashes; it asks nobody and knows no network.
//!
//! Settings, below `identity.local`:
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `allowed_uids` | the server's own uid, and 0 | who may call over a unix socket |
//! | `token_file` | none | absolute path of the file with the bearer tokens; none: no token is accepted |
//!
//! The token file belongs to the server's user or root and is readable by nobody else (mode 0600 or 0400). It has
//! one `name:token` per line, or one token alone, whose name is `default`. Empty lines and lines that begin with
//! `#` do not count. A token has at least 32 characters; a name may have several, so that one can be replaced
//! while the other still works. The file is read when the server starts.
//!
//! A caller is `uid:<uid>` or `token:<name>`. One that shows a token is judged by the token alone.

mod backend;
mod config;
mod error;
mod tokens;

pub use backend::Local;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: astrabox_identity::Registration =
    astrabox_identity::Registration::new::<Local>(env!("CARGO_PKG_NAME"));

astrabox_identity::registry::inventory::submit! { REGISTRATION }

#[cfg(test)]
mod tests;
