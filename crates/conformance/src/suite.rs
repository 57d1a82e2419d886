//! A suite: named cases over one bench, each with a deadline, none able to end the run.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::{CaseReport, Checked, Report, Stop, Verdict};

/// How long a case may take on a paused clock, where a day takes no time.
const PAUSED_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What the cases of a suite work on.
#[async_trait]
pub trait Bench: Clone + Send + Sync + 'static {
    /// A bench for one case; what one case makes, no other sees.
    async fn begin(&self) -> Self {
        self.clone()
    }

    /// Clears up after one case, whatever it came to. Best effort: that clearing up works is for cases to check.
    async fn end(&self) {}
}

/// The body of a case.
pub type Body<B> = for<'a> fn(&'a B) -> BoxFuture<'a, Checked>;

/// One case: a fact that must hold.
pub struct Case<B> {
    /// The fact.
    pub name: &'static str,
    /// The clauses that it checks.
    pub clauses: &'static [&'static str],
    /// What finds out.
    pub body: Body<B>,
}

/// The cases of a module: `cases![name [SB1 SB2], ..]`, each an `async fn name(bench: &B) -> Checked`.
macro_rules! cases {
    ($($name:ident [$($clause:ident)*]),* $(,)?) => {
        vec![$($crate::Case {
            name: stringify!($name),
            clauses: &[$(stringify!($clause)),*],
            body: |bench| Box::pin($name(bench)),
        }),*]
    };
}

pub(crate) use cases;

/// Which time a case lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The real one.
    Real,
    /// A clock of the case's own that jumps ahead whenever nothing can go on: an hour of silence takes no time, and a
    /// wait that would never end is seen at once. Only for cases without real I/O.
    Paused,
}

/// Which cases to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter(Option<String>);

impl Filter {
    /// All of them.
    #[must_use]
    pub const fn all() -> Self {
        Self(None)
    }

    /// Those that check this clause, as `SB12`, or whose suite or name contains this text.
    #[must_use]
    pub fn matching(text: impl Into<String>) -> Self {
        Self(Some(text.into()))
    }

    fn takes<B>(&self, suite: &str, case: &Case<B>) -> bool {
        self.0.as_deref().is_none_or(|text| {
            case.clauses.contains(&text) || case.name.contains(text) || suite.contains(text)
        })
    }
}

/// Named cases over one bench.
pub struct Suite<B> {
    name: String,
    bench: B,
    cases: Vec<Case<B>>,
    clock: Clock,
    deadline: Duration,
}

impl<B: Bench> Suite<B> {
    /// A suite by the name of its subject, with a deadline for each case.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        bench: B,
        cases: Vec<Case<B>>,
        clock: Clock,
        deadline: Duration,
    ) -> Self {
        Self {
            name: name.into(),
            bench,
            cases,
            clock,
            deadline,
        }
    }

    /// The names of all cases, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.cases.iter().map(|case| case.name)
    }

    /// Runs the cases one after another. A panic or a deadline fails its case and no other.
    pub async fn run(&self, filter: &Filter) -> Report {
        let mut reports = Vec::new();
        for case in self
            .cases
            .iter()
            .filter(|case| filter.takes(&self.name, case))
        {
            let begun = Instant::now();
            let result = self.run_case(case).await;
            reports.push(CaseReport {
                name: case.name,
                clauses: case.clauses,
                verdict: Verdict::from(result),
                took: begun.elapsed(),
            });
        }
        Report {
            suite: self.name.clone(),
            cases: reports,
        }
    }

    /// Runs the cases on a runtime of its own; for plain tests and programs.
    ///
    /// # Panics
    /// When the operating system gives no threads, or inside of an asynchronous context.
    #[must_use]
    pub fn run_blocking(&self, filter: &Filter) -> Report {
        runtime().block_on(self.run(filter))
    }

    async fn run_case(&self, case: &Case<B>) -> Checked {
        let (body, deadline) = (case.body, self.deadline);
        match self.clock {
            Clock::Real => {
                let bench = self.bench.begin().await;
                let checked = bounded(body(&bench), deadline).await;
                // A case that hung may have left something on which the clearing up hangs as well.
                let _ = bounded(bench.end().map(Ok), deadline).await;
                checked
            }
            Clock::Paused => {
                let bench = self.bench.clone();
                let (sender, ended) = tokio::sync::oneshot::channel();
                // A thread and not a blocking task: nobody waits for one that computes without an end.
                std::thread::spawn(move || {
                    let checked = paused_runtime().block_on(async {
                        let bench = bench.begin().await;
                        let checked = bounded(body(&bench), PAUSED_DAY).await;
                        bench.end().await;
                        checked
                    });
                    // The receiver may have given up.
                    let _ = sender.send(checked);
                });
                match tokio::time::timeout(deadline, ended).await {
                    Ok(Ok(checked)) => checked,
                    Ok(Err(_)) => Err(Stop::failed("the clearing up panicked")),
                    Err(_) => Err(Stop::failed(format!(
                        "computes without an end, stopped waiting after {} s",
                        deadline.as_secs()
                    ))),
                }
            }
        }
    }
}

