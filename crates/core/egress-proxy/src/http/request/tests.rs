use astrabox_egress::{DenyReason, Destination};
use bytes::Bytes;
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::{Forward, Request, split_target};
use crate::answer::{Bad, Reason};
use crate::credentials::Credentials;
use crate::http::framing;
use crate::http::head::{RequestHead, find_end};
use crate::http::upstream::{Terms, UpstreamHead};
use crate::inject::Injection;

/// What goes upstream of a request without credentials.
fn upstream_head(forward: &Forward) -> Zeroizing<Vec<u8>> {
    let names = forward.fields.iter().map(|field| &field.name[..]);
    let credentials = Credentials::default();
    let judged = Injection::judge(
        credentials,
        &forward.destination,
        &forward.method,
        &forward.path,
        names,
    );
    let head = UpstreamHead::new(forward, &mut judged.unwrap()).unwrap();
    head.write(Terms {
        body: forward.body,
        expect: forward.expects_continue(),
        persistent: false,
    })
}

/// The destination and the head that goes upstream (empty for a tunnel), or the reason of the refusal.
fn interpret(text: &str) -> Result<(String, String), Reason> {
    let head = RequestHead::parse(&Bytes::from(text.to_owned()))?;
    match Request::interpret(head) {
        Ok(Request::Tunnel(destination)) => Ok((destination.to_string(), String::new())),
        Ok(Request::Forward(forward)) => Ok((
            forward.destination.to_string(),
            String::from_utf8(upstream_head(&forward).to_vec()).unwrap(),
        )),
        Err(refused) => Err(refused.reason),
    }
}

fn check(text: &str, wanted: Result<&str, Reason>) {
    let got = interpret(text).map(|(destination, _)| destination);
    assert_eq!(got, wanted.map(str::to_owned), "{text:?}");
}

const MALFORMED: Reason = Reason::Denied(DenyReason::Malformed);

#[test]
fn a_tunnel_is_named_by_its_target_alone() {
    let host = Reason::Bad(Bad::Host);
    for (text, wanted) in [
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
            Ok("a.test:443"),
        ),
        (
            "CONNECT A.test.:80 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            Ok("a.test:80"),
        ),
        (
            "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n",
            Ok("[::1]:443"),
        ),
        (
            "CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]\r\n\r\n",
            Ok("[::1]:443"),
        ),
        ("CONNECT a.test:443 HTTP/1.0\r\n\r\n", Ok("a.test:443")),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nContent-Length: 0\r\n\r\n",
            Ok("a.test:443"),
        ),
        // A6, A9
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n",
            Err(Reason::HostMismatch),
        ),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:8443\r\n\r\n",
            Err(Reason::HostMismatch),
        ),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost:\r\n\r\n",
            Err(Reason::HostMismatch),
        ),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n",
            Err(host),
        ),
        ("CONNECT a.test:443 HTTP/1.1\r\n\r\n", Err(host)),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n",
            Err(Reason::Bad(Bad::BodyLength)),
        ),
        (
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n",
            Err(Reason::Bad(Bad::BodyLength)),
        ),
    ] {
        check(text, wanted);
    }
}

