//! How credentials pass the control socket. Their form on the wire is known here only.

use std::fmt;

use astrabox_egress::CredentialPlan;
use astrabox_sandbox::CredentialValues;
use astrabox_types::Secret;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::credentials::Credentials;

/// A plan and its values, on their way to the role. No Debug: it holds secrets.
#[derive(Clone)]
pub(crate) struct WireCredentials(pub(crate) Credentials);

impl Serialize for WireCredentials {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("plan", &**self.0.plan())?;
        map.serialize_entry("values", &OutgoingValues(self.0.values()))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for WireCredentials {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let IncomingCredentials { plan, values } = IncomingCredentials::deserialize(from)?;
        Ok(Self(Credentials::new(plan, values.0)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IncomingCredentials {
    plan: CredentialPlan,
    values: IncomingValues,
}

/// An object of values in base64, by credential id.
struct OutgoingValues<'a>(&'a CredentialValues);

impl Serialize for OutgoingValues<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        for (id, value) in self.0.iter() {
            map.serialize_entry(id, &*Zeroizing::new(STANDARD.encode(value.expose())))?;
        }
        map.end()
    }
}

struct IncomingValues(CredentialValues);

impl<'de> Deserialize<'de> for IncomingValues {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = IncomingValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("values in base64 by credential id")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut values = CredentialValues::default();
                while let Some((id, IncomingValue(value))) =
                    map.next_entry::<String, IncomingValue>()?
                {
                    values.insert(id, value);
                }
                Ok(IncomingValues(values))
            }
        }
        from.deserialize_map(Values)
    }
}

struct IncomingValue(Secret);

impl<'de> Deserialize<'de> for IncomingValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Value;
        impl Visitor<'_> for Value {
            type Value = IncomingValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value in base64")
            }

            // Base64 has no escapes, so this is a view into the frame and no copy that nobody would wipe.
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                let value = STANDARD.decode(text);
                // The text stays out of the error: it is nearly a secret.
                let value = value.map_err(|_| E::custom("a value is not base64"))?;
                Ok(IncomingValue(Secret::new(value)))
            }
        }
        from.deserialize_str(Value)
    }
}

#[cfg(test)]
mod tests {
    use astrabox_egress::Values;

    use super::*;

    #[test]
    fn credentials_survive_the_wire_and_a_wrong_value_is_not_repeated() {
        let mut values = CredentialValues::default();
        values.insert("vcrd_1", Secret::new(b"\0\xffvalue\r\n".to_vec()));
        let sent = WireCredentials(Credentials::new(CredentialPlan::default(), values));
        let text = serde_json::to_string(&sent).unwrap();
        let got: WireCredentials = serde_json::from_str(&text).unwrap();
        assert_eq!(
            got.0.value("vcrd_1"),
            Some(b"\0\xffvalue\r\n".as_slice()),
            "{text}"
        );
        assert!(got.0.value("vcrd_2").is_none());

        let wrong = r#"{"plan":{"model":[],"environment":[],"mcp":[],"http_basic":[]},"values":{"a":"hush!"}}"#;
        let error = serde_json::from_str::<WireCredentials>(wrong)
            .err()
            .unwrap();
        assert!(!error.to_string().contains("hush"), "{error}");
        let more = wrong
            .replace("\"values\"", "\"more\":1,\"values\"")
            .replace("hush!", "");
        assert!(serde_json::from_str::<WireCredentials>(&more).is_err());
    }
}
