//! The fields of a stream: what they must say, and how they go on.

use astrabox_egress::Destination;
use bytes::Bytes;
use h2::server::SendResponse;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response};

use crate::answer::{Bad, REASON_HEADER, Reason};
use crate::inject::Injection;

/// Fields of a request that concern the client's connection only, or that the proxy writes itself.
const NOT_SENT: &[&str] = &[
    "content-length",
    "expect",
    "host",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "trailer",
];

/// Fields of an answer that lead a client away from the proxy, or that only the proxy itself may say.
const NOT_RETURNED: &[&str] = &["alt-svc", "proxy-authenticate", REASON_HEADER];

/// What a stream asks for, when it asks the tunnel's destination and nobody else.
pub(super) fn check(
    request: &Request<h2::RecvStream>,
    destination: &Destination,
) -> Result<String, Reason> {
    if request.method() == Method::CONNECT {
        return Err(Bad::NestedConnect.into());
    }
    let uri = request.uri();
    if uri.scheme() != Some(&Scheme::HTTPS) {
        return Err(Bad::Scheme.into());
    }
    let authority = uri.authority().ok_or(Bad::Host)?.as_str();
    let same = |text: &str| Destination::https(text).is_ok_and(|named| named == *destination);
    if !same(authority) {
        return Err(Reason::HostMismatch);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    if let Some(host) = hosts.next() {
        if hosts.next().is_some() {
            return Err(Bad::Host.into());
        }
        if !host.to_str().is_ok_and(same) {
            return Err(Reason::HostMismatch);
        }
    }
    for name in ["forwarded", "x-forwarded-host"] {
        if request.headers().contains_key(name) {
            return Err(Bad::ForwardedHost.into());
        }
    }
    let path = uri.path_and_query().ok_or(Bad::RequestLine)?;
    Ok(path.as_str().to_owned())
}

/// The request for the upstream, with credentials in its fields.
pub(super) fn outgoing(
    request: &Request<h2::RecvStream>,
    injection: &mut Injection,
    destination: &Destination,
) -> Result<Request<()>, Reason> {
    let mut headers = HeaderMap::with_capacity(request.headers().len());
    for (name, value) in request.headers() {
        let replaced = injection.header(name.as_str().as_bytes(), value.as_bytes());
        let replaced = replaced.map_err(|refusal| {
            injection.note(refusal.credential_id.as_slice());
            Reason::from(&refusal)
        })?;
        if NOT_SENT.contains(&name.as_str()) {
            continue;
        }
        let value = match replaced {
            None => value.clone(),
            Some(value) => secret(value)?,
        };
        headers.append(name.clone(), value);
    }
    let authority = match destination.port {
        443 => destination.host.to_string(),
        _ => destination.to_string(),
    };
    let path = PathAndQuery::try_from(injection.target()).map_err(|_| Bad::RequestLine)?;
    let uri = Uri::builder()
        .scheme(Scheme::HTTPS)
        .authority(authority)
        .path_and_query(path)
        .build()
        .map_err(|_| Bad::RequestLine)?;
    let mut outgoing = Request::new(());
    *outgoing.method_mut() = request.method().clone();
    *outgoing.uri_mut() = uri;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

/// A value that is never put into a compression table.
fn secret(value: Bytes) -> Result<HeaderValue, Reason> {
    let mut value = HeaderValue::from_maybe_shared(value).map_err(|_| Bad::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The answer for the client.
pub(super) fn returned(response: Response<()>) -> Response<()> {
    let (mut parts, ()) = response.into_parts();
    for name in NOT_RETURNED {
        parts.headers.remove(*name);
    }
    let mut returned = Response::new(());
    *returned.status_mut() = parts.status;
    *returned.headers_mut() = parts.headers;
    returned
}

/// Answers in the upstream's place.
pub(super) fn answer(
    respond: &mut SendResponse<Bytes>,
    reason: Reason,
    destination: &Destination,
) -> Result<(), h2::Error> {
    let body = Bytes::from(reason.body(Some(destination)));
    let mut response = Response::new(());
    *response.status_mut() =
        http::StatusCode::from_u16(reason.status()).unwrap_or(http::StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(
        HeaderName::from_static(REASON_HEADER),
        HeaderValue::from_static(reason.code()),
    );
    let mut stream = respond.send_response(response, false)?;
    // A few hundred bytes, which h2 keeps until the client has room for them.
    stream.send_data(body, true)
}
