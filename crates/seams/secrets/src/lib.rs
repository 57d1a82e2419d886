//! The contract of a secret store: write-only values with authenticated encryption.
