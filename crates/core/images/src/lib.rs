//! Builds, lists and removes engine images from the recipes of the linked engines.
//!
//! Invariant: keeps only what a package client installed from a lock file with hashes; it names no registry and
//! runs no package's scripts.
//!
//! An image is a directory tree that holds one agent program at a pinned version. It is named
//! `<engine>:<version>-<hash of the recipe>`, so a changed recipe is another image and an image never changes.
//!
//! The cache, one per user:
//!
//! ```text
//! <engine>/<version>-<hash>/manifest.json    what the image is and the hash of each file
//! <engine>/<version>-<hash>/root/            the tree; folders 0755, files 0444 or 0555
//! .locks/                                    one lock per image: builders exclusive, users shared
//! .staging/                                  builds that are not finished, each with a held lock
//! ```

mod blocking;
mod builder;
mod client;
mod digest;
mod error;
mod import;
mod lock;
mod manifest;
mod mounts;
mod name;
mod npm;
mod pip;
mod process;
mod progress;
mod recipe;
mod staging;
mod store;
mod tree;

#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use name::{ImageName, image_name};
pub use progress::{Event, Progress, Silent, Step};
pub use store::{Image, ImageStore, Lease, Listed};

/// The engines whose recipes are built, for programs that list and build images.
pub use astrabox_engine as engine;
