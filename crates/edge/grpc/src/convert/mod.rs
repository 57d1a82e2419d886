//! Between the platform's types and those of the wire: exhaustive, so that a new variant or field is a compile error.

pub(crate) mod event;
pub(crate) mod from_proto;
pub(crate) mod interaction;
pub(crate) mod to_proto;
pub(crate) mod tooling;
pub(crate) mod vault;
pub(crate) mod vault_spec;

#[cfg(test)]
mod tests;
