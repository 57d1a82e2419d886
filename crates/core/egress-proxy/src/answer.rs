//! What the proxy answers by itself: a stable reason code, a status and a text for people.

use std::borrow::Cow;

use astrabox_egress::{DenyReason, Destination, Place, Refusal, RefusalReason};
use serde_json::json;

/// The header that tells an answer of the proxy from one of the upstream.
pub const REASON_HEADER: &str = "x-astrabox-egress-reason";

/// Why a request was not, or not wholly, passed on. The code is stable: it is in the answer and in the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The policy or the address says no.
    Denied(DenyReason),
    /// The Host header names something else than the target.
    HostMismatch,
    /// A placeholder must not go where the request would take it.
    Credential(RefusalReason, Place),
    /// A placeholder stands in the head of a CONNECT request.
    PlaceholderInConnect,
    /// A tunnel to a host that credentials go to holds something else than TLS.
    NotTls,
    /// TLS in such a tunnel names no host.
    SniMissing,
    /// TLS in such a tunnel names another host than the tunnel.
    SniMismatch,
    /// TLS with the client came to nothing: it may not trust the authority.
    ClientTls,
    /// TLS with the destination came to nothing.
    UpstreamTls,
    /// The destination's certificate is not valid for its name.
    UpstreamCertificate,
    /// A frame of a WebSocket cannot be looked through.
    WebSocketFrame,
    /// The request is wrong in itself, or could be read in two ways.
    Bad(Bad),
    /// The sandbox has as many connections open as it may.
    TooManyConnections,
    /// No address of the destination accepts a connection.
    Unreachable,
    /// The destination did not accept or answer in time.
    Timeout,
    /// The upstream closed before it had answered.
    UpstreamClosed,
    /// The credentials in the request changed before it was sent.
    CredentialsChanged,
    /// The upstream's answer could be read in two ways.
    UpstreamInvalid,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    RequestLine,
    Version,
    ControlCharacter,
    LineEnding,
    Header,
    FoldedHeader,
    HeadTooLarge,
    HeadTimeout,
    Incomplete,
    Host,
    ForwardedHost,
    BodyLength,
    TransferEncoding,
    Body,
    NotAProxyRequest,
    Scheme,
    Upgrade,
    NestedConnect,
}

