//! The Rust client of the public gRPC API.
//!
//! Invariant: knows the wire and nothing of the server behind it; it never retries a call by itself, except that a
//! watch goes on where it was cut.
//!
//! ```no_run
//! # async fn example() -> Result<(), astrabox_client::ClientError> {
//! use astrabox_client::{Client, Endpoint, v1};
//!
//! let client = Client::connect(Endpoint::unix("/run/astrabox/astrabox.sock")).await?;
//! let engines = client.list_engines(v1::ListEnginesRequest {}).await?.engines;
//! # Ok(()) }
//! ```

mod calls;
mod connect;
mod dedupe;
mod error;
#[cfg(feature = "json")]
mod json;
mod pages;
mod watch;

/// The messages of the API.
pub use astrabox_proto::v1;
pub use calls::{FileReader, new_key, text_part};
pub use connect::{Client, Endpoint};
pub use error::{ClientError, Code, UNREACHABLE};
#[cfg(feature = "json")]
pub use json::{Json, Message};
pub use watch::{Link, Watch, WatchItem, WatchOptions};
