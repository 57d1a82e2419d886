//! What is let through and what is not, and that nothing of a refused request reaches an upstream.

use astrabox_egress::EgressPolicy;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::client::{Client, ask, connect_to, get};
use crate::support::upstream::Upstream;
use crate::support::{Stand, hosts, until};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The names stand for the upstream, on the ports that the destinations in the tests have.
async fn stand_for(upstream: &Upstream) -> Stand {
    let address = upstream.address;
    let mut config = hosts(&[
        ("good.test", address),
        ("x.files.test", address),
        ("files.test", address),
        ("evil.test", address),
        ("good.test.evil.test", address),
    ]);
    config
        .static_hosts
        .insert("imds.test", "169.254.169.254:80")
        .unwrap();
    Stand::start(config).await
}

#[tokio::test]
async fn b18_a_destination_has_one_verdict_however_it_is_spoken_to() {
    let upstream = Upstream::answering(OK).await;
    let stand = stand_for(&upstream).await;
    let sandbox = stand
        .sandbox(&[
            "good.test",
            "*.files.test",
            "good.test:8443",
            "imds.test",
            "0.0.0.0",
        ])
        .await;
    stand.answers.give("rebound.test", &["1.1.1.1"]);
    for (authority, reason) in [
        ("good.test:80", None),
        ("GOOD.test.:443", None),
        ("good.test:8443", None),
        ("x.files.test:80", None),
        ("good.test:22", Some("host_not_allowed")),
        ("good.test:6379", Some("host_not_allowed")),
        ("evil.test:80", Some("host_not_allowed")),
        ("evil.test:443", Some("host_not_allowed")),
        ("files.test:80", Some("host_not_allowed")),
        ("xfiles.test:80", Some("host_not_allowed")),
        ("good.test.evil.test:80", Some("host_not_allowed")),
        ("127.0.0.1:80", Some("host_not_allowed")),
        ("[::1]:80", Some("host_not_allowed")),
        ("0.0.0.0:80", Some("address_not_allowed")),
        ("169.254.169.254:80", Some("metadata")),
        ("[::ffff:169.254.169.254]:80", Some("metadata")),
        ("metadata.google.internal:80", Some("metadata")),
        ("imds.test:80", Some("metadata")),
        ("2130706433:80", Some("malformed")),
        ("0x7f.1:80", Some("malformed")),
        ("good.test:0", Some("malformed")),
        ("good.test:65536", Some("malformed")),
        ("good.test:+80", Some("malformed")),
        ("good.test:080", Some("malformed")),
        ("user@good.test:80", Some("malformed")),
        ("good..test:80", Some("malformed")),
        ("good%2etest:80", Some("malformed")),
    ] {
        let before = upstream.received().len();
        let tunnelled = ask(sandbox.proxy, connect_to(authority)).await;
        let forwarded = ask(sandbox.proxy, get(authority, "/")).await;
        for answer in [tunnelled, forwarded] {
            assert_eq!(answer.reason(), reason, "{authority}: {answer:?}");
            match reason {
                None => assert_eq!(answer.status, 200, "{authority}"),
                Some(reason) => {
                    assert_eq!(answer.status, 403, "{authority}");
                    assert!(answer.head.contains("content-type: application/json\r\n"));
                    let error = answer.error();
                    assert_eq!(error["type"], "egress_denied");
                    assert_eq!(error["reason"], reason);
                    assert!(!error["message"].as_str().unwrap().is_empty());
                }
            }
        }
        if reason.is_some() {
            assert_eq!(upstream.received().len(), before, "{authority}");
        }
    }
}

#[tokio::test]
async fn a_refusal_names_the_destination_in_its_one_form() {
    let stand = Stand::start(hosts(&[])).await;
    let sandbox = stand.sandbox(&[]).await;
    let error = ask(sandbox.proxy, connect_to("EVIL.test.:8443"))
        .await
        .error();
    assert_eq!(error["host"], "evil.test");
    assert_eq!(error["port"], 8443);
    let error = ask(sandbox.proxy, connect_to("a b:1")).await.error();
    assert_eq!(error["host"], serde_json::Value::Null);
}

