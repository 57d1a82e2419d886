//! The Rust client of the public gRPC API.
