//! Who calls: what the kernel and the headers tell, for the identity provider to judge.

use astrabox_platform::{Error, Evidence, OpContext, Platform, Result};
use astrabox_types::ErrorReason;
use async_trait::async_trait;
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// Services that answer anybody who can connect: they tell nothing about sessions, and load balancers and tools
/// call them without credentials. Every other method, also one that does not exist, wants an identified caller.
pub const OPEN_SERVICES: &[&str] = &[
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
];

/// Whether the method at this path is of an open service.
pub(crate) fn is_open(path: &str) -> bool {
    path.strip_prefix('/')
        .and_then(|path| path.split_once('/'))
        .is_some_and(|(service, _)| OPEN_SERVICES.contains(&service))
}

/// What is known of the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// The user, where the kernel tells.
    pub(crate) uid: Option<u32>,
}

/// Asks who is behind the evidence. The platform, but for tests of the gate.
#[async_trait]
pub(crate) trait Identify: Send + Sync + 'static {
    async fn identify(&self, evidence: &Evidence) -> Result<OpContext>;
}

#[async_trait]
impl Identify for Platform {
    async fn identify(&self, evidence: &Evidence) -> Result<OpContext> {
        Self::identify(self, evidence).await
    }
}

/// What the connection and the headers of one request show.
///
/// # Errors
/// `UNAUTHENTICATED` for an authorization that cannot be read; it is not taken for none.
pub(crate) fn evidence(peer: Peer, headers: &HeaderMap) -> Result<Evidence> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let bearer = match (values.next(), values.next()) {
        (None, _) => None,
        (Some(value), None) => Some(token(value.as_bytes()).ok_or_else(unreadable)?),
        (Some(_), Some(_)) => return Err(unreadable()),
    };
    Ok(Evidence {
        peer_uid: peer.uid,
        bearer,
    })
}

fn token(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let plain = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && plain).then(|| token.to_owned())
}

fn unreadable() -> Error {
    Error::new(
        ErrorReason::Unauthenticated,
        "the authorization header must be given once, as `Bearer` and a token",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().expect("a header value"));
        }
        headers
    }

    #[test]
    fn only_health_and_reflection_are_open() {
        for open in [
            "/grpc.health.v1.Health/Check",
            "/grpc.health.v1.Health/Watch",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ] {
            assert!(is_open(open), "{open}");
        }
        for closed in [
            "/",
            "",
            "/astrabox.v1.SessionService/GetSession",
            "/grpc.health.v1.HealthX/Check",
            "/x/grpc.health.v1.Health/Check",
            "//grpc.health.v1.Health/Check",
            "grpc.health.v1.Health/Check",
        ] {
            assert!(!is_open(closed), "{closed}");
        }
    }

    #[test]
    fn a_bearer_token_and_the_peer_are_evidence() {
        let peer = Peer { uid: Some(7) };
        let plain = evidence(peer, &headers(&[])).expect("no header is fine");
        assert_eq!((plain.peer_uid, plain.bearer), (Some(7), None));
        for scheme in ["Bearer", "bearer"] {
            let both =
                evidence(peer, &headers(&[&format!("{scheme} abc")])).expect("a bearer is fine");
            assert_eq!(
                (both.peer_uid, both.bearer.as_deref()),
                (Some(7), Some("abc"))
            );
        }
    }

    #[test]
    fn an_authorization_that_cannot_be_read_is_refused() {
        let peer = Peer { uid: Some(7) };
        for wrong in [
            &["Basic abc"][..],
            &["Bearer"],
            &["Bearer "],
            &["Bearer a b"],
            &["Bearer a", "Bearer b"],
            &["Bearer a", "Bearer a"],
            &["abc"],
        ] {
            let Err(error) = evidence(peer, &headers(wrong)) else {
                panic!("{wrong:?} was taken");
            };
            assert_eq!(error.reason(), ErrorReason::Unauthenticated);
        }
    }
}
