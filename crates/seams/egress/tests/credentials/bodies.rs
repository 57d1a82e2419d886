//! Placeholders in bodies and messages.

use astrabox_egress::{BodyPlace, BodyRewriter, Place, RefusalReason, RequestRules, Surface};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::support::{Lent, POST, Request, grant, placeholder, plan, stolen};

fn rules() -> RequestRules {
    POST.rules(&plan(vec![
        grant("vcrd_a", "api.test"),
        grant("vcrd_b", "api.test"),
    ]))
}

fn values() -> Lent {
    Lent::of(&[("vcrd_a", "s3cret"), ("vcrd_b", "other")])
}

/// What becomes of a body that comes in pieces of this size.
fn rewrite(mut rewriter: BodyRewriter, body: &[u8], size: usize) -> Result<Vec<u8>, RefusalReason> {
    let mut out: Vec<Bytes> = Vec::new();
    let body = Bytes::copy_from_slice(body);
    for at in (0..body.len()).step_by(size) {
        let piece = body.slice(at..body.len().min(at + size));
        rewriter
            .push(piece, &values(), &mut out)
            .map_err(|refusal| refusal.reason)?;
    }
    rewriter
        .finish(&mut out)
        .map_err(|refusal| refusal.reason)?;
    assert!(out.iter().all(|piece| !piece.is_empty()));
    Ok(out.concat())
}

#[test]
fn eg19_a_body_is_the_same_however_it_is_cut() {
    let (a, b) = (placeholder("vcrd_a"), placeholder("vcrd_b"));
    for (body, wanted) in [
        (String::new(), String::new()),
        ("a".into(), "a".into()),
        (
            "nothing here, though astrabox-cre comes near".into(),
            String::new(),
        ),
        (a.to_string(), "s3cret".into()),
        (
            format!("{{\"key\":\"{a}\"}}"),
            "{\"key\":\"s3cret\"}".into(),
        ),
        (
            format!("{a}{b}{a}"),
            "s3crethers3cret".replace("her", "other"),
        ),
        (
            format!("astra{a}astrabox-{b}astrabox-cred"),
            "astras3cretastrabox-otherastrabox-cred".into(),
        ),
        (
            format!("aaastrastrabox-crastrabox{a}"),
            "aaastrastrabox-crastraboxs3cret".into(),
        ),
        (
            format!("{a}tail that is text"),
            "s3crettail that is text".into(),
        ),
        (
            format!("x={a}&y=%20&z=\\u0041&#38;"),
            "x=s3cret&y=%20&z=\\u0041&#38;".into(),
        ),
        (
            format!("--b\r\nContent-Disposition: form-data; name=k\r\n\r\n{a}\r\n--b--\r\n"),
            "--b\r\nContent-Disposition: form-data; name=k\r\n\r\ns3cret\r\n--b--\r\n".into(),
        ),
    ] {
        let wanted = if wanted.is_empty() {
            body.clone()
        } else {
            wanted
        };
        for size in 1..=body.len().max(1) {
            let found = rewrite(rules().rewriter(Surface::Body), body.as_bytes(), size);
            let found = found.map(|bytes| String::from_utf8(bytes).expect("it is text"));
            assert_eq!(found, Ok(wanted.clone()), "{body} by {size}");
        }
    }
}

#[test]
fn eg13_eg16_bodies_are_refused_however_they_are_cut() {
    use RefusalReason::{Encoded, Unknown};
    let own = placeholder("vcrd_a").to_string();
    let wide = |bytes: fn(u16) -> [u8; 2]| own.encode_utf16().flat_map(bytes).collect::<Vec<_>>();
    let long: String = own
        .bytes()
        .map(|byte| format!("&#x000000{byte:x};"))
        .collect();
    for (what, body, wanted) in [
        (
            "stolen",
            format!("k={}", stolen("vcrd_a")).into_bytes(),
            Unknown,
        ),
        (
            "cut short",
            own.as_bytes()[..own.len() - 1].to_vec(),
            Unknown,
        ),
        (
            "no digits",
            b"x astrabox-cred- and more than enough text behind it".to_vec(),
            Unknown,
        ),
        ("the marker alone", b"x astrabox-cred-".to_vec(), Unknown),
        ("percent", own.replace('-', "%2d").into_bytes(), Encoded),
        (
            "json",
            own.replacen('a', "\\u0061", 1).into_bytes(),
            Encoded,
        ),
        ("html", long.into_bytes(), Encoded),
        ("little endian", wide(u16::to_le_bytes), Encoded),
        ("big endian", wide(u16::to_be_bytes), Encoded),
        (
            "big endian to the end",
            "astrabox-cred-"
                .encode_utf16()
                .flat_map(u16::to_be_bytes)
                .collect(),
            Encoded,
        ),
        (
            "base64",
            STANDARD.encode(format!("xy{own}")).into_bytes(),
            Encoded,
        ),
    ] {
        for size in 1..=body.len() {
            let found = rewrite(rules().rewriter(Surface::Body), &body, size);
            assert_eq!(found, Err(wanted), "{what} by {size}");
        }
        let mut padded = vec![b'.'; 5000];
        padded.extend_from_slice(&body);
        for size in [1, 7, 64, 4999, 5001, 5010, 6000] {
            let found = rewrite(rules().rewriter(Surface::Body), &padded, size);
            assert_eq!(found, Err(wanted), "{what} behind much by {size}");
        }
    }
}

