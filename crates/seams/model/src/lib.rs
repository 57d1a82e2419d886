//! The contract of a model endpoint provider.
