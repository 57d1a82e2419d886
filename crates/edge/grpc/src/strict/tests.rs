use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use astrabox_proto::v1;
use http_body::Frame;
use prost::Message as _;
use prost::encoding::{encode_key, encode_varint};
use prost_reflect::DescriptorPool;

use super::*;

/// A body that comes in the given pieces.
struct Pieces(VecDeque<Bytes>);

impl Pieces {
    fn of(pieces: &[&[u8]]) -> Self {
        Self(
            pieces
                .iter()
                .map(|piece| Bytes::copy_from_slice(piece))
                .collect(),
        )
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

fn framed(flag: u8, length: u32, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flag];
    bytes.extend(length.to_be_bytes());
    bytes.extend(message);
    bytes
}

async fn refusal(pieces: &[&[u8]]) -> Error {
    read_message(Pieces::of(pieces))
        .await
        .expect_err("it is refused")
}

#[tokio::test]
async fn one_plain_frame_is_taken_however_it_is_cut() {
    let bytes = framed(0, 3, b"abc");
    for at in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(at);
        let message = read_message(Pieces::of(&[head, tail]))
            .await
            .expect("it is whole");
        assert_eq!(message, "abc");
        assert_eq!(frame(&message), bytes);
    }
    assert_eq!(
        read_message(Pieces::of(&[&framed(0, 0, b"")]))
            .await
            .expect("it is whole"),
        ""
    );
}

#[tokio::test]
async fn a_broken_compressed_missing_or_second_frame_is_refused() {
    let two = [framed(0, 1, b"a"), framed(0, 1, b"b")].concat();
    for (bytes, text) in [
        (&b""[..], "no message"),
        (b"\0\0\0", "no message"),
        (&framed(0, 4, b"abc"), "ended before"),
        (&framed(1, 3, b"abc"), "compressed"),
        (&framed(2, 3, b"abc"), "compressed"),
        (&framed(0, 2, b"abc"), "more than one"),
        (&two, "more than one"),
    ] {
        let error = refusal(&[bytes]).await;
        assert_eq!(error.reason(), ErrorReason::InvalidField);
        assert!(error.to_string().contains(text), "{bytes:?}: {error}");
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_by_its_announcement_and_by_its_bytes() {
    let limit = u32::try_from(MAX_REQUEST_BYTES).expect("it is small");
    assert_eq!(
        refusal(&[&framed(0, limit + 1, b"")]).await.reason(),
        ErrorReason::TooLarge
    );
    let big = vec![0; MAX_REQUEST_BYTES];
    let exact = read_message(Pieces::of(&[&framed(0, limit, b""), &big]))
        .await
        .expect("it is not over");
    assert_eq!(exact.len(), MAX_REQUEST_BYTES);
    assert_eq!(
        refusal(&[&framed(0, limit, b""), &big, b"x"])
            .await
            .reason(),
        ErrorReason::TooLarge
    );
}

fn descriptor(name: &str) -> MessageDescriptor {
    let pool = DescriptorPool::decode(astrabox_proto::DESCRIPTOR_SET).expect("it is generated");
    pool.get_message_by_name(&format!("astrabox.v1.{name}"))
        .expect("the message exists")
}

fn field(number: u32, wire: WireType, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_key(number, wire, &mut bytes);
    if wire == WireType::LengthDelimited {
        encode_varint(value.len() as u64, &mut bytes);
    }
    bytes.extend(value);
    bytes
}

fn inside(number: u32, value: &[u8]) -> Vec<u8> {
    field(number, WireType::LengthDelimited, value)
}

#[test]
fn a_full_request_of_known_fields_passes() {
    let request = v1::CreateEnvironmentRequest {
        spec: Some(v1::EnvironmentSpec {
            name: "ümlaut".into(),
            networking: Some(v1::Networking {
                r#type: Some(v1::networking::Type::Limited(v1::LimitedNetworking {
                    allowed_hosts: vec!["a".into(), "b".into()],
                    allow_mcp_servers: true,
                })),
            }),
            permission_level: v1::PermissionLevel::Advanced.into(),
            limits: Some(v1::ResourceLimits {
                memory_bytes: u64::MAX,
                pids: u32::MAX,
                ..Default::default()
            }),
            ..Default::default()
        }),
        idempotency_key: "k".into(),
    };
    check_message(
        &descriptor("CreateEnvironmentRequest"),
        &request.encode_to_vec(),
    )
    .expect("all is known");
    let agent = v1::CreateAgentRequest {
        spec: Some(v1::AgentSpec {
            metadata: HashMap::from([("a".into(), "b".into())]),
            ..Default::default()
        }),
        ..Default::default()
    };
    check_message(&descriptor("CreateAgentRequest"), &agent.encode_to_vec()).expect("all is known");
    let image = v1::SendInputRequest {
        content: vec![v1::ContentPart {
            part: Some(v1::content_part::Part::Image(v1::Image {
                data: Bytes::from_static(&[0xff]),
                ..Default::default()
            })),
        }],
        ..Default::default()
    };
    check_message(&descriptor("SendInputRequest"), &image.encode_to_vec())
        .expect("bytes are not UTF-8");
}

