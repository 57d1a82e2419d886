//! What a request must be before a handler sees it: one plain frame, whole, and nothing in it that is unknown.
//!
//! A field or enum value that this version does not know is refused, not dropped: a client that asks for something
//! must not believe that it got it.

use astrabox_platform::{Error, Result};
use astrabox_types::ErrorReason;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_reflect::{EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

/// The largest request message, bytes.
pub const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Compression flag and length, which stand before a message.
const FRAME_HEAD_BYTES: usize = 5;

/// How deep messages may nest; prost itself refuses more than 100.
const MAX_DEPTH: u32 = 32;

/// Takes the one message of a unary or server-streaming request.
///
/// # Errors
/// `TOO_LARGE`; `INVALID_FIELD` for a broken, compressed, missing or second frame.
pub(crate) async fn read_message<B>(body: B) -> Result<Bytes>
where
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let mut taken = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| malformed("the request ended before its message did"))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if taken.len() + data.len() > MAX_REQUEST_BYTES + FRAME_HEAD_BYTES {
            // A second frame is as much too much as a longer first one.
            return Err(too_large());
        }
        taken.put(data);
        check_frame_head(&taken)?;
    }
    whole_frame(taken.freeze())
}

/// The message in its frame again, as the service behind expects it.
pub(crate) fn frame(message: &Bytes) -> Bytes {
    let mut framed = BytesMut::with_capacity(FRAME_HEAD_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).expect("read_message limits it"));
    framed.put_slice(message);
    framed.freeze()
}

/// Refuses what the descriptor does not know, at any depth.
///
/// # Errors
/// `UNKNOWN_FIELD` naming the field's number and the message, or the value and the enum; `INVALID_FIELD` for what
/// is not protobuf.
pub(crate) fn check_message(descriptor: &MessageDescriptor, message: &[u8]) -> Result<()> {
    check_at(descriptor, message, 0)
}

/// Refuses an announced size over the limit before the bytes come.
fn check_frame_head(taken: &[u8]) -> Result<()> {
    let Some((head, _)) = taken.split_at_checked(FRAME_HEAD_BYTES) else {
        return Ok(());
    };
    if head[0] != 0 {
        return Err(malformed(
            "compressed messages are not taken; send them plain",
        ));
    }
    if frame_length(head) > MAX_REQUEST_BYTES {
        return Err(too_large());
    }
    Ok(())
}

fn whole_frame(mut taken: Bytes) -> Result<Bytes> {
    if taken.len() < FRAME_HEAD_BYTES {
        return Err(malformed("the request holds no message"));
    }
    check_frame_head(&taken)?;
    let length = frame_length(&taken);
    taken.advance(FRAME_HEAD_BYTES);
    match taken.len().cmp(&length) {
        std::cmp::Ordering::Less => Err(malformed("the request ended before its message did")),
        std::cmp::Ordering::Equal => Ok(taken),
        std::cmp::Ordering::Greater => Err(malformed("the request holds more than one message")),
    }
}

fn frame_length(head: &[u8]) -> usize {
    u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize
}

fn check_at(descriptor: &MessageDescriptor, mut rest: &[u8], depth: u32) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(malformed("messages nest too deep"));
    }
    while !rest.is_empty() {
        let (number, wire) = decode_key(&mut rest).map_err(|_| torn(descriptor))?;
        let Some(field) = descriptor.get_field(number) else {
            return Err(unknown(
                format!("{} has no field {number}", descriptor.full_name()),
                format!("{}.{number}", descriptor.full_name()),
            ));
        };
        let value = take_value(wire, &mut rest).ok_or_else(|| torn(descriptor))?;
        check_value(&field, value, depth)?;
    }
    Ok(())
}

/// One value as it stands on the wire.
enum Wire<'a> {
    Varint(u64),
    Fixed32,
    Fixed64,
    Bytes(&'a [u8]),
}

