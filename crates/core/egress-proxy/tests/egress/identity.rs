//! Who gets a credential: host, SNI, certificate, address and Host must all agree.

use tokio::io::AsyncWriteExt;

use astrabox_egress_proxy::AuditKind;

use crate::support::client::{Client, ask, connect_to, tunnel};
use crate::support::credentials::{CANARY, grant, placeholder, stand_for};
use crate::support::secure::{H1, H2, Root, Secure};
use crate::support::upstream::Upstream;
use crate::support::{OK, soon};

fn get(host: &str) -> String {
    format!(
        "GET /v1 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n",
        placeholder("key")
    )
}

#[tokio::test]
async fn a_credential_goes_to_its_host_and_the_rest_goes_as_it_came() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    // The policy allows nothing: the credential alone opens its destination.
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H2, H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    let request = format!(
        "POST /v1/x?a=%2F..%2F HTTP/1.1\r\nHost: Good.TEST:443\r\nAccept: */*\r\n\
         Authorization: Bearer {}\r\nProxy-Authorization: Basic y\r\nContent-Length: 3\r\n\r\n\0\u{1}x",
        placeholder("key")
    );
    client.send(request).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    client.send(get("good.test")).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    // One connection for both, and nothing but what was meant.
    assert_eq!(
        upstream.received(),
        [format!(
            "POST /v1/x?a=%2F..%2F HTTP/1.1\r\nhost: good.test\r\nAccept: */*\r\nAuthorization: Bearer {CANARY}\r\n\
             content-length: 3\r\n\r\n\0\u{1}xGET /v1 HTTP/1.1\r\nhost: good.test\r\n\
             Authorization: Bearer {CANARY}\r\n\r\n"
        )]
    );
}

#[tokio::test]
async fn a1_a2_a6_a7_a8_a9_what_a_request_says_of_its_host_must_be_the_tunnels() {
    let root = Root::new();
    let good = Secure::answering(&root, &["good.test"]).await;
    let evil = Secure::answering(&root, &["evil.test"]).await;
    let stand = stand_for(&root, &[("good.test", &good), ("evil.test", &evil)]).await;
    let sandbox = stand.sandbox(&["good.test", "evil.test"]).await;
    let grants = [
        grant("key", &["good.test", "good.test:8443"]),
        // Interception of the other host as well, so that its requests are read.
        grant("other", &["evil.test"]),
    ];
    stand.grant(&sandbox, &grants, CANARY).await;
    let trusting = stand.trusting(&[H1]).await;
    let key = placeholder("key");
    let with =
        |line: &str, fields: &str| format!("{line} HTTP/1.1\r\n{fields}X-Key: {key}\r\n\r\n");
    for (host, request, status, reason) in [
        // B01: the other host's certificate is its own, so only the Host header lies.
        (
            "evil.test",
            with("GET /", "Host: good.test\r\n"),
            403,
            "host_mismatch",
        ),
        (
            "good.test",
            with("GET /", "Host: evil.test\r\n"),
            403,
            "host_mismatch",
        ),
        (
            "good.test",
            with("GET /", "Host: good.test:8443\r\n"),
            403,
            "host_mismatch",
        ),
        (
            "good.test",
            with("GET /", "Host: good.test\r\nHost: good.test\r\n"),
            400,
            "missing_or_repeated_host",
        ),
        (
            "good.test",
            with("GET /", ""),
            400,
            "missing_or_repeated_host",
        ),
        (
            "good.test",
            with(
                "GET /",
                "Host: good.test\r\nX-Forwarded-Host: evil.test\r\n",
            ),
            400,
            "forwarded_host",
        ),
        (
            "good.test",
            with("GET https://evil.test/", "Host: good.test\r\n"),
            403,
            "host_mismatch",
        ),
        (
            "good.test",
            with("GET https://good.test/", "Host: evil.test\r\n"),
            403,
            "host_mismatch",
        ),
        (
            "good.test",
            with("GET http://good.test/", "Host: good.test\r\n"),
            400,
            "unsupported_scheme",
        ),
        (
            "good.test",
            with("CONNECT evil.test:443", "Host: evil.test:443\r\n"),
            400,
            "nested_connect",
        ),
        (
            "good.test",
            "GET / HTTP/1.0\r\n\r\n".to_owned(),
            400,
            "missing_or_repeated_host",
        ),
        (
            "good.test",
            with("GET *", "Host: good.test\r\n"),
            400,
            "malformed_request_line",
        ),
        (
            "good.test",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            400,
            "unsupported_version",
        ),
        (
            "good.test",
            with(
                "GET /",
                "Host: good.test\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n",
            ),
            400,
            "upgrade_not_supported",
        ),
    ] {
        let mut client = trusting
            .client(sandbox.proxy, &format!("{host}:443"), host)
            .await;
        client.send(&request).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(
            (answer.status, answer.reason()),
            (status, Some(reason)),
            "{request:?}"
        );
        assert!(client.is_closed().await, "{request:?}");
    }
    assert_eq!((good.all(), evil.all()), (String::new(), String::new()));

    // What says the same thing in another form is right.
    for target in ["https://good.test/v1", "https://GOOD.test:443/v1", "/v1"] {
        let mut client = trusting
            .client(sandbox.proxy, "good.test:443", "good.test")
            .await;
        client
            .send(with(&format!("GET {target}"), "Host: good.test:443\r\n"))
            .await;
        assert_eq!(client.answer().await.unwrap().status, 200, "{target}");
    }
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    client
        .send(with("GET /http://evil.test/", "Host: good.test\r\n"))
        .await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    let sent = format!("/v1 HTTP/1.1\r\nhost: good.test\r\nX-Key: {CANARY}\r\n\r\n");
    assert_eq!(good.all().matches(&*sent).count(), 3);
    assert!(
        good.all()
            .contains("GET /http://evil.test/ HTTP/1.1\r\nhost: good.test\r\n")
    );
    assert_eq!(evil.all(), "");
}

