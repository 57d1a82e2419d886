//! The gRPC services: decode, command, encode.
