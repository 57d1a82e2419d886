//! WebSockets inside of a tunnel.

use astrabox_egress::BodyPlace;

use crate::support::OK;
use crate::support::client::Client;
use crate::support::credentials::{CANARY, grant, in_body, placeholder, stand_for};
use crate::support::secure::{ClientTls, H1, Root, Secure};
use crate::support::{Sandbox, Stand, soon, until};

const GRANTED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn upgrade() -> String {
    "GET /ws HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
     Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        .to_owned()
}

/// A frame of less than 64 KiB, as a client sends it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [9, 8, 7, 6];
    let mut frame = vec![first];
    match u8::try_from(payload.len()) {
        Ok(short) if short < 126 => frame.push(0x80 | short),
        _ => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    frame
}

/// Takes a frame that a client sent off the front: its first byte and its payload.
fn take_frame(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let short = bytes.get(1)? & 0x7f;
    let (length, start) = match short {
        126 => (
            usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?])),
            4,
        ),
        short => (usize::from(short), 2),
    };
    assert_eq!(bytes[1] & 0x80, 0x80, "a frame without a mask");
    if bytes.len() < start + 4 + length {
        return None;
    }
    let mask: Vec<u8> = bytes[start..start + 4].to_vec();
    let payload = bytes[start + 4..start + 4 + length].iter();
    let payload = payload
        .zip(mask.iter().cycle())
        .map(|(byte, mask)| byte ^ mask);
    let taken = (bytes[0], payload.collect());
    bytes.drain(..start + 4 + length);
    Some(taken)
}

struct Place {
    stand: Stand,
    sandbox: Sandbox,
    upstream: Secure,
    _root: Root,
}

impl Place {
    async fn new(answer: &'static str, websocket: bool, body: BodyPlace) -> Self {
        let root = Root::new();
        let upstream = Secure::start(
            &root,
            &["good.test"],
            &[H1],
            move |mut conversation| async move {
                conversation.head().await?;
                conversation.write(answer).await?;
                while conversation.more().await? > 0 {}
                Ok(())
            },
        )
        .await;
        let stand = stand_for(&root, &[("good.test", &upstream)]).await;
        let sandbox = stand.sandbox(&[]).await;
        let mut grant = in_body(grant("key", &["good.test"]), body);
        grant.places.websocket = websocket;
        stand.grant(&sandbox, &[grant], CANARY).await;
        Self {
            stand,
            sandbox,
            upstream,
            _root: root,
        }
    }

    async fn client(&self) -> Client<ClientTls> {
        let trusting = self.stand.trusting(&[H1]).await;
        trusting
            .client(self.sandbox.proxy, "good.test:443", "good.test")
            .await
    }

    /// What the upstream got behind the head.
    fn frames(&self) -> Vec<u8> {
        let raw = self.upstream.raw();
        let head = raw.windows(4).position(|part| part == b"\r\n\r\n");
        raw[head.map_or(raw.len(), |head| head + 4)..].to_vec()
    }
}

#[tokio::test]
async fn b26_a_value_is_put_into_text_messages_however_they_are_fragmented() {
    let place = Place::new(GRANTED, true, BodyPlace::Refuse).await;
    let mut client = place.client().await;
    client.send(upgrade()).await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let text = format!("{{\"d\":{{\"token\":\"{}\"}}}}", placeholder("key"));
    let (first, second) = text.as_bytes().split_at(30);
    client.send(frame(0x81, text.as_bytes())).await;
    // In two fragments, with a ping between them.
    client.send(frame(0x01, first)).await;
    client.send(frame(0x89, b"ping")).await;
    client.send(frame(0x80, second)).await;
    client.send(frame(0x82, &[0, 1, 2, 255])).await;
    client.send(frame(0x88, &[3, 232])).await;
    let closed = [3, 232];
    let mut got = Vec::new();
    until("the frames", async || {
        let mut bytes = place.frames();
        got.clear();
        while let Some(frame) = take_frame(&mut bytes) {
            got.push(frame);
        }
        got.last()
            .is_some_and(|(first, payload)| *first == 0x88 && payload[..] == closed)
    })
    .await;
    let value = text.replace(&placeholder("key"), CANARY).into_bytes();
    let mut messages: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut controls = Vec::new();
    for (first, payload) in got {
        match first & 0x0f {
            0 => messages.last_mut().unwrap().1.extend(payload),
            1 | 2 => messages.push((first & 0x0f, payload)),
            _ => controls.push((first, payload)),
        }
    }
    assert_eq!(
        messages,
        [(1, value.clone()), (1, value), (2, vec![0, 1, 2, 255])]
    );
    assert_eq!(
        controls,
        [(0x89, b"ping".to_vec()), (0x88, closed.to_vec())]
    );
    // Compression was not offered: frames have to be read.
    let asked = String::from_utf8_lossy(&place.upstream.raw()).to_lowercase();
    assert!(!asked.contains("permessage-deflate"));
    assert!(
        asked.contains("connection: upgrade\r\nupgrade: websocket\r\n"),
        "{asked}"
    );
}