/// A runtime for suites in the real time.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system gives threads and an event queue")
}

fn paused_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("the system gives an event queue")
}

async fn bounded(body: impl Future<Output = Checked>, deadline: Duration) -> Checked {
    let caught = AssertUnwindSafe(tokio::time::timeout(deadline, body)).catch_unwind();
    match caught.await {
        Ok(Ok(checked)) => checked,
        Ok(Err(_)) => Err(Stop::failed(format!(
            "not done after {} s",
            deadline.as_secs()
        ))),
        Err(panic) => Err(Stop::failed(format!("panicked: {}", text_of(&*panic)))),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::check;

    #[derive(Clone)]
    struct Empty;

    impl Bench for Empty {}

    async fn it_holds(_: &Empty) -> Checked {
        Ok(())
    }

    async fn it_fails(_: &Empty) -> Checked {
        check!(1 > 2, "one is not {}", "two");
        Ok(())
    }

    async fn it_panics(_: &Empty) -> Checked {
        panic!("help")
    }

    async fn it_hangs(_: &Empty) -> Checked {
        std::future::pending().await
    }

    async fn it_cannot_run(_: &Empty) -> Checked {
        Err(Stop::skipped("no moon"))
    }

    fn suite(clock: Clock) -> Suite<Empty> {
        let cases = cases![
            it_holds [X1],
            it_fails [X1 X2],
            it_panics [X10],
            it_hangs [],
            it_cannot_run [],
        ];
        Suite::new("empty", Empty, cases, clock, Duration::from_millis(200))
    }

    #[test]
    fn a_case_that_fails_panics_or_hangs_ends_alone() {
        for clock in [Clock::Real, Clock::Paused] {
            let report = suite(clock).run_blocking(&Filter::all());
            assert_eq!(report.failures(), ["it_fails", "it_panics", "it_hangs"]);
            assert_eq!((report.passed(), report.skipped()), (1, 1));
            let text = report.to_string();
            for part in [
                "one is not two",
                "panicked: help",
                "not done after",
                "test empty: it_cannot_run [] ... ignored, no moon",
                "  1 passed   3 failed   1 skipped",
            ] {
                assert!(text.contains(part), "{part} is not in\n{text}");
            }
        }
    }

    #[test]
    fn a_filter_takes_a_whole_clause_or_a_part_of_a_name() {
        for (text, count) in [("X1", 2), ("X10", 1), ("it_", 5), ("empty", 5), ("Y", 0)] {
            let report = suite(Clock::Real).run_blocking(&Filter::matching(text));
            assert_eq!(report.cases.len(), count, "{text}");
        }
    }
}