impl Reason {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Denied(reason) => reason.code(),
            Self::HostMismatch => "host_mismatch",
            Self::Credential(reason, _) => reason.code(),
            Self::PlaceholderInConnect => "placeholder_in_connect",
            Self::NotTls => "not_tls",
            Self::SniMissing => "sni_missing",
            Self::SniMismatch => "sni_mismatch",
            Self::ClientTls => "client_tls_failed",
            Self::UpstreamTls => "upstream_tls_failed",
            Self::UpstreamCertificate => "upstream_certificate",
            Self::WebSocketFrame => "websocket_frame",
            Self::Bad(bad) => bad.code(),
            Self::TooManyConnections => "too_many_connections",
            Self::Unreachable => "upstream_unreachable",
            Self::Timeout => "upstream_timeout",
            Self::UpstreamClosed => "upstream_closed",
            Self::CredentialsChanged => "credentials_changed",
            Self::UpstreamInvalid => "upstream_invalid",
        }
    }

    /// Status, its phrase, and the class that stands as `type` in the body.
    const fn class(self) -> (u16, &'static str, &'static str) {
        match self {
            // A name server may know the name a moment later, so clients are told to try again.
            Self::Denied(DenyReason::Unresolved)
            | Self::Unreachable
            | Self::UpstreamClosed
            | Self::UpstreamInvalid
            | Self::UpstreamTls
            | Self::UpstreamCertificate => (502, "Bad Gateway", "egress_unavailable"),
            Self::Denied(_)
            | Self::HostMismatch
            | Self::Credential(..)
            | Self::PlaceholderInConnect
            | Self::NotTls
            | Self::SniMissing
            | Self::SniMismatch
            | Self::ClientTls
            | Self::WebSocketFrame => (403, "Forbidden", "egress_denied"),
            Self::Bad(_) => (400, "Bad Request", "bad_request"),
            Self::TooManyConnections | Self::CredentialsChanged => {
                (503, "Service Unavailable", "egress_unavailable")
            }
            Self::Timeout => (504, "Gateway Timeout", "egress_unavailable"),
        }
    }

    fn remedy(self) -> Cow<'static, str> {
        match self {
            Self::Credential(reason, place) => {
                format!("a placeholder in {place} is refused: {reason}").into()
            }
            other => other.fixed_remedy().into(),
        }
    }

    const fn fixed_remedy(self) -> &'static str {
        match self {
            Self::Credential(..) => "a placeholder is refused",
            Self::PlaceholderInConnect => {
                "a placeholder stands in the head of a CONNECT request; send it in the request inside of the tunnel"
            }
            Self::NotTls => {
                "credentials go to this host, so only TLS may be spoken in a tunnel to it; for plain HTTP send the \
                 request to the proxy in absolute form"
            }
            Self::SniMissing => "TLS must name the host of the tunnel (SNI), unencrypted",
            Self::SniMismatch => "TLS must name the same host as the tunnel (SNI)",
            Self::ClientTls => {
                "TLS with the client failed; it must trust the authority of the sandbox's proxy"
            }
            Self::UpstreamTls => "TLS with the destination failed",
            Self::UpstreamCertificate => {
                "the destination's certificate is not valid for its name; an operator can add roots with \
                 egress.extra_roots"
            }
            Self::WebSocketFrame => "the WebSocket sent a frame that cannot be looked through",
            Self::Denied(DenyReason::HostNotAllowed) => {
                "the sandbox's network policy does not allow this destination; add it to the allowed hosts of \
                 the environment (a host without a port means the ports 80 and 443)"
            }
            Self::Denied(DenyReason::Metadata) => {
                "metadata services are never reachable from a sandbox"
            }
            Self::Denied(DenyReason::AddressNotAllowed) => {
                "the destination is or resolves to a private or special address; an operator can allow it with \
                 egress.allow_private or egress.static_hosts"
            }
            Self::Denied(DenyReason::AddressDenied) => {
                "the destination is or resolves to an address that the operator denies to every sandbox"
            }
            Self::Denied(DenyReason::Unresolved) => "the name does not resolve; check its spelling",
            Self::Denied(DenyReason::Malformed) => {
                "the destination is not a plain host name or address with a port from 1 to 65535"
            }
            Self::Denied(DenyReason::NoPlan) => {
                "the sandbox has no valid network policy because its server is gone; start the server again"
            }
            Self::HostMismatch => "the Host header must name the same host and port as the target",
            Self::Bad(bad) => bad.remedy(),
            Self::TooManyConnections => {
                "the sandbox has too many open connections; close some, or raise egress.max_connections"
            }
            Self::Unreachable => "the destination does not accept connections",
            Self::Timeout => "the destination did not answer in time",
            Self::UpstreamClosed => "the destination closed the connection before it had answered",
            Self::CredentialsChanged => {
                "the credentials changed before the request was sent; send it again"
            }
            Self::UpstreamInvalid => "the destination did not answer in well-formed HTTP/1",
        }
    }

    /// The whole answer. It names the destination in canonical form and nothing else of the request.
    pub(crate) fn answer(self, destination: Option<&Destination>) -> Vec<u8> {
        let (status, phrase, _) = self.class();
        let code = self.code();
        let body = self.body(destination);
        format!(
            "HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n{REASON_HEADER}: {code}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// The status of the answer.
    pub(crate) const fn status(self) -> u16 {
        self.class().0
    }

    /// The body of the answer: what and why, for programs and for people.
    pub(crate) fn body(self, destination: Option<&Destination>) -> String {
        let (_, _, class) = self.class();
        let code = self.code();
        json!({
            "error": {
                "type": class,
                "reason": code,
                "host": destination.map(|destination| destination.host.to_string()),
                "port": destination.map(|destination| destination.port),
                "message": self.remedy(),
            }
        })
        .to_string()
    }
}

impl From<&Refusal> for Reason {
    fn from(refusal: &Refusal) -> Self {
        Self::Credential(refusal.reason, refusal.place)
    }
}

impl From<Bad> for Reason {
    fn from(bad: Bad) -> Self {
        Self::Bad(bad)
    }
}

impl From<DenyReason> for Reason {
    fn from(reason: DenyReason) -> Self {
        Self::Denied(reason)
    }
}

impl Bad {
    const fn code(self) -> &'static str {
        match self {
            Self::RequestLine => "malformed_request_line",
            Self::Version => "unsupported_version",
            Self::ControlCharacter => "control_character",
            Self::LineEnding => "bare_line_ending",
            Self::Header => "malformed_header",
            Self::FoldedHeader => "folded_header",
            Self::HeadTooLarge => "head_too_large",
            Self::HeadTimeout => "head_timeout",
            Self::Incomplete => "incomplete_request",
            Self::Host => "missing_or_repeated_host",
            Self::ForwardedHost => "forwarded_host",
            Self::BodyLength => "ambiguous_body_length",
            Self::TransferEncoding => "unsupported_transfer_encoding",
            Self::Body => "malformed_body",
            Self::NotAProxyRequest => "not_a_proxy_request",
            Self::Scheme => "unsupported_scheme",
            Self::Upgrade => "upgrade_not_supported",
            Self::NestedConnect => "nested_connect",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::RequestLine => "the request line is not `METHOD target HTTP/1.1`",
            Self::Version => "speak HTTP/1.1, or HTTP/1.0, to the proxy",
            Self::ControlCharacter => "the request has a control character in its head",
            Self::LineEnding => "lines of the head end in CR LF, both",
            Self::Header => "a header is not `name: value`",
            Self::FoldedHeader => "a header must not go on in the next line",
            Self::HeadTooLarge => "the head of a request is at most 64 KiB and 256 headers",
            Self::HeadTimeout => "the head of the request did not arrive in time",
            Self::Incomplete => "the connection ended in the middle of the request",
            Self::Host => "the request needs exactly one Host header",
            Self::ForwardedHost => "Forwarded and X-Forwarded-Host are not for clients to send",
            Self::BodyLength => {
                "give the length of the body once: one Content-Length in digits, or chunked"
            }
            Self::TransferEncoding => "the only transfer coding is chunked, once, in HTTP/1.1",
            Self::Body => "the chunks of the body are malformed",
            Self::NotAProxyRequest => {
                "this is a proxy: send CONNECT host:port or a request for http://host/path"
            }
            Self::Scheme => "only http: is spoken in the clear; use CONNECT for everything else",
            Self::Upgrade => {
                "the only upgrade is to a well-formed WebSocket, inside of a CONNECT tunnel"
            }
            Self::NestedConnect => "a tunnel does not lead to another one",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_typed_and_names_the_destination_only() {
        let destination = Destination::http("Evil.com:8080").unwrap();
        let answer = Reason::from(DenyReason::HostNotAllowed).answer(Some(&destination));
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(
            head.contains("x-astrabox-egress-reason: host_not_allowed"),
            "{head}"
        );
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["type"], "egress_denied");
        assert_eq!(body["error"]["reason"], "host_not_allowed");
        assert_eq!(body["error"]["host"], "evil.com");
        assert_eq!(body["error"]["port"], 8080);
    }

    #[test]
    fn a_status_tells_whether_to_try_again() {
        for (reason, status) in [
            (Reason::Denied(DenyReason::Metadata), "403"),
            (Reason::Denied(DenyReason::Unresolved), "502"),
            (Reason::HostMismatch, "403"),
            (Reason::Bad(Bad::BodyLength), "400"),
            (Reason::TooManyConnections, "503"),
            (Reason::Timeout, "504"),
        ] {
            let answer = String::from_utf8(reason.answer(None)).unwrap();
            assert_eq!(&answer[9..12], status, "{reason:?}");
            assert!(answer.contains("\"host\":null"), "{answer}");
        }
    }
}
