//! The key ring: the keys that close values, closed with the master key.

use zeroize::Zeroizing;

use crate::seal::{DoesNotOpen, KEY_BYTES, SealKey};

const MAGIC: &[u8] = b"ABXRING1";
const ENTRY: usize = 4 + KEY_BYTES;

/// The keys by version, oldest first; never empty. More than one while a change goes on.
#[derive(Clone)]
pub(crate) struct Ring(Vec<(u32, SealKey)>);

impl Ring {
    /// A ring with one new key.
    pub(crate) fn first() -> std::io::Result<Self> {
        Ok(Self(vec![(1, SealKey::random()?)]))
    }

    /// This ring with one more key.
    pub(crate) fn with_next(&self) -> std::io::Result<Self> {
        let mut keys = self.0.clone();
        keys.push((self.newest().0 + 1, SealKey::random()?));
        Ok(Self(keys))
    }

    /// This ring without any but its newest key.
    pub(crate) fn newest_only(&self) -> Self {
        Self(self.0[self.0.len() - 1..].to_vec())
    }

    /// Whether a change goes on.
    pub(crate) fn is_changing(&self) -> bool {
        self.0.len() > 1
    }

    /// The key that closes, and its version.
    pub(crate) fn newest(&self) -> (u32, &SealKey) {
        let (version, key) = &self.0[self.0.len() - 1];
        (*version, key)
    }

    /// The key of this version.
    pub(crate) fn get(&self, version: u32) -> Option<&SealKey> {
        let found = self.0.iter().find(|(known, _)| *known == version);
        found.map(|(_, key)| key)
    }

    /// As it is kept.
    pub(crate) fn close(&self, master: &SealKey) -> std::io::Result<Vec<u8>> {
        let mut plain = Zeroizing::new(Vec::with_capacity(self.0.len() * ENTRY));
        for (version, key) in &self.0 {
            plain.extend_from_slice(&version.to_be_bytes());
            plain.extend_from_slice(key.bytes());
        }
        let mut all = MAGIC.to_vec();
        all.extend_from_slice(&master.close(MAGIC, &plain)?);
        Ok(all)
    }

    /// Reads what is kept.
    pub(crate) fn open(master: &SealKey, kept: &[u8]) -> Result<Self, DoesNotOpen> {
        let closed = kept.strip_prefix(MAGIC).ok_or(DoesNotOpen)?;
        let plain = master.open(MAGIC, closed)?;
        if plain.is_empty() || plain.len() % ENTRY != 0 {
            return Err(DoesNotOpen);
        }
        let mut keys = Vec::new();
        for entry in plain.chunks_exact(ENTRY) {
            let (version, key) = entry.split_at(4);
            let version = version.try_into().map_err(|_| DoesNotOpen)?;
            let key = SealKey::from_bytes(key).ok_or(DoesNotOpen)?;
            keys.push((u32::from_be_bytes(version), key));
        }
        Ok(Self(keys))
    }
}
