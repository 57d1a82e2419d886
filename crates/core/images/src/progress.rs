//! What a build tells while it runs.

use std::fmt;
use std::time::Duration;

/// Where a build tells what it does. Called from the task that polls the build; must not block.
pub trait Progress: Send + Sync {
    /// Something happened.
    fn report(&self, event: Event<'_>);
}

/// One thing that a build tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step began.
    Started(Step),
    /// The running step ended well, after this time.
    Finished(Step, Duration),
    /// A line that a program of the running step printed, without its line feed.
    Output(&'a str),
    /// How far the running step is, bytes.
    Bytes {
        /// Done so far.
        done: u64,
        /// All that there is to do, where it is known.
        total: Option<u64>,
    },
}

/// The steps of a build, in order. A build that finds its image takes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Another build of the same image runs; wait for it.
    Wait,
    /// The package client downloads and installs.
    Install,
    /// The recipe's files are copied and hashed.
    Copy,
    /// The program is tried.
    Check,
    /// The image gets its name.
    Publish,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wait => "waiting for another build",
            Self::Install => "installing packages",
            Self::Copy => "copying files",
            Self::Check => "checking the program",
            Self::Publish => "publishing",
        })
    }
}

/// A progress that tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _: Event<'_>) {}
}
