//! The gRPC services: decode, command, encode.
//!
//! Invariant: decides nothing about sessions; every operation is one call of `Platform`, and nothing reaches it
//! that is not identified, whole and free of unknown fields.
//!
//! The way of a request: [`Server`] accepts the connection and asks the kernel who is at its other end; the gate
//! identifies the caller, takes the whole message, checks it against the descriptor set and digests it; a service
//! decodes it into the platform's own types, calls one operation, and encodes the answer. Errors become a status
//! with `google.rpc.ErrorInfo` in one place.

mod call;
mod convert;
mod gate;
mod idempotency;
mod identity;
mod mask;
mod server;
mod services;
mod status;
mod strict;

pub use identity::OPEN_SERVICES;
pub use server::{Listener, Running, Server, ServerSettings};
pub use status::{DOMAIN, grpc_code};
pub use strict::MAX_REQUEST_BYTES;