#[test]
fn b1_to_b8_a_tunnel_to_no_plain_host_and_port_is_refused() {
    for target in [
        "a.test",
        "a.test:",
        "a.test:0",
        "a.test:65536",
        "a.test:+443",
        "a.test:0443",
        ":443",
        "a..test:443",
        ".a.test:443",
        "a.test..:443",
        "u@a.test:443",
        "a.test:443@b.test",
        "a.test\\@b.test:443",
        "a%00.test:443",
        "a%2etest:443",
        "2130706433:80",
        "0x7f.1:80",
        "0177.0.0.1:80",
        "127.1:80",
        "[fe80::1%eth0]:80",
        "::1:443",
        "http://a.test:443",
        "a.test:443/x",
        "*.test:443",
        "/x",
        "*",
    ] {
        let text = format!("CONNECT {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        check(&text, Err(MALFORMED));
    }
}

#[test]
fn a7_a9_a_forwarded_request_names_one_host() {
    let mismatch = Err(Reason::HostMismatch);
    let host = Err(Reason::Bad(Bad::Host));
    let forwarded = Err(Reason::Bad(Bad::ForwardedHost));
    for (target, version, fields, wanted) in [
        ("http://a.test/", "1.1", "Host: a.test", Ok("a.test:80")),
        ("HTTP://A.test:80/", "1.1", "host: a.TEST.", Ok("a.test:80")),
        (
            "http://a.test:81/",
            "1.1",
            "Host: a.test:81",
            Ok("a.test:81"),
        ),
        ("http://a.test/", "1.0", "Host: a.test", Ok("a.test:80")),
        ("http://[::1]:81/", "1.1", "Host: [::1]:81", Ok("[::1]:81")),
        ("http://a.test/", "1.1", "Host: b.test", mismatch),
        ("http://a.test/", "1.1", "Host: a.test:81", mismatch),
        ("http://a.test:81/", "1.1", "Host: a.test", mismatch),
        ("http://a.test/", "1.1", "Host: a.test, b.test", mismatch),
        ("http://a.test/", "1.1", "Host:", mismatch),
        ("http://a.test/", "1.1", "Host: u@a.test", mismatch),
        (
            "http://a.test/",
            "1.1",
            "Host: a.test\r\nHost: a.test",
            host,
        ),
        (
            "http://a.test/",
            "1.1",
            "Host: a.test\r\nhost: b.test",
            host,
        ),
        ("http://a.test/", "1.1", "X: y", host),
        ("http://a.test/", "1.0", "X: y", host),
        (
            "http://a.test/",
            "1.1",
            "Host: a.test\r\nX-Forwarded-Host: b",
            forwarded,
        ),
        (
            "http://a.test/",
            "1.1",
            "Host: a.test\r\nForwarded: host=b",
            forwarded,
        ),
        (
            "http://good.com@evil.com/",
            "1.1",
            "Host: evil.com",
            Err(MALFORMED),
        ),
        (
            "http://evil.com#@good.com/",
            "1.1",
            "Host: good.com",
            Err(Reason::Bad(Bad::RequestLine)),
        ),
        (
            "http://good.com\\@evil/",
            "1.1",
            "Host: evil",
            Err(MALFORMED),
        ),
        (
            "http://good.com\\.evil/",
            "1.1",
            "Host: evil",
            Err(MALFORMED),
        ),
        ("http:///x", "1.1", "Host: a.test", Err(MALFORMED)),
        ("http://a.test:/", "1.1", "Host: a.test", Err(MALFORMED)),
        ("http://a.test:0/", "1.1", "Host: a.test", Err(MALFORMED)),
        ("http://2130706433/", "1.1", "Host: a.test", Err(MALFORMED)),
    ] {
        let text = format!("GET {target} HTTP/{version}\r\n{fields}\r\n\r\n");
        check(&text, wanted);
    }
}

#[test]
fn what_is_not_meant_for_a_proxy_is_refused() {
    for (target, bad) in [
        ("/", Bad::NotAProxyRequest),
        ("/http://evil.com/", Bad::NotAProxyRequest),
        ("*", Bad::NotAProxyRequest),
        ("a.test:443", Bad::NotAProxyRequest),
        ("https://a.test/", Bad::Scheme),
        ("ftp://a.test/", Bad::Scheme),
        ("ws://a.test/", Bad::Scheme),
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n");
        check(&text, Err(Reason::Bad(bad)));
    }
}

#[test]
fn d12_an_upgrade_is_not_passed_on() {
    for fields in [
        "Upgrade: websocket\r\nConnection: Upgrade",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
        "Upgrade: h2c",
        "Connection: keep-alive, upgrade",
    ] {
        let text = format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n\r\n");
        check(&text, Err(Reason::Bad(Bad::Upgrade)));
    }
}

#[test]
fn a_path_goes_upstream_as_it_came() {
    for (target, path) in [
        ("http://a.test", "/"),
        ("http://a.test/", "/"),
        ("http://a.test?x=/y", "/?x=/y"),
        (
            "http://a.test/a%2Fb//c/../d;e?f=%20&g",
            "/a%2Fb//c/../d;e?f=%20&g",
        ),
        ("http://a.test/http://evil.com/", "/http://evil.com/"),
    ] {
        let (authority, got) = split_target(target).unwrap();
        assert_eq!((authority, &*got), ("a.test", path), "{target}");
    }
}

#[test]
fn only_end_to_end_fields_go_upstream() {
    let (_, head) = interpret(
        "POST http://a.test:8080/v1?q=1 HTTP/1.1\r\nHost: A.test:8080\r\nAuthorization: Bearer x\r\n\
         Proxy-Authorization: Basic y\r\nProxy-Connection: keep-alive\r\nConnection: keep-alive, X-Hop, host\r\n\
         X-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nTrailer: X-T\r\nExpect: 100-continue\r\n\
         Content-Length: 5\r\nAccept: a\r\nAccept: b\r\n\r\n",
    )
    .unwrap();
    assert_eq!(
        head,
        "POST /v1?q=1 HTTP/1.1\r\nhost: a.test:8080\r\nAuthorization: Bearer x\r\n\
         Accept: a\r\nAccept: b\r\nexpect: 100-continue\r\ncontent-length: 5\r\nconnection: close\r\n\r\n"
    );
    let (_, head) = interpret(
        "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nConnection: content-length\r\n\r\n",
    )
    .unwrap();
    assert_eq!(
        head,
        "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n"
    );
    let (_, head) = interpret(
        "POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\
         Connection: transfer-encoding\r\n\r\n",
    )
    .unwrap();
    assert!(
        head.contains("\r\ntransfer-encoding: chunked\r\n"),
        "{head}"
    );
}

/// Parts that requests are made of, whole ones and broken ones.
fn part() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "GET http://a.test/ HTTP/1.1\r\n",
        "POST http://a.test:8080/x?y HTTP/1.1\r\n",
        "GET http://b.test/ HTTP/1.0\r\n",
        "Host: a.test\r\n",
        "Host: a.test:8080\r\n",
        "Host: b.test\r\n",
        "Content-Length: 3\r\n",
        "content-length: 0\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Connection: host, content-length, transfer-encoding, x\r\n",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        "X: y\r\n",
        "X: \u{e9}\r\n",
        " folded\r\n",
        "bare\n",
        "\r",
        "\n",
        "\0",
        ":",
        " ",
        "\t",
        "a",
    ])
}

