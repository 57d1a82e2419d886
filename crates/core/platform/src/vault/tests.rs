//! What credentials may say, and the ways of their secrets.

mod checks;
mod keeping;
