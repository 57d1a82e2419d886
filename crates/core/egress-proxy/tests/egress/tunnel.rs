//! Tunnels.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::support::client::{Client, ask, connect_to, tunnel};
use crate::support::upstream::Upstream;
use crate::support::{Stand, hosts, until};

#[tokio::test]
async fn a_tunnel_carries_both_ways_and_each_way_ends_by_itself() {
    let upstream = Upstream::start(|mut conversation| async move {
        while conversation.more().await? > 0 {}
        // The client's side has ended; the answer comes all the same.
        conversation.write("the whole answer").await?;
        conversation.stream.shutdown().await
    })
    .await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut client = tunnel(sandbox.proxy, "good.test:443").await;
    client.send("a question").await;
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await.unwrap(), b"the whole answer");
    upstream.has_received("a question").await;
    until("the end of the tunnel", async || {
        stand.gate.list().await.unwrap()[0].counts.open == 0
    })
    .await;
    let counts = stand.gate.list().await.unwrap()[0].counts;
    assert_eq!((counts.bytes_up, counts.bytes_down), (10, 16));
}

#[tokio::test]
async fn plain_http_through_a_tunnel_to_port_80_is_the_tunnels_own_affair() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut client = tunnel(sandbox.proxy, "good.test:80").await;
    let request = "GET / HTTP/1.1\r\nHost: good.test\r\n\r\n";
    client.send(request).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    upstream.has_received(request).await;
}

#[tokio::test]
async fn an_old_client_tunnels_without_a_host_header() {
    let upstream = Upstream::echo().await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut client = Client::connect(sandbox.proxy).await;
    client.send("CONNECT good.test:443 HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    client.send("hello").await;
    assert_eq!(client.take(5).await.unwrap(), b"hello");
    let denied = ask(sandbox.proxy, "CONNECT evil.test:443 HTTP/1.0\r\n\r\n").await;
    assert_eq!(denied.reason(), Some("host_not_allowed"));
}

#[tokio::test]
async fn a_silent_tunnel_is_closed_and_a_busy_one_is_not() {
    let upstream = Upstream::echo().await;
    let mut config = hosts(&[("good.test", upstream.address)]);
    config.idle_timeout = Duration::from_millis(800);
    let stand = Stand::start(config).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut busy = tunnel(sandbox.proxy, "good.test:443").await;
    let mut silent = tunnel(sandbox.proxy, "good.test:443").await;
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(2000) {
        busy.send("x").await;
        assert_eq!(busy.take(1).await.unwrap(), b"x");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(silent.is_closed().await);
    busy.send("y").await;
    assert_eq!(busy.take(1).await.unwrap(), b"y");
}

#[tokio::test]
async fn ep6_a_reset_upstream_is_a_reset_for_the_client() {
    let upstream = Upstream::start(|mut conversation| async move {
        conversation.until("x").await?;
        conversation.stream.set_zero_linger()
    })
    .await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut client = tunnel(sandbox.proxy, "good.test:443").await;
    client.send("x").await;
    assert!(
        client.rest().await.is_err(),
        "the end looks like a regular one"
    );
}

#[tokio::test]
async fn a_tunnel_to_nobody_is_a_typed_answer() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let stand = Stand::start(hosts(&[("closed.test", closed)])).await;
    let sandbox = stand.sandbox(&["closed.test", "unknown.test"]).await;
    for (authority, reason) in [
        ("closed.test:443", "upstream_unreachable"),
        ("unknown.test:443", "unresolved"),
    ] {
        let answer = ask(sandbox.proxy, connect_to(authority)).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (502, Some(reason)),
            "{authority}"
        );
    }
}