#[tokio::test]
async fn b26_f1_a_placeholder_that_may_not_stand_in_a_message_ends_the_websocket() {
    let key = placeholder("key");
    let (first, second) = key.as_bytes().split_at(7);
    for (websocket, frames) in [
        (false, vec![frame(0x81, key.as_bytes())]),
        (false, vec![frame(0x01, first), frame(0x80, second)]),
        (true, vec![frame(0x82, key.as_bytes())]),
        (true, vec![frame(0x89, key.as_bytes())]),
        // What cannot be read: no mask, a compressed frame, a continuation of nothing.
        (true, vec![b"\x81\x01x".to_vec()]),
        (true, vec![frame(0xc1, b"x")]),
        (true, vec![frame(0x80, b"x")]),
    ] {
        let place = Place::new(GRANTED, websocket, BodyPlace::Refuse).await;
        let mut client = place.client().await;
        client.send(upgrade()).await;
        client.head().await.unwrap();
        for frame in &frames {
            client.send(frame).await;
        }
        let _ = soon("the end", client.rest()).await;
        let mut sent = place.frames();
        while let Some((_, payload)) = take_frame(&mut sent) {
            assert!(
                !payload.windows(7).any(|part| part == &key.as_bytes()[..7]),
                "{payload:?}"
            );
        }
        let events = place.stand.finish().await;
        let ended = events.iter().find(|event| {
            event.method.as_deref() == Some("GET") && event.duration_ms > 0
                || event.reason.starts_with("credential_")
                || event.reason == "websocket_frame"
        });
        let reason = ended.map(|event| event.reason.clone()).unwrap_or_default();
        assert!(
            reason == "credential_place" || reason == "websocket_frame",
            "{frames:?}: {events:?}"
        );
    }
}

#[tokio::test]
async fn d12_nothing_is_raw_before_the_upstream_has_granted_it_in_the_right_form() {
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n";
    let compressed = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
                      Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    let hidden = "GET /admin HTTP/1.1\r\nHost: good.test\r\n\r\n";
    for (answer, status, reason) in [
        (wrong, 502, Some("upstream_invalid")),
        (compressed, 502, Some("upstream_invalid")),
        (OK, 200, None),
    ] {
        let place = Place::new(answer, true, BodyPlace::Refuse).await;
        let mut client = place.client().await;
        // What follows at once is no part of a WebSocket that nobody granted.
        client.send(upgrade()).await;
        client.send(frame(0x81, b"early")).await;
        let got = client.answer().await.unwrap();
        assert_eq!((got.status, got.reason()), (status, reason), "{answer:?}");
        assert!(place.frames().is_empty(), "{answer:?}");
        assert!(!place.upstream.all().contains(hidden));
    }
}

#[tokio::test]
async fn a_websocket_is_raw_where_every_placeholder_passes() {
    let place = Place::new(GRANTED, false, BodyPlace::Pass).await;
    let mut client = place.client().await;
    client.send(upgrade()).await;
    client.head().await.unwrap();
    let raw = frame(0xc1, b"compressed, and none of our business");
    client.send(&raw).await;
    until("the frame as it was", async || place.frames() == raw).await;
    assert!(place.upstream.all().contains("permessage-deflate"));
}

#[tokio::test]
async fn h7_a_websocket_with_a_credential_ends_when_that_changes() {
    let place = Place::new(GRANTED, true, BodyPlace::Refuse).await;
    let mut client = place.client().await;
    client.send(upgrade()).await;
    client.head().await.unwrap();
    client.send(frame(0x81, b"hello")).await;
    until("the frame", async || !place.frames().is_empty()).await;
    let mut same = grant("key", &["good.test"]);
    same.places.websocket = true;
    let same = [same];
    place.stand.grant(&place.sandbox, &same, CANARY).await;
    client.send(frame(0x81, b"still there")).await;
    until("the next frame", async || place.frames().len() > 20).await;
    place
        .stand
        .grant(&place.sandbox, &same, "another value")
        .await;
    assert!(client.is_closed().await);
}
