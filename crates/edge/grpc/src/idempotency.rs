//! Idempotency keys: their form, and the digest of the request that a key stands for.

use astrabox_platform::{Error, IdempotencyKey, Result};
use prost_reflect::{DynamicMessage, MapKey, MessageDescriptor, Value};
use sha2::{Digest as _, Sha256};

/// The field that holds the key in every mutating request; it is not part of the digest.
const KEY_FIELD: &str = "idempotency_key";

/// The digest of a request, made by the gate for methods that take a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestDigest(String);

/// Whether requests of this type take a key.
pub(crate) fn takes_key(descriptor: &MessageDescriptor) -> bool {
    descriptor.get_field_by_name(KEY_FIELD).is_some()
}

/// SHA-256 of the method and of every field but the key, the same however the message was encoded: fields in the
/// order of their numbers, map entries in the order of their keys, absent and default alike.
///
/// # Errors
/// `INVALID_FIELD` when the message cannot be decoded.
pub(crate) fn digest(
    method: &str,
    descriptor: &MessageDescriptor,
    message: &[u8],
) -> Result<RequestDigest> {
    let mut request = DynamicMessage::decode(descriptor.clone(), message).map_err(|_| {
        Error::new(
            astrabox_types::ErrorReason::InvalidField,
            format!("{} is not valid protobuf", descriptor.full_name()),
        )
    })?;
    request.clear_field_by_name(KEY_FIELD);
    let mut sha = Sha256::new();
    put_bytes(&mut sha, method.as_bytes());
    put_message(&mut sha, &request);
    let mut hex = String::with_capacity(64);
    for byte in sha.finalize() {
        hex.push(char::from_digit(u32::from(byte >> 4), 16).expect("four bits"));
        hex.push(char::from_digit(u32::from(byte & 15), 16).expect("four bits"));
    }
    Ok(RequestDigest(hex))
}

/// The caller's key, if it gave one.
///
/// # Errors
/// `INVALID_FIELD` for a key of another form.
pub(crate) fn key(key: &str, digest: Option<&RequestDigest>) -> Result<Option<IdempotencyKey>> {
    if key.is_empty() {
        return Ok(None);
    }
    let printable = key.bytes().all(|b| matches!(b, b' '..=b'~'));
    if key.len() > 128 || !printable {
        return Err(Error::field(
            KEY_FIELD,
            "must be 1 to 128 printable ASCII characters",
        ));
    }
    let Some(digest) = digest else {
        return Err(Error::new(
            astrabox_types::ErrorReason::Internal,
            "the request was not digested",
        ));
    };
    Ok(Some(IdempotencyKey {
        key: key.to_owned(),
        digest: digest.0.clone(),
    }))
}

fn put_message(sha: &mut Sha256, message: &DynamicMessage) {
    // In the order of field numbers: prost-reflect keeps them in a sorted map.
    for (field, value) in message.fields() {
        sha.update(field.number().to_be_bytes());
        put_value(sha, value);
    }
    sha.update(0_u32.to_be_bytes());
}

fn put_value(sha: &mut Sha256, value: &Value) {
    match value {
        Value::Bool(value) => sha.update([u8::from(*value)]),
        Value::I32(value) | Value::EnumNumber(value) => sha.update(value.to_be_bytes()),
        Value::I64(value) => sha.update(value.to_be_bytes()),
        Value::U32(value) => sha.update(value.to_be_bytes()),
        Value::U64(value) => sha.update(value.to_be_bytes()),
        Value::F32(value) => sha.update(value.to_be_bytes()),
        Value::F64(value) => sha.update(value.to_be_bytes()),
        Value::String(value) => put_bytes(sha, value.as_bytes()),
        Value::Bytes(value) => put_bytes(sha, value),
        Value::Message(message) => put_message(sha, message),
        Value::List(values) => {
            put_length(sha, values.len());
            for value in values {
                put_value(sha, value);
            }
        }
        Value::Map(entries) => {
            put_length(sha, entries.len());
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                put_map_key(sha, key);
                put_value(sha, value);
            }
        }
    }
}

fn put_map_key(sha: &mut Sha256, key: &MapKey) {
    match key {
        MapKey::Bool(value) => sha.update([u8::from(*value)]),
        MapKey::I32(value) => sha.update(value.to_be_bytes()),
        MapKey::I64(value) => sha.update(value.to_be_bytes()),
        MapKey::U32(value) => sha.update(value.to_be_bytes()),
        MapKey::U64(value) => sha.update(value.to_be_bytes()),
        MapKey::String(value) => put_bytes(sha, value.as_bytes()),
    }
}

fn put_bytes(sha: &mut Sha256, bytes: &[u8]) {
    put_length(sha, bytes.len());
    sha.update(bytes);
}

fn put_length(sha: &mut Sha256, length: usize) {
    sha.update((length as u64).to_be_bytes());
}

#[cfg(test)]
mod tests;
