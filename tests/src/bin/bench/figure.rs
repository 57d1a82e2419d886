//! What a figure is, and the list of them.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;

use crate::{boxes, egress, engines, journal, lines, memory, overview};

/// One figure: a name, what it tells, and how it is measured.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) measure: fn(Effort) -> Measuring,
}

impl Figure {
    /// Whether it is meant by this word: its name, or what its name begins with.
    pub(crate) fn is_named(&self, word: &str) -> bool {
        let rest = self.name.strip_prefix(word);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

/// A figure that is being measured.
type Measuring = Pin<Box<dyn Future<Output = Result<Found>>>>;

/// How much is done for a figure.
#[derive(Debug, Clone)]
pub(crate) struct Effort {
    quick: bool,
    /// The engines asked for; all with an image when empty.
    pub(crate) engines: Vec<String>,
}

impl Effort {
    pub(crate) fn new(quick: bool, engines: &[String]) -> Self {
        Self {
            quick,
            engines: engines.to_vec(),
        }
    }

    /// How often something is repeated.
    pub(crate) fn times(&self, full: usize) -> usize {
        if self.quick { full.div_ceil(4) } else { full }
    }
}

/// What was found for a figure.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) rows: Vec<Row>,
    /// What the reader has to know: what stood in for what, and what was not measured and why.
    pub(crate) notes: Vec<String>,
}

/// One line of a figure.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) sample: Sample,
    pub(crate) goals: Vec<Goal>,
}

/// What a row was found to be.
#[derive(Debug)]
pub(crate) enum Sample {
    /// One number.
    Value(f64),
    /// Many times of the same thing, milliseconds in the order in which they were measured.
    Times(Vec<f64>),
}

/// The unit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Milliseconds,
    PerSecond,
    Times,
    Megabytes,
    MegabytesPerSecond,
    Kilobytes,
    /// How many; what is counted is in the row's name.
    Count,
}

impl Unit {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::PerSecond => "/s",
            Self::Times => "x",
            Self::Megabytes => "MB",
            Self::MegabytesPerSecond => "MB/s",
            Self::Kilobytes => "kB",
            Self::Count => "",
        }
    }
}

/// A bound for one statistic of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) of: Statistic,
    pub(crate) bound: Bound,
}

/// What of a row is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistic {
    /// The one number.
    Value,
    P50,
    P99,
}