#[tokio::test]
async fn a3_a5_a6_b10_b12_tls_must_name_the_tunnels_host() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test", "evil.test"]).await;
    let known = [("good.test", &upstream), ("evil.test", &upstream)];
    let stand = stand_for(&root, &known).await;
    let sandbox = stand.sandbox(&["good.test", "evil.test"]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let other = trusting.connect(sandbox.proxy, "good.test:443", "evil.test");
    assert!(other.await.is_err());
    let nameless = stand.trusting(&[H1]).await.without_sni();
    let none = nameless.connect(sandbox.proxy, "good.test:443", "good.test");
    assert!(none.await.is_err());
    assert_eq!(upstream.all(), "");
    let events = stand.finish().await;
    let denied: Vec<_> = events
        .iter()
        .filter(|event| event.event == AuditKind::Deny)
        .map(|event| (event.host.as_deref().unwrap(), &*event.reason))
        .collect();
    assert_eq!(
        denied,
        [("good.test", "sni_mismatch"), ("good.test", "sni_missing")]
    );
}

#[tokio::test]
async fn a5_a_hello_in_pieces_is_read_whole() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    // The relay sends one byte at a time.
    let (near, far) = tokio::io::duplex(64 * 1024);
    let mut plain = tunnel(sandbox.proxy, "good.test:443").await;
    let relay = async move {
        let (mut far_read, mut far_write) = tokio::io::split(far);
        let (mut read, mut write) = plain.stream.split();
        let up = async {
            let mut byte = [0];
            while tokio::io::AsyncReadExt::read(&mut far_read, &mut byte).await? > 0 {
                write.write_all(&byte).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let _ = tokio::join!(up, tokio::io::copy(&mut read, &mut far_write));
    };
    let mut relays = tokio::task::JoinSet::new();
    relays.spawn(relay);
    let trusting = stand.trusting(&[H1]).await;
    let mut client = Client::over(trusting.over(near, "good.test").await);
    client.send(get("good.test")).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    assert!(upstream.all().contains(CANARY));
}

#[tokio::test]
async fn a14_an_upstream_that_cannot_prove_its_name_gets_no_byte() {
    let root = Root::new();
    let stranger = Root::new();
    let right = Secure::answering(&root, &["good.test"]).await;
    let wrong_name = Secure::answering(&root, &["evil.test"]).await;
    let unknown_root = Secure::answering(&stranger, &["unknown.test"]).await;
    let plain = Upstream::start(|mut conversation| async move {
        conversation.more().await?;
        conversation
            .write("HTTP/1.1 400 Bad Request\r\n\r\n")
            .await?;
        conversation.drain().await
    })
    .await;
    let known = [
        ("good.test", &right),
        ("other.test", &wrong_name),
        ("unknown.test", &unknown_root),
    ];
    let mut config = stand_for(&root, &known).await.config.egress.clone();
    let plain_address = plain.address.to_string();
    config
        .static_hosts
        .insert("plain.test", &plain_address)
        .unwrap();
    let stand = crate::support::Stand::start(config).await;
    let sandbox = stand.sandbox(&[]).await;
    let names = ["good.test", "other.test", "unknown.test", "plain.test"];
    stand.grant(&sandbox, &[grant("key", &names)], CANARY).await;
    for (protocols, host, reason) in [
        (&[H1][..], "other.test", "upstream_certificate"),
        (&[H1], "unknown.test", "upstream_certificate"),
        (&[], "unknown.test", "upstream_certificate"),
        (&[H1], "plain.test", "upstream_tls_failed"),
    ] {
        let trusting = stand.trusting(protocols).await;
        let mut client = trusting
            .client(sandbox.proxy, &format!("{host}:443"), host)
            .await;
        client.send(get(host)).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(
            (answer.status, answer.reason()),
            (502, Some(reason)),
            "{host}"
        );
    }
    assert_eq!(wrong_name.all() + &unknown_root.all(), "");
    // It got a client hello, and nothing that it could read.
    assert!(!plain.received().concat().contains(CANARY));
}

#[tokio::test]
async fn nothing_but_tls_is_spoken_in_a_tunnel_to_a_credentials_host() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let mut client = tunnel(sandbox.proxy, "good.test:443").await;
    client.send(get("good.test")).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.reason()), (403, Some("not_tls")));
    assert!(client.is_closed().await);
    let mut client = tunnel(sandbox.proxy, "good.test:443").await;
    client.send(b"\x16\x03\x01\x00\x05hello").await;
    let _ = soon("the end", client.rest()).await;
    assert_eq!(upstream.all(), "");
}

