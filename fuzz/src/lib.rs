//! What a fuzzer throws at the parsers and rewriters that read what a sandbox says.
//!
//! Each target is a function over bytes that panics when a promise is broken. The functions know the public side of
//! the crates only, so that a test of the crate can include the file and run it over the corpus on any toolchain.

pub mod egress;

/// The readers of the egress proxy, which its feature `fuzzing` shows.
pub mod proxy {
    pub use astrabox_egress_proxy::fuzzing::{http2, request_head};
}
