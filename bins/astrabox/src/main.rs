//! The AstraBox command line.

fn main() {}