#[test]
fn eg19_bytes_without_a_placeholder_are_not_copied() {
    let text: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let body = Bytes::from(text);
    let mut rewriter = rules().rewriter(Surface::Body);
    let mut out: Vec<Bytes> = Vec::new();
    rewriter
        .push(body.clone(), &values(), &mut out)
        .expect("it holds no placeholder");
    rewriter.finish(&mut out).expect("it holds none");
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].as_ptr(), body.as_ptr());
    assert_eq!(out[0].len(), body.len());
    assert!(rewriter.used().is_empty());
}

#[test]
fn eg19_only_what_could_begin_a_placeholder_is_held_back() {
    let own = placeholder("vcrd_a").to_string();
    for (sent, out_at_once) in [
        ("plain", 5),
        ("plain a", 6),
        ("plain astra", 6),
        ("plain astrabox-cred", 6),
        ("plain astrabox-cred-", 6),
        ("plain astrab!", 13),
        (&own[..own.len() - 1], 0),
    ] {
        let mut rewriter = rules().rewriter(Surface::Body);
        let mut out: Vec<Bytes> = Vec::new();
        let chunk = Bytes::copy_from_slice(sent.as_bytes());
        rewriter
            .push(chunk, &values(), &mut out)
            .expect("it is not whole");
        assert_eq!(out.concat().len(), out_at_once, "{sent}");
    }
}

#[test]
fn eg15_a_body_or_message_takes_the_credentials_of_its_kind() {
    let own = placeholder("vcrd_a").to_string();
    for (what, body, websocket, surface, wanted) in [
        (
            "body",
            BodyPlace::Replace,
            false,
            Surface::Body,
            Ok(b"s3cret".to_vec()),
        ),
        (
            "no body",
            BodyPlace::Refuse,
            true,
            Surface::Body,
            Err(RefusalReason::Place),
        ),
        (
            "message",
            BodyPlace::Refuse,
            true,
            Surface::Message,
            Ok(b"s3cret".to_vec()),
        ),
        (
            "no message",
            BodyPlace::Replace,
            false,
            Surface::Message,
            Err(RefusalReason::Place),
        ),
        (
            "binary",
            BodyPlace::Replace,
            true,
            Surface::BinaryMessage,
            Err(RefusalReason::Place),
        ),
    ] {
        let mut grant = grant("vcrd_a", "api.test");
        grant.places.body = body;
        grant.places.websocket = websocket;
        let rules = POST.rules(&plan(vec![grant]));
        // B26: one message, in fragments.
        for size in [1, 9, 100] {
            let found = rewrite(rules.rewriter(surface), own.as_bytes(), size);
            assert_eq!(found, wanted, "{what} by {size}");
        }
    }
}

#[test]
fn eg13_a_body_to_a_foreign_host_is_refused_by_name() {
    let rules = Request {
        host: "evil.test",
        ..POST
    }
    .rules(&plan(vec![grant("vcrd_a", "api.test")]));
    let mut rewriter = rules.rewriter(Surface::Body);
    let mut out: Vec<Bytes> = Vec::new();
    let body = format!("prompt: {}", placeholder("vcrd_a"));
    let refusal = rewriter
        .push(body.into(), &values(), &mut out)
        .expect_err("the host is foreign");
    assert_eq!(refusal.reason, RefusalReason::Destination);
    assert_eq!(refusal.place, Place::Body);
    assert_eq!(refusal.credential_id.as_deref(), Some("vcrd_a"));
}

#[test]
fn eg18_a_value_in_a_body_is_not_looked_at_again() {
    let own = placeholder("vcrd_a").to_string();
    let other = placeholder("vcrd_b").to_string();
    let values = Lent::of(&[("vcrd_a", &other), ("vcrd_b", "never")]);
    let mut rewriter = rules().rewriter(Surface::Body);
    let mut out: Vec<Bytes> = Vec::new();
    for byte in own.bytes() {
        rewriter
            .push(vec![byte].into(), &values, &mut out)
            .expect("it may be used");
    }
    rewriter.finish(&mut out).expect("it is whole");
    assert_eq!(out.concat(), other.as_bytes());
    assert_eq!(rewriter.used(), ["vcrd_a"]);
}
