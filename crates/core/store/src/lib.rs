//! The durable state: the only crate that speaks SQL.
