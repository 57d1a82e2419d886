//! What a request to the proxy asks for, and how it goes on to the upstream.

use astrabox_egress::{DenyReason, Destination, Scheme, holds_placeholder};

use crate::answer::{Bad, Reason};
use crate::http::framing::{self, BodyLength};
use crate::http::head::{Field, Fields, RequestHead, Version};
use crate::websocket::Key;

/// A request whose target could be read. Not `Debug`: it may hold secrets.
pub(crate) enum Request {
    /// `CONNECT host:port`. None of its fields goes anywhere.
    Tunnel(Destination),
    /// A request for `http://host[:port]/..`.
    Forward(Forward),
}

/// A request that goes on: in absolute form in the clear, or inside of a tunnel.
pub(crate) struct Forward {
    pub(crate) destination: Destination,
    pub(crate) method: String,
    pub(crate) version: Version,
    pub(crate) body: BodyLength,
    /// Whether the client may send another request on its connection.
    pub(crate) keep_alive: bool,
    /// The WebSocket that it asks for.
    pub(crate) upgrade: Option<Key>,
    pub(crate) path: String,
    pub(crate) fields: Fields,
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
                keep_alive: keeps_alive(&head),
                upgrade: None,
                version: head.version,
                method: head.method,
                fields: head.fields,
            })),
            Err(reason) => Err(refused(reason, Some(destination))),
        }
    }
}

/// Reads a request inside of a tunnel to `destination`: it must name that and nothing else.
pub(crate) fn inside(head: RequestHead, destination: &Destination) -> Result<Forward, Reason> {
    if head.method == "CONNECT" {
        return Err(Bad::NestedConnect.into());
    }
    let path = inner_path(&head.target, destination)?;
    check_host(&head, destination)?;
    let body = framing::of_request(&head)?;
    let mut upgrade = None;
    if asks_for_upgrade(&head) {
        let plain = head.method == "GET" && head.version == Version::Http11;
        let key = Key::read(&head.fields).filter(|_| plain && body == BodyLength::None);
        upgrade = Some(key.ok_or(Bad::Upgrade)?);
    }
    Ok(Forward {
        destination: destination.clone(),
        body,
        path,
        keep_alive: keeps_alive(&head),
        upgrade,
        version: head.version,
        method: head.method,
        fields: head.fields,
    })
}

/// The path of a target in origin form, or in absolute form for the tunnel's own destination.
fn inner_path(target: &str, destination: &Destination) -> Result<String, Reason> {
    if target.contains('#') {
        return Err(Bad::RequestLine.into());
    }
    if target.starts_with('/') {
        // Also when a URL stands in the path: the Host is what counts.
        return Ok(target.to_owned());
    }
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(Bad::RequestLine.into());
    };
    let clear = destination.scheme != Scheme::Https;
    if !scheme.eq_ignore_ascii_case(if clear { "http" } else { "https" }) {
        return Err(Bad::Scheme.into());
    }
    let (authority, path) = split_authority(rest);
    let named = match clear {
        true => Destination::http(authority),
        false => Destination::https(authority),
    };
    match named {
        Ok(named) if named == *destination => Ok(path),
        _ => Err(Reason::HostMismatch),
    }
}

fn keeps_alive(head: &RequestHead) -> bool {
    let close = head
        .fields
        .elements("connection")
        .contains(&"close".to_owned());
    head.version == Version::Http11 && !close
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
    Ok(split_authority(rest))
}

/// Splits what follows `://`.
fn split_authority(rest: &str) -> (&str, String) {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    };
    (authority, path)
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
    let holds = |field: &Field| holds_placeholder(&field.name) || holds_placeholder(&field.value);
    if head.fields.iter().any(holds) || holds_placeholder(head.target.as_bytes()) {
        return Err(Reason::PlaceholderInConnect);
    }
    match framing::of_request(head)? {
        BodyLength::None | BodyLength::Length(0) => Ok(()),
        _ => Err(Bad::BodyLength.into()),
    }
}

fn check_forward(head: &RequestHead, destination: &Destination) -> Result<BodyLength, Reason> {
    check_host(head, destination)?;
    if asks_for_upgrade(head) {
        return Err(Bad::Upgrade.into());
    }
    Ok(framing::of_request(head)?)
}

fn asks_for_upgrade(head: &RequestHead) -> bool {
    let upgrade = head
        .fields
        .elements("connection")
        .contains(&"upgrade".to_owned());
    upgrade || head.fields.has("upgrade")
}

/// Exactly one Host, which names the destination, and nothing that names another.
fn check_host(head: &RequestHead, destination: &Destination) -> Result<(), Reason> {
    let mut hosts = head.fields.all("host");
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Bad::Host.into());
    };
    let read = match destination.scheme {
        Scheme::Https => Destination::https,
        Scheme::Http | Scheme::Tunnel => Destination::http,
    };
    let named = std::str::from_utf8(host).map_or(None, |host| read(host).ok());
    if named.as_ref() != Some(destination) {
        return Err(Reason::HostMismatch);
    }
    if head.fields.has("forwarded") || head.fields.has("x-forwarded-host") {
        return Err(Bad::ForwardedHost.into());
    }
    Ok(())
}

impl Forward {
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

/// Whether a field goes on: it is none of those named, and no Connection field makes it hop-by-hop.
pub(crate) fn goes_on(fields: &Fields, but: &'static [&'static str]) -> impl Fn(&Field) -> bool {
    let nominated = fields.elements("connection");
    move |field| {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name.as_bytes());
        !but.iter().any(|name| is(name)) && !nominated.iter().any(|name| is(name))
    }
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