proptest! {
    /// What is let through is read by a strict reader as exactly what was judged: same host, same length of the
    /// body, and no field that the reader would take for another one.
    #[test]
    fn what_goes_upstream_cannot_be_read_in_another_way(
        // Mostly whole, or nothing of it would get through.
        line in 0..2_usize,
        host in 0..8_usize,
        parts in prop::collection::vec(part(), 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let begin = ["GET http://a.test/ HTTP/1.1\r\n", "POST http://a.test?x HTTP/1.0\r\n"][line];
        let host = if host > 0 { "Host: a.test\r\n" } else { "" };
        let text = format!("{begin}{host}{}\r\n", parts.concat());
        let bytes = text.as_bytes();
        // Wherever the bytes are cut, the end is the same.
        let at = cut.index(bytes.len());
        let whole = find_end(bytes, 0);
        let in_two = match find_end(&bytes[..at], 0) {
            Ok(None) => find_end(bytes, at),
            found => found,
        };
        prop_assert_eq!(whole, in_two);
        let Ok(Some(end)) = whole else { return Ok(()) };
        let Ok(head) = RequestHead::parse(&Bytes::copy_from_slice(&bytes[..end])) else {
            return Ok(());
        };
        let Ok(Request::Forward(forward)) = Request::interpret(head) else {
            return Ok(());
        };
        let sent = Bytes::from(upstream_head(&forward).to_vec());
        prop_assert_eq!(find_end(&sent, 0), Ok(Some(sent.len())));
        let read = RequestHead::parse(&sent).ok().unwrap();
        prop_assert_eq!(framing::of_request(&read), Ok(forward.body));
        let hosts: Vec<_> = read.fields.all("host").collect();
        prop_assert_eq!(hosts.len(), 1);
        let host = std::str::from_utf8(hosts[0]).unwrap();
        prop_assert_eq!(Destination::http(host).unwrap(), forward.destination);
        prop_assert_eq!(read.fields.elements("connection"), ["close"]);
        prop_assert!(read.target.starts_with('/'));
    }
}
