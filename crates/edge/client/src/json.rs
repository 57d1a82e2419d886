//! Messages as JSON: fields by their names in the `.proto` files, enums by name, numbers as numbers, absent fields
//! with their defaults, so that a reader finds every key.

/// A message of the API.
pub use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

/// Writes messages as JSON.
#[derive(Debug, Clone)]
pub struct Json {
    pool: DescriptorPool,
}

impl Default for Json {
    fn default() -> Self {
        let pool = DescriptorPool::decode(astrabox_proto::DESCRIPTOR_SET)
            .expect("the descriptor set is generated together with the code");
        Self { pool }
    }
}

impl Json {
    /// A message of the package `astrabox.v1`, by its name there, as `Session`.
    ///
    /// # Panics
    /// When there is no message of this name, which the caller's own tests show.
    #[must_use]
    pub fn of(&self, name: &str, message: &impl Message) -> Value {
        let descriptor = self
            .pool
            .get_message_by_name(&format!("astrabox.v1.{name}"));
        let descriptor = descriptor.unwrap_or_else(|| panic!("astrabox.v1 has no message {name}"));
        let options = SerializeOptions::new()
            .stringify_64_bit_integers(false)
            .use_proto_field_name(true)
            .skip_default_fields(false);
        let decoded = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice());
        let written = decoded
            .map(|message| message.serialize_with_options(serde_json::value::Serializer, &options));
        match written {
            Ok(Ok(value)) => value,
            // A message that was just encoded is whole; only a time out of range cannot be written.
            Ok(Err(_)) | Err(_) => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;

    #[test]
    fn a_message_has_all_its_fields_by_name() {
        let session = v1::Session {
            id: "sesn_1".into(),
            state: v1::SessionState::Busy.into(),
            last_seq: u64::from(u32::MAX) + 1,
            ..Default::default()
        };
        let json = Json::default().of("Session", &session);
        assert_eq!(json["state"], "SESSION_STATE_BUSY");
        assert_eq!(json["last_seq"], u64::from(u32::MAX) + 1);
        assert_eq!(json["permission_mode"], "");
    }
}
