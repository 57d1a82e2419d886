//! What happened in a test run, as a table, a list of skips and one closing line.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use crate::process::{Counts, Skip};

/// How a step ended.
#[derive(Debug)]
pub(super) struct Outcome {
    verdict: Verdict,
    tests: Counts,
    skips: Vec<Skip>,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

impl Outcome {
    pub(super) fn passed() -> Self {
        Self::of(Verdict::Passed)
    }

    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self::of(Verdict::Failed(why.into()))
    }

    pub(super) fn skipped(why: impl Into<String>) -> Self {
        Self::of(Verdict::Skipped(why.into()))
    }

    fn of(verdict: Verdict) -> Self {
        Self {
            verdict,
            tests: Counts::default(),
            skips: Vec::new(),
        }
    }

    pub(super) fn with_tests(mut self, tests: Counts, skips: Vec<Skip>) -> Self {
        self.tests = tests;
        self.skips = skips;
        self
    }

    pub(super) fn is_passed(&self) -> bool {
        self.verdict == Verdict::Passed
    }

    /// Both outcomes as one: failed when either failed, with the tests of both.
    pub(super) fn and(mut self, mut other: Self) -> Self {
        self.tests += other.tests;
        self.skips.append(&mut other.skips);
        self.verdict = match (self.verdict, other.verdict) {
            (Verdict::Failed(a), Verdict::Failed(b)) => Verdict::Failed(format!("{a}; {b}")),
            (Verdict::Passed | Verdict::Skipped(_), worse @ Verdict::Failed(_)) => worse,
            (Verdict::Passed, Verdict::Skipped(why)) => Verdict::Skipped(why),
            (verdict, _) => verdict,
        };
        self
    }
}

/// One step that was run.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) step: &'static str,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
}

impl Record {
    /// The record as one line.
    pub(super) fn line(&self) -> String {
        let word = match &self.outcome.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed(_) => "FAILED",
            Verdict::Skipped(_) => "skipped",
        };
        let mut line = format!(
            "{:<12} {word:<8} {:>6.1} s",
            self.step,
            self.took.as_secs_f64()
        );
        let tests = self.outcome.tests;
        if tests != Counts::default() {
            line.push_str(&format!(
                "  tests: {} passed, {} failed, {} skipped",
                tests.passed, tests.failed, tests.skipped
            ));
        }
        if let Verdict::Failed(why) | Verdict::Skipped(why) = &self.outcome.verdict {
            line.push_str(&format!("  ({why})"));
        }
        line
    }
}

#[derive(Debug, Default)]
pub(super) struct Report {
    records: Vec<Record>,
    runtime_skips: Vec<Skip>,
}

impl Report {
    pub(super) fn add(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Tests that looked at the machine and found that they cannot run on it. To their test
    /// program they passed, so they are moved from one count to the other.
    pub(super) fn skips_of_tests(&mut self, skips: Vec<Skip>) {
        self.runtime_skips.extend(skips);
    }

    pub(super) fn has_passed(&self, step: &str) -> bool {
        self.records
            .iter()
            .any(|record| record.step == step && record.outcome.is_passed())
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        if self.totals().failed == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Steps and tests together.
    fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for record in &self.records {
            totals += record.outcome.tests;
            totals += match record.outcome.verdict {
                Verdict::Passed => Counts {
                    passed: 1,
                    ..Counts::default()
                },
                Verdict::Failed(_) => Counts {
                    failed: 1,
                    ..Counts::default()
                },
                Verdict::Skipped(_) => Counts {
                    skipped: 1,
                    ..Counts::default()
                },
            };
        }
        let moved = self.runtime_skips.len() as u64;
        totals.passed = totals.passed.saturating_sub(moved);
        totals.skipped += moved;
        totals
    }

    fn skips(&self) -> impl Iterator<Item = (&str, &str)> {
        let steps = self
            .records
            .iter()
            .filter_map(|record| match &record.outcome.verdict {
                Verdict::Skipped(why) => Some((record.step, why.as_str())),
                _ => None,
            });
        let of_tests = self.records.iter().flat_map(|record| &record.outcome.skips);
        let tests = of_tests
            .chain(&self.runtime_skips)
            .map(|skip| (skip.what.as_str(), skip.reason.as_str()));
        steps.chain(tests)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in &self.records {
            writeln!(f, "{}", record.line())?;
        }
        let mut skips = self.skips().peekable();
        if skips.peek().is_some() {
            writeln!(f, "\nskipped:")?;
        }
        for (what, reason) in skips {
            writeln!(f, "  {what}: {reason}")?;
        }
        let totals = self.totals();
        writeln!(
            f,
            "\n{} passed, {} failed, {} skipped",
            totals.passed, totals.failed, totals.skipped
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Outcome, Record, Report};
    use crate::process::{Counts, Skip};

    fn record(step: &'static str, outcome: Outcome) -> Record {
        Record {
            step,
            outcome,
            took: Duration::from_secs(1),
        }
    }

    fn skip(what: &str, reason: &str) -> Skip {
        Skip {
            what: what.into(),
            reason: reason.into(),
        }
    }

    #[test]
    fn every_skip_is_listed_with_its_reason_and_counted() {
        let counts = Counts {
            passed: 5,
            failed: 0,
            skipped: 1,
        };
        let mut report = Report::default();
        let tests = Outcome::passed().with_tests(counts, vec![skip("a::b", "needs a moon")]);
        report.add(record("tests", tests));
        report.add(record(
            "deny",
            Outcome::skipped("cargo-deny is not installed"),
        ));
        report.skips_of_tests(vec![skip("c::d", "needs root")]);
        let text = report.to_string();
        for line in [
            "  deny: cargo-deny is not installed",
            "  a::b: needs a moon",
            "  c::d: needs root",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(
            text.ends_with("\n5 passed, 0 failed, 3 skipped\n"),
            "{text}"
        );
    }

    #[test]
    fn one_failed_step_is_a_failed_run_and_its_reason_is_shown() {
        let mut report = Report::default();
        report.add(record("fmt", Outcome::failed("one file")));
        report.add(record("tidy", Outcome::passed()));
        assert!(report.to_string().contains("(one file)"));
        assert!(
            report
                .to_string()
                .ends_with("\n1 passed, 1 failed, 0 skipped\n")
        );
        assert!(report.has_passed("tidy") && !report.has_passed("fmt"));
    }

    #[test]
    fn two_outcomes_are_as_good_as_the_worse() {
        let cases = [
            (Outcome::passed(), Outcome::passed(), "passed"),
            (Outcome::passed(), Outcome::skipped("x"), "skipped"),
            (Outcome::skipped("x"), Outcome::failed("y"), "FAILED"),
            (Outcome::failed("x"), Outcome::passed(), "FAILED"),
        ];
        for (one, two, word) in cases {
            let line = record("s", one.and(two)).line();
            assert!(line.contains(word), "{line}");
        }
    }
}
