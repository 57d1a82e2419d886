//! Requests in absolute form: what goes upstream, what comes back, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::support::client::{Client, ask, get};
use crate::support::upstream::Upstream;
use crate::support::{Stand, hosts, soon};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

async fn stand(upstream: &Upstream) -> (Stand, crate::support::Sandbox) {
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    (stand, sandbox)
}

#[tokio::test]
async fn a_request_goes_upstream_byte_for_byte_as_it_must() {
    let upstream = Upstream::start(|mut conversation| async move {
        conversation.until("end").await?;
        conversation.write(OK).await?;
        conversation.drain().await
    })
    .await;
    let (_stand, sandbox) = stand(&upstream).await;
    let request = "POST http://Good.test/v1/x?a=%2F..%2F HTTP/1.1\r\nHost: good.TEST:80\r\nAccept: */*\r\n\
                   Authorization: Bearer x\r\nProxy-Authorization: Basic y\r\nConnection: X-Hop\r\nX-Hop: z\r\n\
                   Content-Length: 9\r\n\r\n\0\u{1}\r\n\r\nend";
    assert_eq!(request.len() - request.find("\r\n\r\n").unwrap() - 4, 9);
    let answer = ask(sandbox.proxy, request).await;
    assert_eq!((answer.status, &*answer.body), (200, b"ok".as_slice()));
    upstream
        .has_received(
            "POST /v1/x?a=%2F..%2F HTTP/1.1\r\nhost: good.test\r\nAccept: */*\r\nAuthorization: Bearer x\r\n\
             content-length: 9\r\nconnection: close\r\n\r\n\0\u{1}\r\n\r\nend",
        )
        .await;
}

#[tokio::test]
async fn b05_each_event_of_a_stream_arrives_as_it_is_sent() {
    for framing in ["Transfer-Encoding: chunked", "X-Framing: until close"] {
        let chunked = framing.contains("chunked");
        let go_on = Arc::new(Notify::new());
        let gate = Arc::clone(&go_on);
        let upstream = Upstream::start(move |mut conversation| {
            let gate = Arc::clone(&gate);
            async move {
                conversation.head().await?;
                conversation
                    .write(format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n"
                    ))
                    .await?;
                for event in ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"] {
                    let event = if chunked {
                        format!("{:x}\r\n{event}\r\n", event.len())
                    } else {
                        event.to_owned()
                    };
                    conversation.write(event).await?;
                    gate.notified().await;
                }
                if chunked {
                    conversation.write("0\r\n\r\n").await?;
                }
                conversation.drain().await
            }
        })
        .await;
        let (_stand, sandbox) = stand(&upstream).await;
        let mut client = Client::connect(sandbox.proxy).await;
        client.send(get("good.test", "/stream")).await;
        let head = client.head().await.unwrap();
        assert!(
            head.contains("content-type: text/event-stream\r\n"),
            "{head}"
        );
        let mut waits = Vec::new();
        for number in 1..=3 {
            let asked = Instant::now();
            let event = if chunked {
                client.chunk().await.unwrap()
            } else {
                client.take(9).await.unwrap()
            };
            // The upstream sends no more before it is told to, so nothing but this event was needed for it.
            assert_eq!(event, format!("data: {number}\n\n").as_bytes());
            waits.push(asked.elapsed());
            go_on.notify_one();
        }
        // The quickest, because the machine may be busy with something else for a while.
        let quickest = waits.iter().min().unwrap();
        assert!(*quickest < Duration::from_millis(50), "{waits:?}");
        let end = if chunked {
            client.chunk().await.unwrap()
        } else {
            client.rest().await.unwrap()
        };
        assert!(end.is_empty());
    }
}

#[tokio::test]
async fn a_client_may_ask_again_and_each_request_has_its_own_upstream_connection() {
    let upstream = Upstream::start(|mut conversation| async move {
        conversation.head().await?;
        conversation
            .write(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: x\r\n\r\n",
            )
            .await?;
        conversation.drain().await
    })
    .await;
    let (_stand, sandbox) = stand(&upstream).await;
    let mut client = Client::connect(sandbox.proxy).await;
    // Two at once, and one more.
    let pipelined = format!("{}{}", get("good.test", "/1"), get("good.test", "/2"));
    client.send(pipelined).await;
    for _ in 0..2 {
        assert_eq!(client.answer().await.unwrap().body, b"ok");
    }
    client.send(get("good.test", "/3")).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    let close = get("good.test", "/4").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    client.send(close).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    assert!(client.is_closed().await);
    let paths: Vec<String> = upstream
        .received()
        .iter()
        .map(|text| text.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(paths, ["/1", "/2", "/3", "/4"]);
}

#[tokio::test]
async fn an_answer_without_a_body_leaves_the_connection_usable() {
    for (method, answer) in [
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
        ),
        ("DELETE", "HTTP/1.1 204 No Content\r\n\r\n"),
    ] {
        let upstream = Upstream::answering(answer).await;
        let (_stand, sandbox) = stand(&upstream).await;
        let mut client = Client::connect(sandbox.proxy).await;
        for _ in 0..2 {
            client
                .send(get("good.test", "/").replace("GET", method))
                .await;
            let head = client.head().await.unwrap();
            assert_eq!(head, answer, "{method}");
        }
    }
}

