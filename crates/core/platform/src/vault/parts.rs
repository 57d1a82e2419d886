//! The parts of a credential's secret as one value: they are replaced together or not at all.

use astrabox_types::{CredentialSecret, Secret, Timestamp};
use zeroize::Zeroizing;

/// The form; another one gets another number.
const FORM: u8 = 1;
const VALUE: u8 = 1;
const REFRESH_TOKEN: u8 = 2;
const CLIENT_SECRET: u8 = 3;
const EXPIRES_AT: u8 = 4;

/// A credential's secret as it is kept.
pub(crate) struct Kept {
    /// Its parts.
    pub(crate) secret: CredentialSecret,
    /// When the access token ends. It belongs to the token, so it is kept with it.
    pub(crate) expires_at: Option<Timestamp>,
}

/// What is kept is not in a form that this version knows.
#[derive(Debug)]
pub(crate) struct NotKept;

impl Kept {
    /// As the secret store takes it: the form, then each part as its number, its length and its bytes.
    pub(crate) fn pack(&self) -> Secret {
        let CredentialSecret {
            value,
            refresh_token,
            client_secret,
        } = &self.secret;
        let expires_at = self.expires_at.map(|at| at.to_string());
        let parts = [
            (VALUE, Some(value.expose())),
            (REFRESH_TOKEN, refresh_token.as_ref().map(Secret::expose)),
            (CLIENT_SECRET, client_secret.as_ref().map(Secret::expose)),
            (EXPIRES_AT, expires_at.as_ref().map(String::as_bytes)),
        ];
        let given = parts
            .iter()
            .filter_map(|(tag, part)| part.map(|part| (*tag, part)));
        // Room for all of it at once: a buffer that grows leaves copies behind.
        let room: usize = given.clone().map(|(_, part)| part.len() + 5).sum();
        let mut bytes = Vec::with_capacity(room + 1);
        bytes.push(FORM);
        for (tag, part) in given {
            bytes.push(tag);
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(part);
        }
        Secret::new(bytes)
    }

    /// Reads what [`Kept::pack`] made.
    pub(crate) fn unpack(kept: &Secret) -> Result<Self, NotKept> {
        let mut rest = kept.expose().strip_prefix(&[FORM]).ok_or(NotKept)?;
        let mut value = None;
        let mut parts = CredentialSecret::of(Secret::new(Vec::new()));
        let mut expires_at = None;
        while let Some((tag, after)) = rest.split_first() {
            let (length, after) = after.split_first_chunk::<4>().ok_or(NotKept)?;
            let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| NotKept)?;
            let (part, after) = after.split_at_checked(length).ok_or(NotKept)?;
            rest = after;
            match *tag {
                VALUE => value = Some(Secret::new(part.to_vec())),
                REFRESH_TOKEN => parts.refresh_token = Some(Secret::new(part.to_vec())),
                CLIENT_SECRET => parts.client_secret = Some(Secret::new(part.to_vec())),
                EXPIRES_AT => {
                    let text = Zeroizing::new(part.to_vec());
                    let text = std::str::from_utf8(&text).map_err(|_| NotKept)?;
                    expires_at = Some(text.parse().map_err(|_| NotKept)?);
                }
                _ => return Err(NotKept),
            }
        }
        parts.value = value.ok_or(NotKept)?;
        Ok(Self {
            secret: parts,
            expires_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_come_back_as_they_were() {
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec());
        let kept = Kept {
            secret: CredentialSecret {
                value: secret("value"),
                refresh_token: Some(secret("")),
                client_secret: None,
            },
            expires_at: Some(Timestamp::from_second(1_800_000_000).expect("a time")),
        };
        let packed = kept.pack();
        let read = Kept::unpack(&packed).expect("it is read");
        assert!(read.secret.value.expose() == b"value");
        assert!(
            read.secret
                .refresh_token
                .expect("a part")
                .expose()
                .is_empty()
        );
        assert!(read.secret.client_secret.is_none());
        assert_eq!(read.expires_at, kept.expires_at);
        let bytes = packed.expose();
        for at in 0..bytes.len() - 1 {
            let torn = Secret::new(bytes[..at].to_vec());
            let whole = Kept::unpack(&torn).is_ok_and(|read| read.expires_at.is_some());
            assert!(!whole, "{at}");
        }
    }
}
