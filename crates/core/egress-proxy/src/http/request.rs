//! What a request to the proxy asks for, and how it goes on to the upstream.

use astrabox_egress::{DenyReason, Destination, Scheme};

use crate::answer::{Bad, Reason};
use crate::http::framing::{self, BodyLength};
use crate::http::head::{Field, Fields, RequestHead, Version};

/// Fields that concern this connection only, or that the proxy writes itself.
const NOT_PASSED_ON: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request whose target could be read. Not `Debug`: it may hold secrets.
pub(crate) enum Request {
    /// `CONNECT host:port`. None of its fields goes anywhere.
    Tunnel(Destination),
    /// A request for `http://host[:port]/..`.
    Forward(Forward),
}

/// A request in absolute form.
pub(crate) struct Forward {
    pub(crate) destination: Destination,
    pub(crate) method: String,
    pub(crate) version: Version,
    pub(crate) body: BodyLength,
    /// Whether the client may send another request on its connection.
    pub(crate) keep_alive: bool,
    path: String,
    fields: Fields,
}

/// A request that goes nowhere.
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    /// How it was to be spoken, when that much is certain.
    pub(crate) scheme: Option<Scheme>,
    /// Where it was to go, when that much is certain.
    pub(crate) destination: Option<Destination>,
}

impl Request {
    /// Reads the target and refuses everything that could be meant in two ways.
    pub(crate) fn interpret(head: RequestHead) -> Result<Self, Refused> {
        if head.method == "CONNECT" {
            Self::tunnel(&head)
        } else {
            Self::forward(head)
        }
    }

    fn tunnel(head: &RequestHead) -> Result<Self, Refused> {
        let scheme = Some(Scheme::Tunnel);
        let destination = Destination::tunnel(&head.target).map_err(|_| Refused {
            reason: DenyReason::Malformed.into(),
            scheme,
            destination: None,
        })?;
        match check_tunnel(head, &destination) {
            Ok(()) => Ok(Self::Tunnel(destination)),
            Err(reason) => Err(Refused {
                reason,
                scheme,
                destination: Some(destination),
            }),
        }
    }

    fn forward(head: RequestHead) -> Result<Self, Refused> {
        let refused = |reason, destination| Refused {
            reason,
            scheme: Some(Scheme::Http),
            destination,
        };
        let (authority, path) = match split_target(&head.target) {
            Ok(parts) => parts,
            Err(bad) => {
                return Err(Refused {
                    reason: bad.into(),
                    scheme: None,
                    destination: None,
                });
            }
        };
        let destination = Destination::http(authority)
            .map_err(|_| refused(DenyReason::Malformed.into(), None))?;
        match check_forward(&head, &destination) {
            Ok(body) => Ok(Self::Forward(Forward {
                destination,
                body,
                path,
                keep_alive: head.version == Version::Http11
                    && !head
                        .fields
                        .elements("connection")
                        .contains(&"close".to_owned()),
                version: head.version,
                method: head.method,
                fields: head.fields,
            })),
            Err(reason) => Err(refused(reason, Some(destination))),
        }
    }
}

/// Splits `http://authority/path`, giving the path as it goes upstream.
fn split_target(target: &str) -> Result<(&str, String), Bad> {
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(Bad::NotAProxyRequest);
    };
    if target.starts_with('/') {
        // Origin form, with a URL in its path: it says nothing about where to go.
        return Err(Bad::NotAProxyRequest);
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Bad::Scheme);
    }
    if rest.contains('#') {
        return Err(Bad::RequestLine);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    Ok((authority, path))
}

fn check_tunnel(head: &RequestHead, destination: &Destination) -> Result<(), Reason> {
    let mut hosts = head.fields.all("host");
    match (hosts.next(), hosts.next()) {
        // HTTP/1.0 clients (Python before 3.12 is one) tunnel without it; the target alone decides.
        (None, _) if head.version == Version::Http10 => {}
        (Some(host), None) => {
            // Some clients leave the port out here; with a port it must be the tunnel's.
            let same = |authority: &str| {
                Destination::tunnel(authority).is_ok_and(|named| named == *destination)
            };
            let host = std::str::from_utf8(host).map_err(|_| Bad::Host)?;
            if !same(host) && !same(&format!("{host}:{}", destination.port)) {
                return Err(Reason::HostMismatch);
            }
        }
        _ => return Err(Bad::Host.into()),
    }
    match framing::of_request(head)? {
        BodyLength::None | BodyLength::Length(0) => Ok(()),
        _ => Err(Bad::BodyLength.into()),
    }
}

fn check_forward(head: &RequestHead, destination: &Destination) -> Result<BodyLength, Reason> {
    let mut hosts = head.fields.all("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Bad::Host.into());
    };
    let named = std::str::from_utf8(host).map_or(None, |host| Destination::http(host).ok());
    if named.as_ref() != Some(destination) {
        return Err(Reason::HostMismatch);
    }
    if head.fields.has("forwarded") || head.fields.has("x-forwarded-host") {
        return Err(Bad::ForwardedHost.into());
    }
    let upgrade = head
        .fields
        .elements("connection")
        .contains(&"upgrade".to_owned());
    if upgrade || head.fields.has("upgrade") {
        return Err(Bad::Upgrade.into());
    }
    Ok(framing::of_request(head)?)
}

impl Forward {
    /// The head that goes upstream: origin form, a Host that the target gave, one request per connection.
    pub(crate) fn upstream_head(&self) -> Vec<u8> {
        let mut head = Vec::with_capacity(1024);
        let host = match self.destination.port {
            80 => self.destination.host.to_string(),
            _ => self.destination.to_string(),
        };
        head.extend_from_slice(
            format!("{} {} HTTP/1.1\r\nhost: {host}\r\n", self.method, self.path).as_bytes(),
        );
        for field in passed_on(&self.fields, NOT_PASSED_ON) {
            // Without a body there is nothing to be told to go on with.
            if field.name.eq_ignore_ascii_case(b"expect") && !self.expects_continue() {
                continue;
            }
            write_field(&mut head, field);
        }
        write_framing(&mut head, self.body);
        head.extend_from_slice(b"connection: close\r\n\r\n");
        head
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) fn expects_continue(&self) -> bool {
        let body = !matches!(self.body, BodyLength::None | BodyLength::Length(0));
        body && self.version == Version::Http11
            && self
                .fields
                .elements("expect")
                .contains(&"100-continue".to_owned())
    }
}

/// The fields but for those named, and but for those that a Connection field makes hop-by-hop.
pub(crate) fn passed_on<'a>(
    fields: &'a Fields,
    but: &'static [&'static str],
) -> impl Iterator<Item = &'a Field> {
    let nominated = fields.elements("connection");
    fields.iter().filter(move |field| {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name.as_bytes());
        !but.iter().any(|name| is(name)) && !nominated.iter().any(|name| is(name))
    })
}

pub(crate) fn write_field(head: &mut Vec<u8>, field: &Field) {
    head.extend_from_slice(&field.name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(&field.value);
    head.extend_from_slice(b"\r\n");
}

pub(crate) fn write_framing(head: &mut Vec<u8>, length: BodyLength) {
    match length {
        BodyLength::None | BodyLength::UntilClose => {}
        BodyLength::Length(length) => {
            head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
        }
        BodyLength::Chunked => head.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
}

#[cfg(test)]
mod tests;