#[tokio::test]
async fn unrestricted_means_the_public_web_and_nothing_special() {
    let upstream = Upstream::answering(OK).await;
    let stand = stand_for(&upstream).await;
    let sandbox = stand
        .sandbox_with(EgressPolicy {
            unrestricted: true,
            allowed: Vec::new(),
        })
        .await;
    stand.answers.give("private.test", &["10.0.0.1"]);
    for (authority, reason) in [
        ("evil.test:80", None),
        ("evil.test:25", Some("host_not_allowed")),
        ("127.0.0.1:80", Some("address_not_allowed")),
        ("private.test:443", Some("address_not_allowed")),
        ("imds.test:80", Some("metadata")),
        ("unknown.test:80", Some("unresolved")),
    ] {
        let answer = ask(sandbox.proxy, get(authority, "/")).await;
        assert_eq!(answer.reason(), reason, "{authority}");
    }
    let unknown = ask(sandbox.proxy, connect_to("unknown.test:443")).await;
    assert_eq!(unknown.status, 502, "a name server may know it later");
}

#[tokio::test]
async fn a1_a7_a9_a_host_header_steers_nothing() {
    let good = Upstream::answering(OK).await;
    let evil = Upstream::answering(OK).await;
    let config = hosts(&[("good.test", good.address), ("evil.test", evil.address)]);
    let stand = Stand::start(config).await;
    // Both are allowed: the header alone must be what refuses.
    let sandbox = stand
        .sandbox(&["good.test", "evil.test", "good.test:8443"])
        .await;
    for (target, fields, status, reason) in [
        (
            "GET http://evil.test/",
            "Host: good.test",
            403,
            "host_mismatch",
        ),
        (
            "GET http://good.test/",
            "Host: evil.test",
            403,
            "host_mismatch",
        ),
        (
            "GET http://good.test/",
            "Host: good.test:8443",
            403,
            "host_mismatch",
        ),
        (
            "CONNECT evil.test:443",
            "Host: good.test:443",
            403,
            "host_mismatch",
        ),
        (
            "CONNECT good.test:443",
            "Host: good.test:8443",
            403,
            "host_mismatch",
        ),
        (
            "GET http://good.test/",
            "Host: good.test\r\nHost: evil.test",
            400,
            "missing_or_repeated_host",
        ),
        (
            "GET http://good.test/",
            "Host: good.test\r\nHost: good.test",
            400,
            "missing_or_repeated_host",
        ),
        (
            "GET http://good.test/",
            "X: y",
            400,
            "missing_or_repeated_host",
        ),
        (
            "CONNECT good.test:443",
            "X: y",
            400,
            "missing_or_repeated_host",
        ),
        (
            "GET http://good.test/",
            "Host: good.test\r\nX-Forwarded-Host: evil.test",
            400,
            "forwarded_host",
        ),
        (
            "GET http://good.test@evil.test/",
            "Host: evil.test",
            403,
            "malformed",
        ),
        (
            "GET http://evil.test\\@good.test/",
            "Host: good.test",
            403,
            "malformed",
        ),
        (
            "GET /http://evil.test/",
            "Host: good.test",
            400,
            "not_a_proxy_request",
        ),
        ("GET /", "Host: good.test", 400, "not_a_proxy_request"),
        (
            "GET https://good.test/",
            "Host: good.test",
            400,
            "unsupported_scheme",
        ),
    ] {
        let request = format!("{target} HTTP/1.1\r\n{fields}\r\n\r\n");
        let answer = ask(sandbox.proxy, &request).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (status, Some(reason)),
            "{request:?}"
        );
    }
    let old = ask(sandbox.proxy, "GET http://good.test/ HTTP/1.0\r\n\r\n").await;
    assert_eq!(old.reason(), Some("missing_or_repeated_host"));
    assert!(good.received().is_empty(), "{:?}", good.received());
    assert!(evil.received().is_empty(), "{:?}", evil.received());
}

