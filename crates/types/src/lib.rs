//! Ids, resources, journal events, state tables and error kinds that every crate shares.
