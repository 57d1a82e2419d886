//! The contract of an identity provider: who the caller of an operation is.
