//! Generated types and descriptor set of the public gRPC API.
