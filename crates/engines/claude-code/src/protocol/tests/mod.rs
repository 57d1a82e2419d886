//! The protocol, line by line.
