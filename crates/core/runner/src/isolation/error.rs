//! What can go wrong with a box.

use std::io;

/// A failed operation on a box. It names the thing and, where there is one, the remedy; never a host path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IsolationError {
    /// The box as described cannot exist.
    #[error("box specification: {field} {reason}")]
    InvalidSpec {
        /// The field at fault.
        field: &'static str,
        /// What it has to be.
        reason: &'static str,
    },
    /// A process or a signal as asked for cannot exist.
    #[error("request: {reason}")]
    InvalidRequest {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// This host lacks something.
    #[error("{what} is not available; {remedy}")]
    Unavailable {
        /// What is missing.
        what: &'static str,
        /// What the operator can do.
        remedy: &'static str,
    },
    /// There is a box of this specification already, or what a killed runner left of one.
    #[error("a box of this name is there already; destroy it first")]
    BoxExists,
    /// Another box still holds the volume.
    #[error("the volume is in use by another box; destroy that one first")]
    VolumeBusy,
    /// The kernel refused a step outside the box.
    #[error("cannot {step}")]
    System {
        /// The step, as a verb and its object.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refused a step inside the new box.
    #[error("cannot {step} in the new box")]
    Setup {
        /// The step, as a verb and its object.
        step: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The box's first process is dead, and with it every other one.
    #[error("the box is gone")]
    InitGone,
    /// The box's first process does not take requests, because it is frozen or swamped.
    #[error("the box takes no requests at the moment; thaw it or try again")]
    Busy,
    /// Something did not happen in time.
    #[error("{what} did not happen within {seconds} s")]
    Deadline {
        /// What was waited for.
        what: &'static str,
        /// How long.
        seconds: u64,
    },
}

/// Names the step that a kernel call was for.
pub(super) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, IsolationError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, IsolationError> {
        self.map_err(|error| IsolationError::System {
            step,
            source: error.into(),
        })
    }
}

/// A failed step inside the new box, small enough to send to the runner.
#[derive(Debug)]
pub(super) struct SetupError {
    pub(super) step: String,
    pub(super) errno: i32,
}

/// Names the step of a kernel call made inside the new box.
pub(super) trait SetupStep<T> {
    fn setup(self, step: impl Into<String>) -> Result<T, SetupError>;
}

impl<T, E: Into<io::Error>> SetupStep<T> for Result<T, E> {
    fn setup(self, step: impl Into<String>) -> Result<T, SetupError> {
        self.map_err(|error| SetupError {
            step: step.into(),
            errno: error.into().raw_os_error().unwrap_or(libc::EIO),
        })
    }
}

impl From<SetupError> for IsolationError {
    fn from(error: SetupError) -> Self {
        Self::Setup {
            step: error.step,
            source: io::Error::from_raw_os_error(error.errno),
        }
    }
}
