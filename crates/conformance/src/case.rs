//! How a case tells that it failed, or that it cannot run here.

use std::error::Error;
use std::fmt::{self, Display};

use astrabox_types::{SeamError, SeamErrorKind};

/// What a case comes to.
pub type Checked = Result<(), Stop>;

/// Why a case ended before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The subject does not keep the clause.
    Failed(String),
    /// The case cannot be run here; says why.
    Skipped(String),
}

impl Stop {
    /// The subject does not keep the clause.
    #[must_use]
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// The case cannot be run here.
    #[must_use]
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }
}

impl Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) => f.write_str(text),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

/// Any error that nobody expected fails the case, with everything that led to it.
impl<E: Error> From<E> for Stop {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::Failed(text)
    }
}

/// Says what was being done when an error came.
pub trait Doing<T> {
    /// Puts `what` before the text of the error.
    ///
    /// # Errors
    /// The error of `self`.
    fn doing(self, what: impl Display) -> Result<T, Stop>;
}

impl<T, E: Into<Stop>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T, Stop> {
        self.map_err(|error| match error.into() {
            Stop::Failed(text) => Stop::Failed(format!("{what}: {text}")),
            skipped @ Stop::Skipped(_) => skipped,
        })
    }
}

/// The error of a call that must fail, when its kind is one of `kinds`.
pub(crate) fn refused<T, K: SeamErrorKind>(
    result: Result<T, SeamError<K>>,
    kinds: &[K],
    what: &str,
) -> Result<SeamError<K>, Stop> {
    match result {
        Ok(_) => Err(Stop::Failed(format!(
            "{what} succeeded, expected {kinds:?}"
        ))),
        Err(error) if kinds.contains(&error.kind()) => Ok(error),
        Err(error) => Err(Stop::Failed(format!(
            "{what} failed with {:?} ({error}), expected {kinds:?}",
            error.kind()
        ))),
    }
}

/// Fails the case unless the condition holds.
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Stop::Failed(format!($($text)+)));
        }
    };
}

/// Fails the case unless both sides are equal.
macro_rules! check_eq {
    ($left:expr, $right:expr, $($text:tt)+) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            let what = format!($($text)+);
            return Err($crate::Stop::Failed(format!("{what}: is {left:?}, expected {right:?}")));
        }
    }};
}

pub(crate) use {check, check_eq};
