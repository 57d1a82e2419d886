//! The promises of the egress rules, over any bytes.

mod host;
mod path;
mod substitute;

pub use host::host;
pub use path::path;
pub use substitute::{body, header};
