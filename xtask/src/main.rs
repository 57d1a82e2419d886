//! tool

fn main() {}
