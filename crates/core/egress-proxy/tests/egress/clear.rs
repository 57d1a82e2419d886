//! Tunnels to hosts that a credential may go to in the clear.

use astrabox_egress::BodyPlace;

use crate::support::client::{Answer, tunnel};
use crate::support::credentials::{CANARY, grant, in_body, placeholder};
use crate::support::upstream::Upstream;
use crate::support::{OK, Sandbox, Stand, hosts};

/// A stand whose sandbox has a credential for `open.test` in the clear, and one for `good.test` that is not.
async fn stand(upstream: &Upstream) -> (Stand, Sandbox) {
    let stand = Stand::start(hosts(&[
        ("good.test", upstream.address),
        ("open.test", upstream.address),
    ]))
    .await;
    let sandbox = stand.sandbox(&["good.test", "open.test"]).await;
    let mut open = in_body(grant("open", &["open.test"]), BodyPlace::Replace);
    open.cleartext = true;
    open.hosts = vec!["open.test:80".parse().unwrap()];
    stand
        .grant(&sandbox, &[grant("key", &["good.test"]), open], CANARY)
        .await;
    (stand, sandbox)
}

async fn said(sandbox: &Sandbox, authority: &str, request: &str) -> Answer {
    let mut client = tunnel(sandbox.proxy, authority).await;
    client.send(request).await;
    client.answer().await.unwrap()
}

#[tokio::test]
async fn ep10_requests_in_the_clear_get_values_one_after_the_other_on_one_tunnel() {
    let upstream = Upstream::answering(OK).await;
    let (stand, sandbox) = stand(&upstream).await;
    let mut client = tunnel(sandbox.proxy, "open.test:80").await;
    let body = format!("k={}", placeholder("open"));
    for request in [
        format!(
            "GET /a HTTP/1.1\r\nHost: open.test\r\nX: {}\r\n\r\n",
            placeholder("open")
        ),
        format!(
            "POST http://open.test/b HTTP/1.1\r\nHost: open.test:80\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
    ] {
        client.send(request).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    let received = upstream.received();
    assert_eq!(received.len(), 2, "a connection each: {received:?}");
    assert_eq!(
        received[0],
        format!("GET /a HTTP/1.1\r\nhost: open.test\r\nX: {CANARY}\r\nconnection: close\r\n\r\n")
    );
    assert!(
        received[1].ends_with(&format!("k={CANARY}")),
        "{received:?}"
    );
    drop(stand);
}

#[tokio::test]
async fn ep11_a_request_in_the_clear_is_judged_as_one_that_is_encrypted() {
    let upstream = Upstream::answering(OK).await;
    let (stand, sandbox) = stand(&upstream).await;
    let get = |host: &str, target: &str, fields: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n\r\n")
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    for (request, status, reason) in [
        (get("good.test", "/", "X: y"), 403, "host_mismatch"),
        (get("open.test:81", "/", "X: y"), 403, "host_mismatch"),
        (
            get("open.test", "http://good.test/", "X: y"),
            403,
            "host_mismatch",
        ),
        (get("open.test", "https://open.test/", "X: y"), 400, ""),
        (
            get("open.test", "/", &format!("X: {}", placeholder("key"))),
            403,
            "credential_destination",
        ),
        (
            get("open.test", "/", &format!("X: {}", placeholder("stolen"))),
            403,
            "credential_unknown",
        ),
        (get("open.test", "/", "Host: open.test"), 400, ""),
        (
            get(
                "open.test",
                "/",
                "Transfer-Encoding: chunked\r\nContent-Length: 3",
            ),
            400,
            "",
        ),
        (get("open.test", "/", upgrade), 400, ""),
        (
            "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n".to_owned(),
            400,
            "",
        ),
        ("SSH-2.0-client\r\n\r\n".to_owned(), 400, ""),
    ] {
        let answer = said(&sandbox, "open.test:80", &request).await;
        assert_eq!(answer.status, status, "{request:?}: {answer:?}");
        if !reason.is_empty() {
            assert_eq!(answer.reason(), Some(reason), "{request:?}");
        }
    }
    assert_eq!(upstream.received().concat(), "");
    drop(stand);
}

#[tokio::test]
async fn ep10_what_is_not_to_be_said_in_the_clear_is_refused_as_before() {
    let upstream = Upstream::answering(OK).await;
    let (stand, sandbox) = stand(&upstream).await;
    // Another port of the host, and another host.
    for authority in ["good.test:80", "good.test:443"] {
        let request = "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n";
        let answer = said(&sandbox, authority, request).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (403, Some("not_tls")),
            "{authority}"
        );
    }
    assert_eq!(upstream.received().concat(), "");
    drop(stand);
}