fn take_value<'a>(wire: WireType, rest: &mut &'a [u8]) -> Option<Wire<'a>> {
    match wire {
        WireType::Varint => decode_varint(rest).ok().map(Wire::Varint),
        WireType::ThirtyTwoBit => take(rest, 4).map(|_| Wire::Fixed32),
        WireType::SixtyFourBit => take(rest, 8).map(|_| Wire::Fixed64),
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
            take(rest, length).map(Wire::Bytes)
        }
        // Groups are no part of proto3.
        WireType::StartGroup | WireType::EndGroup => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(value)
}

fn check_value(field: &FieldDescriptor, value: Wire<'_>, depth: u32) -> Result<()> {
    match (field.kind(), value) {
        // A map's entry is a message with the fields 1 and 2, so it is checked like any other.
        (Kind::Message(descriptor), Wire::Bytes(bytes)) => check_at(&descriptor, bytes, depth + 1),
        (Kind::String, Wire::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::field(field.name(), "is not UTF-8")),
        },
        (Kind::Bytes, Wire::Bytes(_)) => Ok(()),
        (Kind::Enum(descriptor), Wire::Varint(value)) => check_enum(field, &descriptor, value),
        (Kind::Enum(descriptor), Wire::Bytes(mut packed)) if field.is_list() => {
            while !packed.is_empty() {
                let value = decode_varint(&mut packed).map_err(|_| wrong_type(field))?;
                check_enum(field, &descriptor, value)?;
            }
            Ok(())
        }
        (
            Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Bool,
            Wire::Varint(_),
        )
        | (Kind::Fixed32 | Kind::Sfixed32 | Kind::Float, Wire::Fixed32)
        | (Kind::Fixed64 | Kind::Sfixed64 | Kind::Double, Wire::Fixed64) => Ok(()),
        // Packed numbers; what is inside is left to the decoder.
        (
            Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Bool
            | Kind::Fixed32
            | Kind::Sfixed32
            | Kind::Float
            | Kind::Fixed64
            | Kind::Sfixed64
            | Kind::Double,
            Wire::Bytes(_),
        ) if field.is_list() => Ok(()),
        (
            Kind::Message(_)
            | Kind::String
            | Kind::Bytes
            | Kind::Enum(_)
            | Kind::Int32
            | Kind::Int64
            | Kind::Uint32
            | Kind::Uint64
            | Kind::Sint32
            | Kind::Sint64
            | Kind::Bool
            | Kind::Fixed32
            | Kind::Sfixed32
            | Kind::Float
            | Kind::Fixed64
            | Kind::Sfixed64
            | Kind::Double,
            Wire::Varint(_) | Wire::Fixed32 | Wire::Fixed64 | Wire::Bytes(_),
        ) => Err(wrong_type(field)),
    }
}

fn check_enum(field: &FieldDescriptor, descriptor: &EnumDescriptor, value: u64) -> Result<()> {
    // An enum is an int32 that is sent in 64 bits; a larger one is no value of any enum.
    #[expect(
        clippy::cast_possible_wrap,
        reason = "negative numbers are sent as their two's complement"
    )]
    let known =
        i32::try_from(value as i64).is_ok_and(|value| descriptor.get_value(value).is_some());
    if known {
        return Ok(());
    }
    Err(unknown(
        format!("{} has no value {value}", descriptor.full_name()),
        field.name().to_owned(),
    ))
}

fn unknown(message: String, field: String) -> Error {
    Error::new(ErrorReason::UnknownField, message).with("field", field)
}

fn wrong_type(field: &FieldDescriptor) -> Error {
    Error::field(field.name(), "has another type on the wire")
}

fn torn(descriptor: &MessageDescriptor) -> Error {
    malformed(&format!("{} is not valid protobuf", descriptor.full_name()))
}

fn malformed(message: &str) -> Error {
    Error::new(ErrorReason::InvalidField, message)
}

fn too_large() -> Error {
    Error::new(
        ErrorReason::TooLarge,
        format!("the request is larger than {} MiB", MAX_REQUEST_BYTES >> 20),
    )
    .with("limit_bytes", MAX_REQUEST_BYTES.to_string())
}

#[cfg(test)]
mod tests;
