//! What a check found wrong, and how it is said.

use std::fmt;
use std::process::ExitCode;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// File, folder or package, relative to the workspace root.
    pub(crate) place: String,
    /// Line from 1, where there is one.
    pub(crate) line: Option<usize>,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            line: None,
            message: message.into(),
        }
    }

    pub(crate) fn at(place: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::new(place, message)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Prints the findings, or `fine` when there is none; the exit code of the command.
pub(crate) fn report(mut findings: Vec<Finding>, fine: &str) -> ExitCode {
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("{fine}");
        ExitCode::SUCCESS
    } else {
        println!("{} found", findings.len());
        ExitCode::FAILURE
    }
}
