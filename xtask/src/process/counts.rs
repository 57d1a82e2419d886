//! Test counts, read from the closing lines of test programs.

use std::ops::AddAssign;

/// How many passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Something that did not run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skip {
    pub(crate) what: String,
    pub(crate) reason: String,
}

/// What the lines of one program's output say about its tests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    libtest: Counts,
    /// The last plain closing line: a program prints one for each part and then their sum.
    plain: Option<Counts>,
    skips: Vec<Skip>,
}

impl Tally {
    /// Takes one line of output.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(counts) = libtest_result(line) {
            self.libtest += counts;
        } else if let Some(counts) = plain_result(line) {
            self.plain = Some(counts);
        } else if let Some(skip) = ignored(line) {
            self.skips.push(skip);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.libtest;
        counts += self.plain.unwrap_or_default();
        counts
    }

    pub(crate) fn skips(&self) -> &[Skip] {
        &self.skips
    }
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; ...`
fn libtest_result(line: &str) -> Option<Counts> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for part in rest.split("; ") {
        match part.split_once(' ') {
            Some((n, "passed")) => counts.passed = n.parse().ok()?,
            Some((n, "failed")) => counts.failed = n.parse().ok()?,
            Some((n, "ignored")) => counts.skipped = n.parse().ok()?,
            _ => {}
        }
    }
    Some(counts)
}

/// `3 passed, 0 failed` or `3 passed, 0 failed, 1 skipped`, with nothing else on the line.
fn plain_result(line: &str) -> Option<Counts> {
    let mut parts = line.split(", ");
    let mut number =
        |word: &str| -> Option<u64> { parts.next()?.strip_suffix(word)?.trim_end().parse().ok() };
    let (passed, failed) = (number("passed")?, number("failed")?);
    let skipped = match parts.next() {
        None => 0,
        Some(part) => part.strip_suffix(" skipped")?.parse().ok()?,
    };
    parts.next().is_none().then_some(Counts {
        passed,
        failed,
        skipped,
    })
}

/// `test name ... ignored, reason`
fn ignored(line: &str) -> Option<Skip> {
    let (what, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    let reason = match rest.strip_prefix(", ") {
        Some(reason) => reason,
        None if rest.is_empty() => "marked ignore in its documentation",
        None => return None,
    };
    Some(Skip {
        what: what.to_owned(),
        reason: reason.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{Counts, Skip, Tally};

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn closing_lines_are_counted_once() {
        let libtest = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        let cases: &[(&[&str], Counts)] = &[
            (&[libtest], counts(3, 0, 1)),
            (&[libtest, "noise", libtest], counts(6, 0, 2)),
            (
                &["test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured"],
                counts(1, 2, 0),
            ),
            (&["5 passed, 1 failed"], counts(5, 1, 0)),
            (&["5 passed, 1 failed, 2 skipped"], counts(5, 1, 2)),
            (
                &["2 passed, 0 failed", "7 passed, 0 failed"],
                counts(7, 0, 0),
            ),
            (&["codex: 5 passed, 1 failed"], counts(0, 0, 0)),
            (&["5 passed, 1 failed, and more"], counts(0, 0, 0)),
        ];
        for (lines, expected) in cases {
            let mut tally = Tally::default();
            for line in *lines {
                tally.read(line);
            }
            assert_eq!(tally.counts(), *expected, "{lines:?}");
        }
    }

    #[test]
    fn an_ignored_test_is_a_skip_with_its_reason() {
        let mut tally = Tally::default();
        tally.read("test a::b ... ignored, needs root");
        tally.read("test c ... ok");
        assert_eq!(
            tally.skips(),
            [Skip {
                what: "a::b".into(),
                reason: "needs root".into()
            }]
        );
    }
}
