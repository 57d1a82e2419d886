//! Generated types and descriptor set of the public gRPC API.
//!
//! Invariant: holds generated code and nothing else; `cargo xtask codegen` writes it from `proto/`.

/// The package `astrabox.v1`.
#[path = "gen/astrabox.v1.rs"]
pub mod v1;

/// The descriptor set of the package, for reflection and for checking requests.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!("gen/descriptor.bin");
