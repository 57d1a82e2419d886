//! Headers: every placeholder of a value at once.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use bytes::Bytes;
use zeroize::Zeroizing;

use super::{LENGTH, Values, check_value, find_marker, note, placeholder_at};
use crate::{CredentialGrant, HeaderPlace, MARKER, Place, Refusal, RefusalReason, RequestRules};

/// Reads what clients write: with padding and without, and with stray bits at the end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Headers that steer the connection: no credential stands in them, whatever its places say (EG15).
const STEERING: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A header's value with the credentials in it. Has no Debug; its memory is wiped when the last of its [`Bytes`] goes.
pub struct Replaced {
    /// What goes upstream instead.
    pub value: Bytes,
    /// The ids of the credentials in it.
    pub used: Vec<String>,
}

/// A text with credentials in it, wiped when it goes.
struct Filled {
    text: Zeroizing<Vec<u8>>,
    used: Vec<String>,
}

/// Where the text that is looked through comes from.
#[derive(Clone, Copy)]
struct Source<'a> {
    name: &'a str,
    /// Whether it is what a Basic credential decodes to.
    decoded: bool,
}

impl RequestRules {
    /// Puts values in the place of the placeholders of one header; `None` when it has none and goes through as it is.
    /// The `:authority` of HTTP/2 counts as `host`, the other pseudo-headers are what [`RequestFacts`](crate::RequestFacts) hold.
    ///
    /// # Errors
    /// When a placeholder may not stand there, is escaped, or its value cannot be had or sent.
    pub fn header(
        &self,
        name: &str,
        value: &[u8],
        values: &dyn Values,
    ) -> Result<Option<Replaced>, Refusal> {
        if name.len() >= MARKER.len() {
            self.refuse_in_name(name)?;
        }
        if value.len() < MARKER.len() {
            return Ok(None);
        }
        if let Some(decoded) = basic(name, value) {
            let source = Source {
                name,
                decoded: true,
            };
            let filled = self.replace(source, &decoded, values)?;
            return Ok(filled.map(|filled| Replaced {
                value: encode_basic(&filled.text),
                used: filled.used,
            }));
        }
        let source = Source {
            name,
            decoded: false,
        };
        let filled = self.replace(source, value, values)?;
        Ok(filled.map(|filled| Replaced {
            value: Bytes::from_owner(filled.text),
            used: filled.used,
        }))
    }

    /// The text with its placeholders replaced; what is put in is not looked at again (EG18).
    fn replace(
        &self,
        source: Source<'_>,
        text: &[u8],
        values: &dyn Values,
    ) -> Result<Option<Filled>, Refusal> {
        self.refuse_encoded(text, Place::Header)?;
        let mut pieces = Vec::new();
        let mut used = Vec::new();
        let mut rest = text;
        while let Some(at) = find_marker(rest) {
            let placeholder = placeholder_at(&rest[at..]);
            let grant = self.meant(placeholder, Place::Header, |grant| {
                source.allowed(grant, text)
            })?;
            let value = self.value(grant, Place::Header, values)?;
            note(&mut used, &grant.credential_id);
            pieces.push((&rest[..at], value));
            rest = &rest[at + LENGTH..];
        }
        if pieces.is_empty() {
            return Ok(None);
        }
        // Of the right size at once: what grows leaves copies behind.
        let length = pieces
            .iter()
            .map(|(before, value)| before.len() + value.len());
        let mut whole = Zeroizing::new(Vec::with_capacity(length.sum::<usize>() + rest.len()));
        for (before, value) in pieces {
            whole.extend_from_slice(before);
            whole.extend_from_slice(value);
        }
        whole.extend_from_slice(rest);
        Ok(Some(Filled { text: whole, used }))
    }

    /// The value to put in, checked again.
    pub(super) fn value<'v>(
        &self,
        grant: &CredentialGrant,
        place: Place,
        values: &'v dyn Values,
    ) -> Result<&'v [u8], Refusal> {
        let refusal = |reason| Refusal {
            reason,
            place,
            credential_id: Some(grant.credential_id.clone()),
        };
        let value = values
            .value(&grant.credential_id)
            .ok_or_else(|| refusal(RefusalReason::Unavailable))?;
        match check_value(value) {
            Ok(()) => Ok(value),
            Err(_) => Err(refusal(RefusalReason::Unsafe)),
        }
    }
}

impl Source<'_> {
    fn allowed(&self, grant: &CredentialGrant, text: &[u8]) -> bool {
        let named = |name: &str| self.name.eq_ignore_ascii_case(name);
        if STEERING.iter().any(|name| named(name)) {
            return false;
        }
        match &grant.places.header {
            HeaderPlace::Refuse => false,
            HeaderPlace::Any => true,
            HeaderPlace::Named(name) => named(name),
            HeaderPlace::Basic { username } => {
                let password = text
                    .strip_prefix(username.as_bytes())
                    .and_then(|rest| rest.strip_prefix(b":"));
                self.decoded
                    && named("authorization")
                    && password == Some(grant.placeholder.as_str().as_bytes())
            }
        }
    }
}

/// `user:password` of a header with a Basic credential (EG17); `None` for every other header and what does not decode.
fn basic(name: &str, value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let carries = name.eq_ignore_ascii_case("authorization")
        || name.eq_ignore_ascii_case("proxy-authorization");
    let (scheme, coded) = value.trim_ascii().split_at_checked(b"basic".len())?;
    if !carries || !scheme.eq_ignore_ascii_case(b"basic") || !coded.starts_with(b" ") {
        return None;
    }
    LENIENT.decode(coded.trim_ascii()).ok().map(Zeroizing::new)
}

fn encode_basic(text: &[u8]) -> Bytes {
    let scheme = b"Basic ";
    let coded = base64::encoded_len(text.len(), true).expect("a header is no half of the memory");
    let mut value = Zeroizing::new(vec![0; scheme.len() + coded]);
    let (start, rest) = value.split_at_mut(scheme.len());
    start.copy_from_slice(scheme);
    STANDARD
        .encode_slice(text, rest)
        .expect("the buffer has the length of the result");
    Bytes::from_owner(value)
}
