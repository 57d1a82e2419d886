//! Typed ids. Each is a prefix and the 32 hexadecimal digits of a version 7 uuid, so ids sort by time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {article} id: expected `{prefix}` followed by 32 hexadecimal digits", article = .kind)]
pub struct ParseIdError {
    kind: &'static str,
    prefix: &'static str,
}

fn parse(text: &str, kind: &'static str, prefix: &'static str) -> Result<Uuid, ParseIdError> {
    let digits = text.strip_prefix(prefix).filter(|digits| {
        digits.len() == 32
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    });
    digits
        .and_then(|digits| Uuid::try_parse(digits).ok())
        .ok_or(ParseIdError { kind, prefix })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// The text that every id of this kind begins with.
            pub const PREFIX: &'static str = $prefix;

            /// A new id, unique and later in order than those made before in this process.
            #[must_use]
            #[expect(clippy::new_without_default, reason = "a default id would hide that it is new")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// An id that depends on nothing but its arguments: the time part of `base`, the rest
            /// from a digest of `parts`. Replaying the same input makes the same id again.
            #[must_use]
            pub fn derived(base: Uuid, parts: &[&str]) -> Self {
                Self(derive(base, parts))
            }

            /// The uuid without its prefix.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse(text, $kind, $prefix).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    };
}

id!(
    /// Names an agent through all its versions.
    AgentId, "agent_", "an agent"
);
id!(
    /// Names an environment.
    EnvironmentId, "env_", "an environment"
);
id!(
    /// Names a session: one conversation.
    SessionId, "sesn_", "a session"
);
id!(
    /// Names a turn: one answer of the engine, to an input or by itself.
    TurnId, "turn_", "a turn"
);
id!(
    /// Names an input that a client sent.
    InputId, "inp_", "an input"
);
id!(
    /// Names a journal event, and the message that its deltas build up.
    EventId, "sevt_", "an event"
);
id!(
    /// Names an interaction: something that the engine asks a person.
    InteractionId, "int_", "an interaction"
);
id!(
    /// Names one generation of a sandbox.
    SandboxId, "sbx_", "a sandbox"
);
id!(
    /// Names a vault.
    VaultId, "vlt_", "a vault"
);
id!(
    /// Names a credential in a vault.
    CredentialId, "vcrd_", "a credential"
);
id!(
    /// Names the writable volume of a session, which outlives its sandboxes.
    VolumeId, "vol_", "a volume"
);

/// Correlates a sandbox with the decision to make it, so that a create whose answer was lost can be found again.
///
/// Chosen by the platform before the create, written into the sandbox's metadata by the provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AssignmentId(String);

impl AssignmentId {
    /// Takes any non-empty text of at most 128 bytes of `[A-Za-z0-9._-]`.
    pub fn new(text: impl Into<String>) -> Result<Self, ParseIdError> {
        let text = text.into();
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > 128 || !text.bytes().all(plain) {
            return Err(ParseIdError {
                kind: "an assignment",
                prefix: "",
            });
        }
        Ok(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AssignmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn derive(base: Uuid, parts: &[&str]) -> Uuid {
    let mut digest = Sha256::new();
    digest.update(base.as_bytes());
    for part in parts {
        // The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let digest = digest.finalize();
    let mut bytes = *base.as_bytes();
    bytes[6..].copy_from_slice(&digest[..10]);
    bytes[6] = (bytes[6] & 0x0f) | 0x70;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    Uuid::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_text_and_refuses_other_kinds() {
        let id = SessionId::new();
        assert_eq!(id.to_string().parse::<SessionId>(), Ok(id));
        for wrong in [
            "",
            "sesn_",
            "sesn_0",
            "turn_0190a0b0c0d0e0f0a0b0c0d0e0f0a0b0",
            &id.to_string().to_uppercase(),
            &format!("{id}0"),
            &format!("sesn_{}", id.uuid()),
        ] {
            assert!(wrong.parse::<SessionId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_derived_id_depends_on_every_part_and_on_nothing_else() {
        let base = SessionId::new().uuid();
        let id = EventId::derived(base, &["turn", "item"]);
        assert_eq!(id, EventId::derived(base, &["turn", "item"]));
        assert_ne!(id, EventId::derived(base, &["turni", "tem"]));
        assert_ne!(
            id,
            EventId::derived(SessionId::new().uuid(), &["turn", "item"])
        );
        assert_eq!(id.uuid().get_version_num(), 7);
        assert_eq!(id.to_string().parse::<EventId>(), Ok(id));
    }

    #[test]
    fn an_assignment_is_short_and_plain() {
        assert!(AssignmentId::new("assignment-spec-session").is_ok());
        for wrong in ["", "a b", "a/b", "ü", &"a".repeat(129)] {
            assert!(AssignmentId::new(wrong).is_err(), "{wrong}");
        }
    }
}
