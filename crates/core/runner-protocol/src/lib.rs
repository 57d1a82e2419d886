//! Wire types and client of the runner that holds one sandbox.
