//! What a run of a suite came to.

use std::fmt;
use std::time::Duration;

use crate::Stop;

/// What one case came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The subject keeps the clauses, as far as the case looks.
    Passed,
    /// It does not; says how.
    Failed(String),
    /// The case did not run; says why.
    Skipped(String),
}

impl From<Result<(), Stop>> for Verdict {
    fn from(result: Result<(), Stop>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(Stop::Failed(text)) => Self::Failed(text),
            Err(Stop::Skipped(reason)) => Self::Skipped(reason),
        }
    }
}

/// One case of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseReport {
    /// Its name.
    pub name: &'static str,
    /// The clauses that it checks.
    pub clauses: &'static [&'static str],
    /// What it came to.
    pub verdict: Verdict,
    /// How long it took, on the wall.
    pub took: Duration,
}

/// A run of one suite over one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Suite and subject, as `sandbox provider local`.
    pub suite: String,
    /// The cases, in order.
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// A run that could not begin, as one failed case.
    #[must_use]
    pub fn broken(suite: impl Into<String>, name: &'static str, text: impl Into<String>) -> Self {
        let case = CaseReport {
            name,
            clauses: &[],
            verdict: Verdict::Failed(text.into()),
            took: Duration::ZERO,
        };
        Self {
            suite: suite.into(),
            cases: vec![case],
        }
    }

    /// How many cases passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Passed))
    }

    /// How many cases failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    /// How many cases did not run.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    fn count(&self, wanted: impl Fn(&Verdict) -> bool) -> usize {
        self.cases
            .iter()
            .filter(|case| wanted(&case.verdict))
            .count()
    }

    /// The names of the cases that failed, in order.
    #[must_use]
    pub fn failures(&self) -> Vec<&'static str> {
        self.cases
            .iter()
            .filter(|case| matches!(case.verdict, Verdict::Failed(_)))
            .map(|case| case.name)
            .collect()
    }

    /// Panics with the whole report when a case failed or nothing passed; for tests.
    ///
    /// # Panics
    /// When a case failed, or when no case passed.
    pub fn assert_passed(&self) {
        assert!(self.failed() == 0, "the suite found faults\n{self}");
        assert!(self.passed() > 0, "the suite ran nothing\n{self}");
    }
}

/// One line of counts, then one line for each case that failed or did not run. A skipped case is told in the form
/// of the standard test harness, so that programs which read that understand it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<44} {:>3} passed {:>3} failed {:>3} skipped",
            self.suite,
            self.passed(),
            self.failed(),
            self.skipped()
        )?;
        for case in &self.cases {
            let (suite, name, clauses) = (&self.suite, case.name, case.clauses.join(" "));
            match &case.verdict {
                Verdict::Passed => {}
                Verdict::Failed(text) => {
                    writeln!(f, "test {suite}: {name} [{clauses}] ... FAILED, {text}")?;
                }
                Verdict::Skipped(reason) => {
                    writeln!(f, "test {suite}: {name} [{clauses}] ... ignored, {reason}")?;
                }
            }
        }
        Ok(())
    }
}