#[tokio::test]
async fn b12_a_placeholder_in_the_head_of_a_connect_request_is_refused() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let key = placeholder("key");
    let head = "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n";
    for field in [
        format!("X: {key}"),
        format!("Proxy-Authorization: Bearer {key}"),
        format!("X-{key}: y"),
    ] {
        let answer = ask(sandbox.proxy, format!("{head}{field}\r\n\r\n")).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (403, Some("placeholder_in_connect")),
            "{field}"
        );
    }
    // Also in two pieces.
    let mut client = Client::connect(sandbox.proxy).await;
    let (first, second) = key.split_at(9);
    client.send(format!("{head}X: {first}")).await;
    tokio::task::yield_now().await;
    client.send(format!("{second}\r\n\r\n")).await;
    let answer = client.answer().await.unwrap();
    assert_eq!(answer.reason(), Some("placeholder_in_connect"));
    assert_eq!(upstream.received().len(), 0);
    let answer = ask(sandbox.proxy, connect_to("good.test:443")).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn b05_addresses_have_certificates_too() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["127.0.0.1"]).await;
    let mut config = stand_for(&root, &[]).await.config.egress.clone();
    config.allow_private = vec!["127.0.0.1".parse().unwrap()];
    let stand = crate::support::Stand::start(config).await;
    let sandbox = stand.sandbox(&[]).await;
    let authority = upstream.address.to_string();
    stand
        .grant(&sandbox, &[grant("key", &[&authority])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, &authority, "127.0.0.1")
        .await;
    client.send(get(&authority)).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    let named = format!("host: {authority}\r\nAuthorization: Bearer {CANARY}\r\n");
    assert!(upstream.all().contains(&named), "{}", upstream.all());
}

#[tokio::test]
async fn a_host_without_a_credential_is_tunnelled_unseen() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["other.test"]).await;
    let stand = stand_for(&root, &[("other.test", &upstream)]).await;
    let sandbox = stand.sandbox(&["other.test"]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    // The certificate is the upstream's own.
    let pem = std::fs::read_to_string(root.file()).unwrap();
    let trusting = crate::support::secure::Trusting::new(&pem, &[H1]);
    let mut client = trusting
        .client(sandbox.proxy, "other.test:443", "other.test")
        .await;
    client.send(get("other.test")).await;
    assert_eq!(client.answer().await.unwrap().body, b"ok");
    assert!(upstream.all().contains(&placeholder("key")));
}

#[tokio::test]
async fn a4_c1_an_intercepted_host_is_resolved_once_also_when_it_is_reached_anew() {
    let root = Root::new();
    let upstream = Secure::start(
        &root,
        &["rebound.test"],
        &[H1],
        |mut conversation| async move {
            conversation.request().await?;
            let close = OK.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
            conversation.write(close).await?;
            conversation.drain().await
        },
    )
    .await;
    let mut config = stand_for(&root, &[]).await.config.egress.clone();
    config.allow_private = vec!["127.0.0.1".parse().unwrap()];
    let stand = crate::support::Stand::start(config).await;
    stand.answers.give("rebound.test", &["127.0.0.1"]);
    stand.answers.give("rebound.test", &["169.254.169.254"]);
    let authority = format!("rebound.test:{}", upstream.address.port());
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &[&authority])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, &authority, "rebound.test")
        .await;
    for _ in 0..3 {
        client.send(get(&authority)).await;
        assert_eq!(client.answer().await.unwrap().body, b"ok");
    }
    assert_eq!(upstream.received().len(), 3);
    assert_eq!(stand.answers.asked(), ["rebound.test"]);
    // Another tunnel asks again, and gets nowhere.
    let denied = ask(sandbox.proxy, connect_to(&authority)).await;
    assert_eq!(denied.reason(), Some("metadata"));
}
