//! What could be read in two ways is answered 400, and not a byte of it goes upstream.

use crate::support::client::{Client, ask};
use crate::support::upstream::Upstream;
use crate::support::{Stand, hosts};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn b15_b16_d_lines_are_refused_before_a_byte_goes_upstream() {
    let upstream = Upstream::answering(OK).await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let post = |fields: &str, body: &str| {
        format!("POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\n{fields}\r\n\r\n{body}")
    };
    let smuggled = "0\r\n\r\nGET http://good.test/admin HTTP/1.1\r\nHost: good.test\r\n\r\n";
    let huge = format!("X: {}", "a".repeat(70 * 1024));
    let many = "a: b\r\n".repeat(300);
    for (request, reason) in [
        (post("Content-Length: 5\r\nContent-Length: 50", "hello"), "ambiguous_body_length"),
        (post("Content-Length: 5\r\nContent-Length: 5", "hello"), "ambiguous_body_length"),
        (post("Content-Length: 5\r\nTransfer-Encoding: chunked", smuggled), "ambiguous_body_length"),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 5", smuggled), "ambiguous_body_length"),
        (post("Content-Length: +5", "hello"), "ambiguous_body_length"),
        (post("Content-Length: -5", "hello"), "ambiguous_body_length"),
        (post("Content-Length: 5, 5", "hello"), "ambiguous_body_length"),
        (post("Content-Length: 9223372036854775808", "hello"), "ambiguous_body_length"),
        (post("Content-Length: 0x5", "hello"), "ambiguous_body_length"),
        (post("Transfer-Encoding: xchunked", smuggled), "unsupported_transfer_encoding"),
        (post("Transfer-Encoding: chunked, identity", smuggled), "unsupported_transfer_encoding"),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", smuggled), "unsupported_transfer_encoding"),
        (post("Transfer-Encoding:\r\n chunked", smuggled), "folded_header"),
        (post("Transfer-Encoding : chunked", smuggled), "malformed_header"),
        (post("Content-Length : 5", "hello"), "malformed_header"),
        (post("no colon", ""), "malformed_header"),
        (post("X: a\0b", ""), "control_character"),
        (post("X: a\nY: b", ""), "bare_line_ending"),
        (post("X: a\rb", ""), "bare_line_ending"),
        (post(&huge, ""), "head_too_large"),
        (post(many.trim_end(), ""), "head_too_large"),
        (post("Upgrade: websocket\r\nConnection: Upgrade", ""), "upgrade_not_supported"),
        (post("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk", ""), "upgrade_not_supported"),
        ("POST http://good.test/ HTTP/1.0\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), "unsupported_transfer_encoding"),
        ("\r\nGET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n".to_owned(), "malformed_request_line"),
        ("GET  http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n".to_owned(), "malformed_request_line"),
        ("GET http://good.test/ x HTTP/1.1\r\nHost: good.test\r\n\r\n".to_owned(), "malformed_request_line"),
        ("GET http://good.test/#x HTTP/1.1\r\nHost: good.test\r\n\r\n".to_owned(), "malformed_request_line"),
        ("GET http://good.test/\r\n\r\n".to_owned(), "malformed_request_line"),
        ("GET http://good.test/ HTTP/1.1\nHost: good.test\n\n".to_owned(), "bare_line_ending"),
        ("GET http://good.test/ HTTP/2.0\r\nHost: good.test\r\n\r\n".to_owned(), "unsupported_version"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "unsupported_version"),
        ("CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\nContent-Length: 9\r\n\r\n".to_owned(), "ambiguous_body_length"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03".to_owned(), "control_character"),
    ] {
        let shown = &request[..request.len().min(150)];
        let mut client = Client::connect(sandbox.proxy).await;
        client.send(&request).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.reason()), (400, Some(reason)), "{shown:?}");
        assert_eq!(answer.error()["type"], "bad_request", "{shown:?}");
        assert!(client.is_closed().await, "{shown:?}");
    }
    assert!(upstream.received().is_empty(), "{:?}", upstream.received());
}

#[tokio::test]
async fn d6_wrong_chunks_end_the_request_and_no_trailer_goes_upstream() {
    let upstream = Upstream::start(|mut conversation| async move {
        conversation.until("0\r\n\r\n").await?;
        conversation.write(OK).await?;
        conversation.drain().await
    })
    .await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let head =
        "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "x\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\nabc\r\n",
        "-1\r\n",
        "0\r\nA : b\r\n\r\n",
    ] {
        let mut client = Client::connect(sandbox.proxy).await;
        client.send(format!("{head}{body}")).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(
            (answer.status, answer.reason()),
            (400, Some("malformed_body")),
            "{body:?}"
        );
        assert!(client.is_closed().await, "{body:?}");
    }
    for received in upstream.received() {
        assert!(
            !received.contains("0\r\n\r\n"),
            "a body was completed: {received:?}"
        );
    }
    let before = upstream.received().len();
    let body = "3;ext=PLACEHOLDER\r\nabc\r\n0\r\nX-Trailer: PLACEHOLDER\r\n\r\n";
    let answer = ask(sandbox.proxy, format!("{head}{body}")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        upstream.received()[before],
        "POST / HTTP/1.1\r\nhost: good.test\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n"
    );
}

#[tokio::test]
async fn d7_d8_what_hides_in_a_body_is_a_body_and_what_follows_has_its_own_verdict() {
    let upstream = Upstream::start(|mut conversation| async move {
        conversation.until("hidden HTTP/1.1\r\n\r\n").await?;
        conversation.write(OK).await?;
        conversation.drain().await
    })
    .await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let body = "GET http://evil.test/hidden HTTP/1.1\r\n\r\n";
    let next = "GET http://evil.test/next HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let request = format!(
        "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: {}\r\n\r\n{body}{next}",
        body.len()
    );
    let mut client = Client::connect(sandbox.proxy).await;
    client.send(request).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    let second = client.answer().await.unwrap();
    assert_eq!(
        (second.status, second.reason()),
        (403, Some("host_not_allowed"))
    );
    assert!(client.is_closed().await);
    let received = upstream.received();
    assert_eq!(received.len(), 1);
    assert!(received[0].ends_with(body), "{received:?}");
}

#[tokio::test]
async fn an_end_inside_a_head_is_answered() {
    let stand = Stand::start(hosts(&[])).await;
    let sandbox = stand.sandbox(&[]).await;
    let mut client = Client::connect(sandbox.proxy).await;
    client.send("GET http://good.test/ HTTP/1.1\r\nHost").await;
    tokio::io::AsyncWriteExt::shutdown(&mut client.stream)
        .await
        .unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.reason(), Some("incomplete_request"));
}
