//! Refreshes OAuth access tokens at their token endpoints.
//!
//! Invariant: follows no redirect, keeps no token, and dials no address that it has not judged.
//!
//! RFC 6749, sections 2.3.1 (how a client shows who it is), 5.1 and 5.2 (answers), 6 (the refresh). A token endpoint is
//! `https` at a public address. Operators who let sandboxes reach private addresses (`egress.allow_private`) let their
//! token endpoints be there too, and only there over plain `http`. What they deny (`egress.deny`) is denied here as well.

mod answer;
mod call;
mod error;
mod request;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use astrabox_egress::{AddressRange, Host};
use rustls::ClientConfig;

pub use answer::Tokens;
pub use call::roots_of_pem;
pub use error::{Error, ErrorKind};
pub use request::RefreshRequest;

/// How long a whole refresh may take.
const WITHIN: Duration = Duration::from_secs(30);
/// How long the connection may take of it, TLS included.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The address that an operator states for a host and port, in place of a look-up. It is let through, public or not.
pub type Stated = Arc<dyn Fn(&Host, u16) -> Option<SocketAddr> + Send + Sync>;

/// Reaches token endpoints. Cheap to clone.
#[derive(Clone)]
pub struct TokenClient {
    /// Addresses that are let through although they are not public.
    allow_private: Arc<[AddressRange]>,
    /// Addresses that are not, whatever else is said of them.
    deny: Arc<[AddressRange]>,
    stated: Stated,
    more_roots: Arc<[Vec<u8>]>,
    /// Read from the system when it is needed for the first time.
    tls: Arc<OnceLock<Arc<ClientConfig>>>,
    within: Duration,
    connect_within: Duration,
}

impl Default for TokenClient {
    /// Public addresses over TLS, by the system's roots.
    fn default() -> Self {
        Self::new(Vec::new(), Arc::new(|_, _| None), Vec::new())
    }
}

impl TokenClient {
    /// A client for operators with private addresses, names of their own and roots of their own (DER).
    #[must_use]
    pub fn new(allow_private: Vec<AddressRange>, stated: Stated, more_roots: Vec<Vec<u8>>) -> Self {
        Self {
            allow_private: allow_private.into(),
            deny: Arc::default(),
            stated,
            more_roots: more_roots.into(),
            tls: Arc::default(),
            within: WITHIN,
            connect_within: CONNECT_WITHIN,
        }
    }

    /// The operator's denied addresses (`egress.deny`): none of them is dialled, public or stated though it is.
    #[must_use]
    pub fn denying(mut self, deny: Vec<AddressRange>) -> Self {
        self.deny = deny.into();
        self
    }

    pub(crate) fn tls(&self) -> Arc<ClientConfig> {
        let made = || Arc::new(call::tls(&self.more_roots));
        Arc::clone(self.tls.get_or_init(made))
    }

    /// Other times than 30 seconds for all and 10 for the connection.
    #[must_use]
    pub fn with_times(mut self, within: Duration, connect_within: Duration) -> Self {
        self.within = within;
        self.connect_within = connect_within;
        self
    }

    /// Asks for a new access token. Asked once: whether an answer that did not come was a yes, nobody knows.
    ///
    /// # Errors
    /// `Refused` by the authorisation server, `Forbidden` by this operator, `Invalid` answers, `Unavailable`.
    pub async fn refresh(&self, request: RefreshRequest<'_>) -> Result<Tokens, Error> {
        match tokio::time::timeout(self.within, call::call(self, request)).await {
            Ok(result) => result,
            Err(_) => Err(Error::new(
                ErrorKind::Unavailable,
                "the token endpoint did not answer in time",
            )),
        }
    }
}

impl fmt::Debug for TokenClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenClient")
            .field("allow_private", &self.allow_private)
            .field("deny", &self.deny)
            .finish_non_exhaustive()
    }
}
