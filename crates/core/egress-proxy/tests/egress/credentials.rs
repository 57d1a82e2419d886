//! The life of credentials: set, rotated, taken away, kept over restarts, gone when nobody answers for them.

use std::net::TcpListener;
use std::time::Duration;

use astrabox_sandbox::{EgressCredentials, EgressGate};

use crate::support::client::{Client, ask, connect_to, tunnel};
use crate::support::credentials::{CANARY, grant, placeholder, stand_for};
use crate::support::secure::{ClientTls, H1, Root, Secure, Trusting};
use crate::support::{Sandbox, Stand, policy, until};

const OTHER: &str = "canary-of-the-next-value";

fn get() -> String {
    let key = placeholder("key");
    format!("GET / HTTP/1.1\r\nHost: good.test\r\nX: {key}\r\n\r\n")
}

async fn connect(trusting: &Trusting, sandbox: &Sandbox) -> Client<ClientTls> {
    trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await
}

async fn stand() -> (Root, Secure, Stand) {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    (root, upstream, stand)
}

#[tokio::test]
async fn gt5_h7_a_rotated_value_holds_for_the_next_request_on_an_open_connection() {
    let (_root, upstream, stand) = stand().await;
    let sandbox = stand.sandbox(&[]).await;
    let grants = [grant("key", &["good.test"])];
    stand.grant(&sandbox, &grants, CANARY).await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = connect(&trusting, &sandbox).await;
    client.send(get()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    stand.grant(&sandbox, &grants, OTHER).await;
    client.send(get()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    // Taken out of the plan, while the policy lets the host be reached still.
    stand
        .gate
        .update(sandbox.id, policy(&["good.test"]))
        .await
        .unwrap();
    stand.grant(&sandbox, &[], "").await;
    client.send(get()).await;
    let answer = client.answer().await.unwrap();
    assert_eq!(
        (answer.status, answer.reason()),
        (403, Some("credential_unknown"))
    );
    let sent = |value: &str| format!("GET / HTTP/1.1\r\nhost: good.test\r\nX: {value}\r\n\r\n");
    assert_eq!(upstream.received(), [sent(CANARY) + &sent(OTHER)]);
}

#[tokio::test]
async fn gt5_what_only_the_old_plan_allowed_is_closed_and_what_ran_unseen_too() {
    let (_root, _upstream, stand) = stand().await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = connect(&trusting, &sandbox).await;
    client.send(get()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    stand.grant(&sandbox, &[], "").await;
    assert!(client.is_closed().await);
    let denied = ask(sandbox.proxy, connect_to("good.test:443")).await;
    assert_eq!(denied.reason(), Some("host_not_allowed"));

    // A tunnel that nobody looks into must not stay when there is something to look for.
    stand
        .gate
        .update(sandbox.id, policy(&["good.test"]))
        .await
        .unwrap();
    let mut unseen = tunnel(sandbox.proxy, "good.test:443").await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    assert!(unseen.is_closed().await);
}

#[tokio::test]
async fn a_credential_does_not_open_what_is_never_reachable() {
    let (_root, _upstream, stand) = stand().await;
    let sandbox = stand.sandbox(&[]).await;
    let hosts = [
        "169.254.169.254",
        "metadata.google.internal",
        "10.0.0.1",
        "rebound.test",
    ];
    stand.grant(&sandbox, &[grant("key", &hosts)], CANARY).await;
    stand
        .answers
        .give("rebound.test", &["1.1.1.1", "169.254.169.254"]);
    for (authority, reason) in [
        ("169.254.169.254:443", "metadata"),
        ("metadata.google.internal:443", "metadata"),
        ("10.0.0.1:443", "address_not_allowed"),
        ("rebound.test:443", "metadata"),
        ("good.test:443", "host_not_allowed"),
    ] {
        let answer = ask(sandbox.proxy, connect_to(authority)).await;
        assert_eq!(answer.reason(), Some(reason), "{authority}");
    }
}

#[tokio::test]
async fn gt5_credentials_come_before_the_opening_and_outlive_another_role() {
    let (_root, upstream, stand) = stand().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sandbox = Sandbox {
        id: astrabox_types::SandboxId::new(),
        session: astrabox_types::SessionId::new(),
        proxy: listener.local_addr().unwrap(),
    };
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    stand.open(&sandbox, policy(&[]), listener).await;
    let trusting = stand.trusting(&[H1]).await;
    let authority = stand.gate.authority().await.unwrap();
    let mut client = connect(&trusting, &sandbox).await;
    client.send(get()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);

    let stand = stand.restart_role().await;
    until("the sandbox to be open again", async || {
        stand.gate.list().await.is_ok_and(|list| list.len() == 1)
    })
    .await;
    // Clients that trusted the role before trust the next one.
    assert_eq!(stand.gate.authority().await.unwrap(), authority);
    let mut client = connect(&trusting, &sandbox).await;
    client.send(get()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(upstream.all().matches(CANARY).count(), 2);
}

#[tokio::test]
async fn gt6_a_closed_sandbox_has_no_credentials_any_more() {
    let (_root, _upstream, stand) = stand().await;
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    stand.gate.close(sandbox.id).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let again = Sandbox {
        proxy: listener.local_addr().unwrap(),
        ..sandbox
    };
    stand.open(&again, policy(&[]), listener).await;
    let denied = ask(again.proxy, connect_to("good.test:443")).await;
    assert_eq!(denied.reason(), Some("host_not_allowed"));
}

#[tokio::test]
async fn h8_credentials_end_with_the_grace_of_an_orphan() {
    let (root, upstream, stand) = stand().await;
    let mut config = stand.config.egress.clone();
    config.orphan_grace = Duration::from_millis(300);
    let stand = Stand::start(config).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = connect(&trusting, &sandbox).await;
    client.send(get()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    stand.gate.disconnect().await;
    assert!(client.is_closed().await);
    let denied = ask(sandbox.proxy, connect_to("good.test:443")).await;
    assert_eq!(denied.reason(), Some("no_plan"));
    assert_eq!(upstream.all().matches(CANARY).count(), 1);
    drop(root);
}

#[tokio::test]
async fn b30_i1_i3_no_value_is_in_the_audit_log_in_a_file_or_in_an_answer() {
    let (_root, upstream, stand) = stand().await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = connect(&trusting, &sandbox).await;
    let request = get().replace("GET /", "GET /private/path?query=private");
    client.send(&request).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    client
        .send(request.replace("Host: good.test", "Host: evil.test"))
        .await;
    let refused = client.answer().await.unwrap();
    let told = refused.head + &String::from_utf8_lossy(&refused.body);
    assert!(upstream.all().contains(CANARY));
    let (log, folder) = stand.finish_with_files().await;
    for text in [&told, &log] {
        for secret in [CANARY, "private", &placeholder("key")] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    assert!(log.contains(r#""credentials":["key"]"#), "{log}");
    let mut files = 0;
    for part in ["run", "audit", "authority"] {
        for file in std::fs::read_dir(folder.path().join(part)).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
            let found = bytes
                .windows(CANARY.len())
                .any(|bytes| bytes == CANARY.as_bytes());
            assert!(!found, "in {part}");
            files += 1;
        }
    }
    assert!(files >= 4, "the role's files were not looked at");
}

#[tokio::test]
async fn eg25_a_credential_for_every_host_goes_where_the_policy_leads_and_opens_nothing() {
    let root = Root::new();
    let good = Secure::answering(&root, &["good.test"]).await;
    let other = Secure::answering(&root, &["other.test"]).await;
    let stand = stand_for(&root, &[("good.test", &good), ("other.test", &other)]).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut everywhere = grant("key", &[]);
    everywhere.anywhere = true;
    stand.grant(&sandbox, &[everywhere], CANARY).await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = connect(&trusting, &sandbox).await;
    client.send(get()).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert!(good.all().contains(CANARY));
    let denied = ask(sandbox.proxy, connect_to("other.test:443")).await;
    assert_eq!(denied.reason(), Some("host_not_allowed"));
    // What is allowed later is reached with the value as well, without another word about the credential.
    let wider = policy(&["good.test", "other.test"]);
    stand.gate.update(sandbox.id, wider).await.unwrap();
    let mut client = trusting
        .client(sandbox.proxy, "other.test:443", "other.test")
        .await;
    client.send(get().replace("good.test", "other.test")).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert!(other.all().contains(CANARY));
}