/// What it is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Row {
    /// A row of one number.
    pub(crate) fn value(name: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self {
            name: name.into(),
            unit,
            sample: Sample::Value(value),
            goals: Vec::new(),
        }
    }

    /// A row of times.
    pub(crate) fn times(name: impl Into<String>, times: &[Duration]) -> Self {
        Self {
            name: name.into(),
            unit: Unit::Milliseconds,
            sample: Sample::Times(times.iter().map(|time| milliseconds(*time)).collect()),
            goals: Vec::new(),
        }
    }

    /// Adds the goal that a statistic is at most this.
    pub(crate) fn at_most(mut self, of: Statistic, bound: f64) -> Self {
        self.goals.push(Goal {
            of,
            bound: Bound::AtMost(bound),
        });
        self
    }

    /// Adds the goal that a statistic is at least this.
    pub(crate) fn at_least(mut self, of: Statistic, bound: f64) -> Self {
        self.goals.push(Goal {
            of,
            bound: Bound::AtLeast(bound),
        });
        self
    }

    /// The statistic's value.
    pub(crate) fn get(&self, of: Statistic) -> f64 {
        match (&self.sample, of) {
            (Sample::Value(value), _) => *value,
            (Sample::Times(times), Statistic::P99) => percentile(times, 99.0),
            (Sample::Times(times), _) => percentile(times, 50.0),
        }
    }

    pub(crate) fn is_met(&self, goal: &Goal) -> bool {
        let value = self.get(goal.of);
        match goal.bound {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The smallest value that so many percent of the sample do not exceed; 0 without a sample.
pub(crate) fn percentile(sample: &[f64], percent: f64) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

/// The middle of some times, milliseconds.
pub(crate) fn median(times: &[Duration]) -> f64 {
    let sample: Vec<_> = times.iter().map(|time| milliseconds(*time)).collect();
    percentile(&sample, 50.0)
}

/// Every figure, in the order in which they are measured.
pub(crate) const FIGURES: &[Figure] = &[
    Figure {
        name: "sandbox-create",
        about: "a sandbox from nothing to the first byte of a program in it, beside docker",
        measure: |effort| Box::pin(boxes::create(effort)),
    },
    Figure {
        name: "sandbox-rate",
        about: "sandboxes made per second, eight at a time",
        measure: |effort| Box::pin(boxes::rate(effort)),
    },
    Figure {
        name: "session-ready",
        about: "CreateSession to READY, over the bare program's own handshake",
        measure: |effort| Box::pin(engines::ready(effort)),
    },
    Figure {
        name: "first-token",
        about: "a prompt to the first piece of its answer on a warm session, over the bare program",
        measure: |effort| Box::pin(engines::first_token(effort)),
    },
    Figure {
        name: "answer-time",
        about: "an answer of 100 pieces, as a multiple of the bare program's time",
        measure: |effort| Box::pin(engines::answer(effort)),
    },
    Figure {
        name: "engine-cost",
        about: "each engine's image, cold start, first piece and memory, beside the bare program's",
        measure: |effort| Box::pin(overview::engines(effort)),
    },
    Figure {
        name: "line-latency",
        about: "an engine's line to the gRPC client, with 1 and with 50 sessions",
        measure: |effort| Box::pin(lines::latency(effort)),
    },
    Figure {
        name: "delta-rate",
        about: "pieces of a message per second through one session",
        measure: |effort| Box::pin(lines::rate(effort)),
    },
    Figure {
        name: "slow-reader",
        about: "a client that stops reading for 6 s during 20,000 pieces",
        measure: |effort| Box::pin(lines::slow_reader(effort)),
    },
    Figure {
        name: "journal",
        about: "durable journal appends per second",
        measure: |effort| Box::pin(journal::appends(effort)),
    },
    Figure {
        name: "memory",
        about: "resident memory of the server, of an idle session in it, of a runner",
        measure: |effort| Box::pin(memory::resident(effort)),
    },
    Figure {
        name: "long-line",
        about: "memory that a line of 50 MiB takes, as a multiple of its size",
        measure: |effort| Box::pin(memory::long_line(effort)),
    },
    Figure {
        name: "egress-latency",
        about: "a small request with a credential put in, beside a plain relay and mitmproxy",
        measure: |effort| Box::pin(egress::latency(effort)),
    },
    Figure {
        name: "egress-rate",
        about: "small requests per second over connections that stay, beside both",
        measure: |effort| Box::pin(egress::rate(effort)),
    },
    Figure {
        name: "egress-stream",
        about: "the age of the first event of a stream at the client, beside both",
        measure: |effort| Box::pin(egress::stream(effort)),
    },
    Figure {
        name: "egress-body",
        about: "a body of 1 GiB in each direction and the memory that it takes, beside both",
        measure: |effort| Box::pin(egress::body(effort)),
    },
    Figure {
        name: "egress-memory",
        about: "resident memory at rest and with 500 connections, beside both",
        measure: |effort| Box::pin(egress::resident(effort)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_of_the_sample() {
        let sample: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (percent, expected) in [(50.0, 50.0), (95.0, 95.0), (99.0, 99.0), (0.0, 1.0)] {
            assert_eq!(percentile(&sample, percent), expected);
        }
        assert_eq!(percentile(&[3.0], 99.0), 3.0);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }

    #[test]
    fn a_goal_is_met_on_its_side_of_the_bound() {
        let times = [1, 2, 9].map(Duration::from_millis);
        let row = Row::times("t", &times)
            .at_most(Statistic::P50, 2.0)
            .at_most(Statistic::P99, 8.0);
        let met: Vec<_> = row.goals.iter().map(|goal| row.is_met(goal)).collect();
        assert_eq!(met, [true, false]);
        let row = Row::value("v", Unit::PerSecond, 250.0).at_least(Statistic::Value, 250.0);
        assert!(row.is_met(&row.goals[0]));
    }

    #[test]
    fn figures_have_names_of_their_own() {
        let mut names: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
    }

    #[test]
    fn a_word_means_a_figure_or_those_that_begin_with_it() {
        let named = |word: &str| {
            FIGURES
                .iter()
                .filter(|figure| figure.is_named(word))
                .count()
        };
        for (word, wanted) in [("egress", 5), ("egress-rate", 1), ("egr", 0), ("", 0)] {
            assert_eq!(named(word), wanted, "{word}");
        }
    }
}
