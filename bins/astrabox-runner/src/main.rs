//! The process that holds one sandbox.

fn main() {}