#[test]
fn what_is_unknown_is_refused_at_any_depth_by_name() {
    let spec_with = |field: Vec<u8>| inside(1, &field);
    for (message, bytes, text) in [
        (
            "GetSessionRequest",
            field(99, WireType::Varint, &[1]),
            "astrabox.v1.GetSessionRequest has no field 99",
        ),
        (
            "ListEnginesRequest",
            inside(1, b""),
            "astrabox.v1.ListEnginesRequest has no field 1",
        ),
        (
            "CreateEnvironmentRequest",
            spec_with(inside(77, b"x")),
            "astrabox.v1.EnvironmentSpec has no field 77",
        ),
        (
            "CreateEnvironmentRequest",
            spec_with(inside(
                7,
                &inside(1, &field(9, WireType::ThirtyTwoBit, &[0; 4])),
            )),
            "astrabox.v1.LimitedNetworking has no field 9",
        ),
        (
            "CreateAgentRequest",
            spec_with(inside(
                8,
                &[inside(1, b"key"), inside(2, b"value"), inside(3, b"?")].concat(),
            )),
            "MetadataEntry has no field 3",
        ),
        (
            "CreateEnvironmentRequest",
            spec_with(field(8, WireType::Varint, &[7])),
            "astrabox.v1.PermissionLevel has no value 7",
        ),
        (
            "CreateEnvironmentRequest",
            spec_with(field(8, WireType::Varint, &[0x81, 0x80, 0x80, 0x80, 0x10])),
            "has no value 4294967297",
        ),
        (
            "UpdateAgentRequest",
            inside(3, &inside(2, b"x")),
            "google.protobuf.FieldMask has no field 2",
        ),
    ] {
        let error = check_message(&descriptor(message), &bytes).expect_err("it is refused");
        assert_eq!(error.reason(), ErrorReason::UnknownField, "{message}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn what_is_not_protobuf_is_refused_before_a_decoder_sees_it() {
    for (message, bytes) in [
        ("GetSessionRequest", vec![0x0a]),
        ("GetSessionRequest", vec![0x0a, 5, b'a']),
        ("GetSessionRequest", vec![0xff; 12]),
        ("GetSessionRequest", field(1, WireType::Varint, &[1])),
        ("GetSessionRequest", field(1, WireType::StartGroup, &[])),
        ("GetSessionRequest", inside(1, &[0xff, 0xfe])),
        ("WatchSessionRequest", inside(2, b"x")),
        (
            "WatchSessionRequest",
            field(2, WireType::SixtyFourBit, &[0; 8]),
        ),
        ("WatchSessionRequest", field(2, WireType::Varint, &[0x80])),
    ] {
        let error = check_message(&descriptor(message), &bytes).expect_err("it is refused");
        assert_eq!(
            error.reason(),
            ErrorReason::InvalidField,
            "{message} {bytes:?}"
        );
    }
}

#[test]
fn no_bytes_make_the_check_pass_what_the_decoder_refuses() {
    // A small deterministic generator: a failure repeats.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let descriptor = descriptor("CreateEnvironmentRequest");
    let valid = v1::CreateEnvironmentRequest {
        spec: Some(v1::EnvironmentSpec {
            name: "name".into(),
            permission_level: 1,
            limits: Some(v1::ResourceLimits {
                pids: 300,
                ..Default::default()
            }),
            ..Default::default()
        }),
        idempotency_key: "key".into(),
    }
    .encode_to_vec();
    for _ in 0..20_000 {
        let mut bytes = valid.clone();
        for _ in 0..=next() % 3 {
            let at = usize::try_from(next()).unwrap_or(0) % bytes.len();
            bytes[at] = next().to_le_bytes()[0];
        }
        if check_message(&descriptor, &bytes).is_ok() {
            v1::CreateEnvironmentRequest::decode(bytes.as_slice())
                .expect("what passes can be decoded");
        }
    }
}