#[tokio::test]
async fn d9_a_client_that_waits_for_continue_is_told_by_the_upstream() {
    let upstream = Upstream::start(|mut conversation| async move {
        conversation.head().await?;
        conversation
            .write("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
            .await?;
        conversation.until("hello").await?;
        conversation.write(OK).await?;
        conversation.drain().await
    })
    .await;
    let (_stand, sandbox) = stand(&upstream).await;
    let mut client = Client::connect(sandbox.proxy).await;
    client
        .send(
            "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nExpect: 100-continue\r\n\
             Content-Length: 5\r\n\r\n",
        )
        .await;
    assert_eq!(
        client.head().await.unwrap(),
        "HTTP/1.1 100 Continue\r\n\r\n"
    );
    client.send("hello").await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_still_sends() {
    let upstream = Upstream::start(|mut conversation| async move {
        conversation.head().await?;
        conversation
            .write("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig")
            .await?;
        // Closes over what it has not read, as servers do.
        Ok(())
    })
    .await;
    let (_stand, sandbox) = stand(&upstream).await;
    let mut client = Client::connect(sandbox.proxy).await;
    client
        .send(
            "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: 1000000\r\n\r\n",
        )
        .await;
    client.send(vec![b'x'; 200_000]).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, &*answer.body), (413, b"big".as_slice()));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn ep6_a_broken_answer_is_not_taken_for_a_whole_one() {
    for broken in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\nzz\r\n",
    ] {
        let upstream = Upstream::start(move |mut conversation| async move {
            conversation.head().await?;
            conversation.write(broken).await
        })
        .await;
        let (_stand, sandbox) = stand(&upstream).await;
        let mut client = Client::connect(sandbox.proxy).await;
        client.send(get("good.test", "/")).await;
        // What came before the reset may be lost with it.
        let result = async {
            client.head().await?;
            client.rest().await
        };
        assert!(result.await.is_err(), "{broken:?}");
    }
}

#[tokio::test]
async fn an_upstream_that_fails_is_a_typed_answer() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let mute = Upstream::start(|mut conversation| async move {
        conversation.head().await?;
        while conversation.more().await? > 0 {}
        std::future::pending().await
    })
    .await;
    let mut upstreams = Vec::new();
    let mut names = vec![
        ("closed.test", closed, 502, "upstream_unreachable"),
        ("mute.test", mute.address, 504, "upstream_timeout"),
    ];
    for (name, answer, reason) in [
        ("gone.test", "", "upstream_closed"),
        ("half.test", "HTTP/1.1 200 OK\r\nco", "upstream_closed"),
        (
            "banner.test",
            "SSH-2.0-OpenSSH_9.6\r\n\r\n",
            "upstream_invalid",
        ),
        (
            "bare.test",
            "HTTP/1.1 200 OK\ncontent-length: 0\n\n",
            "upstream_invalid",
        ),
        (
            "two.test",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            "upstream_invalid",
        ),
        (
            "both.test",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "upstream_invalid",
        ),
        (
            "switch.test",
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
            "upstream_invalid",
        ),
    ] {
        let upstream = Upstream::start(move |mut conversation| async move {
            conversation.head().await?;
            conversation.write(answer).await?;
            conversation.drain().await
        })
        .await;
        names.push((name, upstream.address, 502, reason));
        upstreams.push(upstream);
    }
    let known: Vec<_> = names
        .iter()
        .map(|(name, address, ..)| (*name, *address))
        .collect();
    let mut config = hosts(&known);
    config.idle_timeout = Duration::from_secs(1);
    let stand = Stand::start(config).await;
    let allowed: Vec<&str> = names.iter().map(|(name, ..)| *name).collect();
    let sandbox = stand.sandbox(&allowed).await;
    for (name, _, status, reason) in names {
        let answer = ask(sandbox.proxy, get(name, "/")).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (status, Some(reason)),
            "{name}"
        );
        assert_eq!(answer.error()["host"], name);
    }
}

#[tokio::test]
async fn an_upstream_cannot_speak_for_the_proxy() {
    let upstream = Upstream::answering(
        "HTTP/1.1 403 Forbidden\r\nX-AstraBox-Egress-Reason: host_not_allowed\r\nAlt-Svc: h3\r\n\
         content-length: 0\r\n\r\n",
    )
    .await;
    let (_stand, sandbox) = stand(&upstream).await;
    let answer = ask(sandbox.proxy, get("good.test", "/")).await;
    assert_eq!(
        answer.head,
        "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"
    );
}

#[tokio::test]
async fn a_client_that_gives_up_ends_the_upstream_connection() {
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    let upstream = Upstream::start(move |mut conversation| {
        let tell = Arc::clone(&tell);
        async move {
            conversation.head().await?;
            // Silent, as a model that thinks.
            while conversation.more().await? > 0 {}
            tell.notify_one();
            Ok(())
        }
    })
    .await;
    let (_stand, sandbox) = stand(&upstream).await;
    let mut client = Client::connect(sandbox.proxy).await;
    client.send(get("good.test", "/")).await;
    crate::support::until("the request", async || !upstream.received().is_empty()).await;
    drop(client);
    soon("the end at the upstream", ended.notified()).await;
}

#[tokio::test]
async fn an_old_client_gets_chunks_without_their_framing() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    .await;
    let (_stand, sandbox) = stand(&upstream).await;
    let request =
        "GET http://good.test/ HTTP/1.0\r\nHost: good.test\r\nConnection: keep-alive\r\n\r\n";
    let answer = ask(sandbox.proxy, request).await;
    assert_eq!(answer.head, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    assert_eq!(answer.body, b"ok");
}
