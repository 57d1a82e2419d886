//! Credentials: their checks, where their secrets are, and what a session gets of them.

mod changes;
pub(crate) mod check;
mod failures;
mod keeper;
mod oauth;
mod parts;
mod resolve;
mod url;

pub use changes::{InjectionChange, SpecChanges};
pub(crate) use keeper::Keeper;
pub(crate) use oauth::{archived, credential_error};
pub(crate) use parts::Kept;
pub(crate) use resolve::{SessionCredential, chosen};

#[cfg(test)]
mod tests;
