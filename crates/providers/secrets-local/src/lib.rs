//! The local secret store: encrypted files and their key on this host.
//!
//! Invariant: no value and no key is written anywhere in the clear, but for the generated master key in its own file of
//! mode 0600.
//!
//! Settings, below `secrets.local`:
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `key_file` | none | absolute path of a file with the master key, mode 0600 or 0400 |
//! | `key` | none | the master key itself; for the variable `ASTRABOX_SECRETS__LOCAL__KEY`, not for files |
//! | `previous_key_file`, `previous_key` | none | the master key before, until the server has started once |
//!
//! A master key is 32 bytes as 64 hexadecimal digits. Without one, the store makes one at its first start and keeps it
//! beside the values: whoever can read the state folder then reads the secrets too, and a copy of the whole folder is a
//! copy of the secrets.
//!
//! The master key closes nothing but the key ring; the ring's keys close the values (XChaCha20-Poly1305). Each value is
//! bound to its name and to the version of its key. A change of the key makes a new ring key, closes every value with
//! it and drops the one before; a master key that the store made itself is replaced with it. Every step leaves files
//! that can be read whole, and a change that was cut off is finished by the next start.

mod backend;
mod config;
mod error;
mod files;
mod master;
mod ring;
mod seal;

pub use backend::Local;

/// The registration, for those who name their adapters by hand.
pub const REGISTRATION: astrabox_secrets::Registration =
    astrabox_secrets::Registration::new::<Local>(env!("CARGO_PKG_NAME"));

astrabox_secrets::registry::inventory::submit! { REGISTRATION }

#[cfg(test)]
mod tests;
