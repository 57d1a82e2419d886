//! The way back: an answer is the upstream's, also when it repeats what it was shown. What the sandbox sent holds
//! nothing but the placeholder; what comes back is between the credential's owner and the hosts that they named.

use crate::support::Stand;
use crate::support::client::{Answer, Client};
use crate::support::credentials::{CANARY, grant, placeholder, stand_for};
use crate::support::secure::{ClientTls, H1, Root, Secure};

/// What a TLS client of the sandbox says, and what it hears.
async fn answered(stand: &Stand, request: &str) -> (Answer, Client<ClientTls>) {
    let sandbox = stand.sandbox(&[]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    client.send(request).await;
    let answer = client.answer().await.unwrap();
    (answer, client)
}

fn request(method: &str) -> String {
    let key = placeholder("key");
    format!("{method} /echo HTTP/1.1\r\nHost: good.test\r\nX-Key: {key}\r\n\r\n")
}

/// CRC-32 as gzip has it (RFC 1952, section 8).
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    };
    !bytes.iter().fold(!0, step)
}

/// A gzip file of one stored block.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    [
        b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01".as_slice(),
        &length.to_le_bytes(),
        &(!length).to_le_bytes(),
        bytes,
        &crc(bytes).to_le_bytes(),
        &u32::from(length).to_le_bytes(),
    ]
    .concat()
}

#[tokio::test]
async fn g1_a_compressed_echo_comes_back_as_the_same_bytes() {
    let root = Root::new();
    let body = gzip(format!("{{\"x-key\": \"{CANARY}\", \"seen\": true}}").as_bytes());
    let told = body.clone();
    let upstream = Secure::start(&root, &["good.test"], &[H1], move |mut conversation| {
        let body = told.clone();
        async move {
            assert!(conversation.request().await?.contains(CANARY));
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            conversation.write(head).await?;
            // The value is cut in the middle.
            let (one, other) = body.split_at(body.len() / 2);
            conversation.write(one).await?;
            conversation.write(other).await?;
            conversation.drain().await
        }
    })
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let (answer, _) = answered(&stand, &request("GET")).await;
    assert!(
        answer.head.contains("content-encoding: gzip\r\n"),
        "{answer:?}"
    );
    assert_eq!(answer.body, body);
}

#[tokio::test]
async fn g1_an_echo_in_fields_chunks_and_trailers_is_the_upstreams_own() {
    let root = Root::new();
    let upstream = Secure::start(
        &root,
        &["good.test"],
        &[H1],
        |mut conversation| async move {
            conversation.request().await?;
            let (one, other) = CANARY.split_at(7);
            let head = format!(
                "HTTP/1.1 500 Oops\r\nset-cookie: k={CANARY}\r\ntransfer-encoding: chunked\r\n\r\n"
            );
            conversation.write(head).await?;
            for part in [one, other] {
                let chunk = format!("{:x}\r\n{part}\r\n", part.len());
                conversation.write(chunk).await?;
            }
            let end = format!("0\r\nx-echo: {CANARY}\r\n\r\n");
            conversation.write(end).await?;
            conversation.drain().await
        },
    )
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let last = request("GET").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let (answer, mut client) = answered(&stand, &last).await;
    assert_eq!(answer.status, 500);
    assert!(answer.head.contains(&format!("set-cookie: k={CANARY}\r\n")));
    assert_eq!(answer.body, CANARY.as_bytes());
    // Trailers end at the role.
    assert_eq!(client.rest().await.unwrap_or_default(), b"");
    // Nothing of the answer is written down.
    let log = stand.finish_raw().await;
    assert!(!log.contains(CANARY), "{log}");
}

#[tokio::test]
async fn g2_trace_is_answered_by_the_upstream_that_was_allowed_and_by_nobody_else() {
    let root = Root::new();
    let upstream = Secure::start(
        &root,
        &["good.test"],
        &[H1],
        |mut conversation| async move {
            let seen = conversation.request().await?;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: message/http\r\ncontent-length: {}\r\n\r\n",
                seen.len()
            );
            conversation.write(head).await?;
            conversation.write(seen).await?;
            conversation.drain().await
        },
    )
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let (answer, _) = answered(&stand, &request("TRACE")).await;
    let echoed = String::from_utf8_lossy(&answer.body).into_owned();
    let wanted = format!("TRACE /echo HTTP/1.1\r\nhost: good.test\r\nX-Key: {CANARY}\r\n\r\n");
    assert_eq!(echoed, wanted);
    // An owner who wants none of it names the methods.
    let sandbox = stand.sandbox(&[]).await;
    let mut reads = grant("key", &["good.test"]);
    reads.methods = vec!["GET".to_owned()];
    stand.grant(&sandbox, &[reads], CANARY).await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    client.send(request("TRACE")).await;
    let refused = client.answer().await.unwrap();
    assert_eq!(
        (refused.status, refused.reason()),
        (403, Some("credential_method"))
    );
    assert_eq!(upstream.all(), wanted);
}