#[tokio::test]
async fn a12_b19_a_relay_inside_the_sandbox_changes_no_verdict() {
    let upstream = Upstream::answering(OK).await;
    let stand = stand_for(&upstream).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let relayed = relay.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    let proxy = sandbox.proxy;
    tasks.spawn(async move {
        let mut pairs = JoinSet::new();
        while let Ok((mut near, _)) = relay.accept().await {
            pairs.spawn(async move {
                let mut far = TcpStream::connect(proxy).await.unwrap();
                let _ = copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    for request in [
        connect_to("evil.test:443"),
        connect_to("good.test:443"),
        get("evil.test", "/"),
        get("good.test", "/"),
    ] {
        let direct = ask(sandbox.proxy, &request).await;
        assert_eq!(ask(relayed, &request).await, direct, "{request:?}");
    }
}

#[tokio::test]
async fn b12_the_fields_of_a_connect_go_nowhere() {
    let upstream = Upstream::echo().await;
    let stand = stand_for(&upstream).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut client = Client::connect(sandbox.proxy).await;
    // Cut in the middle of the head, and with early bytes behind it.
    client
        .send("CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\nX: PLACE")
        .await;
    client
        .send("HOLDER\r\nProxy-Authorization: Basic PLACEHOLDER\r\n\r\nearly ")
        .await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    client.send("late").await;
    assert_eq!(client.take(10).await.unwrap(), b"early late");
    upstream.has_received("early late").await;
}

#[tokio::test]
async fn b21_c1_a_name_is_resolved_once_and_every_answer_is_judged() {
    let upstream = Upstream::answering(OK).await;
    let port = upstream.address.port();
    let mut config = hosts(&[]);
    config.allow_private = vec!["127.0.0.1".parse().unwrap()];
    let stand = Stand::start(config).await;
    let authority = format!("rebinds.test:{port}");
    let sandbox = stand.sandbox(&[&authority]).await;
    stand.answers.give("rebinds.test", &["127.0.0.1"]);
    stand.answers.give("rebinds.test", &["169.254.169.254"]);
    stand
        .answers
        .give("rebinds.test", &["127.0.0.1", "169.254.169.254"]);
    stand
        .answers
        .give("rebinds.test", &["127.0.0.1", "10.0.0.1"]);
    stand.answers.give("rebinds.test", &["::ffff:127.0.0.1"]);
    stand.answers.give("rebinds.test", &["127.0.0.2"]);
    for (lookups, reason) in [
        (1, None),
        (2, Some("metadata")),
        (3, Some("metadata")),
        (4, Some("address_not_allowed")),
        (5, None),
        (6, Some("address_not_allowed")),
    ] {
        let answer = ask(sandbox.proxy, get(&authority, "/")).await;
        assert_eq!(answer.reason(), reason, "look-up {lookups}");
        assert_eq!(stand.answers.asked().len(), lookups);
    }
    assert_eq!(upstream.received().len(), 2);
}

#[tokio::test]
async fn a_sandbox_has_its_own_policy_and_its_own_connections() {
    let upstream = Upstream::echo().await;
    let mut config = hosts(&[("good.test", upstream.address)]);
    config.max_connections = 2;
    let stand = Stand::start(config).await;
    let one = stand.sandbox(&["good.test"]).await;
    let other = stand.sandbox(&[]).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(one.proxy).await;
        client.send(connect_to("good.test:443")).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        clients.push(client);
    }
    let third = ask(one.proxy, connect_to("good.test:443")).await;
    assert_eq!(
        (third.status, third.reason()),
        (503, Some("too_many_connections"))
    );
    assert_eq!(third.error()["type"], "egress_unavailable");
    let others = ask(other.proxy, connect_to("good.test:443")).await;
    assert_eq!(others.reason(), Some("host_not_allowed"));

    // A place that is given back can be taken.
    drop(clients.pop());
    until("a free place", async || {
        ask(one.proxy, connect_to("good.test:443")).await.status == 200
    })
    .await;
    let list = stand.gate.list().await.unwrap();
    let counts = |id| {
        list.iter()
            .find(|status| status.sandbox_id == id)
            .unwrap()
            .counts
    };
    assert_eq!(counts(other.id).denied, 1);
    assert_eq!(counts(other.id).allowed, 0);
    assert_eq!(counts(one.id).allowed, 3);
}
