//! Records real agent programs at work against the scripted model, for the adapters' tests.
//!
//! A recording is what one process read and wrote: one JSON object a line,
//! `{"dir": "in" | "out" | "err", "line": "..."}`, each line verbatim but for the places of the
//! machine it was made on. An adapter's test plays it without the program; a new version of the
//! program is recorded again with one command, and the difference is what changed.

mod acp;
mod app_server;
mod claude;
mod codex;
mod deepseek_harness;
mod hermes;
mod pi;
mod place;
mod stream_json;
mod tape;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model;

/// What can go wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or process could not be used.
    #[error("cannot {operation}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The scripted model failed.
    #[error("the scripted model failed")]
    Model(#[from] model::Error),
    /// The program did not do what the scenario waits for.
    #[error("{scenario}: {what} did not come within {deadline:?}; the last message was {last}")]
    Silent {
        /// The scenario.
        scenario: &'static str,
        /// What was waited for.
        what: String,
        /// How long.
        deadline: Duration,
        /// What came last.
        last: String,
    },
    /// The program ended or refused.
    #[error("{scenario}: {what}")]
    Refused {
        /// The scenario.
        scenario: &'static str,
        /// What it said.
        what: String,
    },
}

impl Error {
    fn io(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { operation, source }
    }
}

/// Records every scenario of the two programs in an image of kind `acp`, or those that are named, as
/// `<scenario>.jsonl`, with a `README.md`.
///
/// `image` is the image's root; `scratch` is a folder for the programs' home, not under `/tmp`.
///
/// # Errors
/// The first scenario that fails; those before it are written.
pub async fn acp(
    image: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    acp::record(image, out, scratch, only).await
}

/// Records every Codex scenario, or those that are named, as `<scenario>.jsonl`, with a `README.md`.
///
/// `scratch` is a folder for the program's home; Codex refuses to work in one under `/tmp`.
///
/// # Errors
/// The first scenario that fails; those before it are written.
pub async fn codex(
    program: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    codex::record(program, out, scratch, only).await
}

/// Records every Claude Code scenario, or those that are named, as `<scenario>.jsonl`, with a `README.md`.
///
/// `scratch` is a folder for the program's home.
///
/// # Errors
/// The first scenario that fails; those before it are written.
pub async fn claude(
    program: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    claude::record(program, out, scratch, only).await
}

/// Records every DeepSeek Harness scenario, or those that are named, as `<scenario>.jsonl`, with a `README.md`.
///
/// `image` is the root of its image; `out` is `tests/recordings` of the engine's crate, whose plugin is used;
/// `scratch` is a folder for the program's home.
///
/// # Errors
/// The first scenario that fails; those before it are written.
pub async fn deepseek_harness(
    image: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    deepseek_harness::record(image, out, scratch, only).await
}

/// Records every Hermes scenario, or those that are named, as `<scenario>.jsonl`, with a `README.md`.
///
/// `image` is the root of its image; `out` is `tests/recordings` of the engine's crate, whose host is used; `scratch` is
/// a folder for the program's home.
///
/// # Errors
/// The first scenario that fails; those before it are written.
pub async fn hermes(
    image: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    hermes::record(image, out, scratch, only).await
}

/// Records every Pi scenario, or those that are named, as `<scenario>.jsonl`, with a `README.md`.
///
/// `image` is the root of its image, `out` the folder `tests/recordings` of its engine, and `scratch` a folder for the
/// program's home.
///
/// # Errors
/// The first scenario that fails; those before it are written.
pub async fn pi(
    image: &Path,
    out: &Path,
    scratch: &Path,
    only: &[String],
) -> Result<Vec<PathBuf>, Error> {
    pi::record(image, out, scratch, only).await
}
