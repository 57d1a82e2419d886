//! The AstraBox server and its egress role.

fn main() {}
