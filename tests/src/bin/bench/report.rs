//! What was found, for a person and for a program.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::figure::{Bound, Figure, Found, Goal, Row, Sample, Statistic, percentile};
use crate::machine::Machine;

/// A whole run.
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    pub(crate) measured: Vec<Measured>,
    pub(crate) seconds: f64,
}

/// One figure as it was measured.
pub(crate) struct Measured {
    pub(crate) figure: &'static Figure,
    pub(crate) found: Found,
    /// Why it could not be measured.
    pub(crate) error: Option<String>,
    pub(crate) seconds: f64,
    /// The load averages before and after.
    pub(crate) load: (String, String),
}

impl Report {
    /// How many goals there are and which are missed.
    pub(crate) fn summary(&self) -> String {
        let (mut goals, mut missed) = (0, Vec::new());
        for one in &self.measured {
            if one.error.is_some() {
                missed.push(format!("{} (not measured)", one.figure.name));
            }
            for row in &one.found.rows {
                goals += row.goals.len();
                let unmet = row.goals.iter().any(|goal| !row.is_met(goal));
                if unmet {
                    missed.push(format!("{}: {}", one.figure.name, row.name));
                }
            }
        }
        let head = format!("{goals} goals in {:.0} s", self.seconds);
        if missed.is_empty() {
            return format!("{head}, all met");
        }
        format!("{head}; MISSED: {}", missed.join("; "))
    }

    /// A name for the file of this run: when it was, in seconds since 1970.
    pub(crate) fn file_stem(&self) -> String {
        seconds_now().to_string()
    }

    pub(crate) fn json(&self) -> String {
        let figures: Vec<_> = self.measured.iter().map(Measured::json).collect();
        let report = json!({
            "finished_at": seconds_now(),
            "quick": self.quick,
            "seconds": self.seconds,
            "machine": self.machine.json(),
            "figures": figures,
        });
        format!("{report:#}\n")
    }
}

fn seconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

impl Measured {
    fn json(&self) -> Value {
        json!({
            "name": self.figure.name,
            "about": self.figure.about,
            "rows": self.found.rows.iter().map(row_json).collect::<Vec<_>>(),
            "notes": self.found.notes,
            "error": self.error,
            "seconds": self.seconds,
            "load_before": self.load.0,
            "load_after": self.load.1,
        })
    }
}

fn row_json(row: &Row) -> Value {
    let goals: Vec<_> = row
        .goals
        .iter()
        .map(|goal| {
            let (bound, value) = match goal.bound {
                Bound::AtMost(value) => ("at_most", value),
                Bound::AtLeast(value) => ("at_least", value),
            };
            json!({"of": name(goal.of), bound: value, "met": row.is_met(goal)})
        })
        .collect();
    let mut json = json!({"name": row.name, "unit": row.unit.symbol(), "goals": goals});
    match &row.sample {
        Sample::Value(value) => json["value"] = json!(value),
        Sample::Times(times) => {
            json["n"] = json!(times.len());
            for percent in [50, 95, 99] {
                json[format!("p{percent}")] = json!(percentile(times, f64::from(percent)));
            }
        }
    }
    json
}

fn name(of: Statistic) -> &'static str {
    match of {
        Statistic::Value => "value",
        Statistic::P50 => "p50",
        Statistic::P99 => "p99",
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, found, .. } = self;
        writeln!(
            f,
            "{}: {} ({:.0} s, load {})",
            figure.name,
            figure.about,
            self.seconds,
            self.load.1.split(' ').next().unwrap_or_default()
        )?;
        if let Some(error) = &self.error {
            writeln!(f, "  NOT MEASURED: {error}")?;
        }
        for row in &found.rows {
            writeln!(f, "{}", line(row).trim_end())?;
        }
        for note in &found.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

fn line(row: &Row) -> String {
    let unit = row.unit.symbol();
    let found = match &row.sample {
        Sample::Value(value) => format!("{} {unit}", shown(*value)),
        Sample::Times(times) => {
            let [p50, p95, p99] =
                [50.0, 95.0, 99.0].map(|percent| shown(percentile(times, percent)));
            format!(
                "p50 {p50}  p95 {p95}  p99 {p99} {unit}  (n={})",
                times.len()
            )
        }
    };
    let goals: Vec<_> = row.goals.iter().map(|goal| verdict(row, goal)).collect();
    format!(
        "  {:<44} {:<50} {}",
        row.name,
        found.trim_end(),
        goals.join("; ")
    )
}

fn verdict(row: &Row, goal: &Goal) -> String {
    let of = match goal.of {
        Statistic::Value => String::new(),
        other => format!("{} ", name(other)),
    };
    let (word, bound) = match goal.bound {
        Bound::AtMost(bound) => ("<=", bound),
        Bound::AtLeast(bound) => (">=", bound),
    };
    let mark = if row.is_met(goal) { "met" } else { "MISSED" };
    format!("{of}{word} {bound} {}: {mark}", row.unit.symbol())
}

/// A number with as many digits as mean something.
fn shown(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::figure::Unit;

    #[test]
    fn a_missed_goal_is_marked_in_its_line_and_in_the_json() {
        let times = [4, 9, 12].map(Duration::from_millis);
        let row = Row::times("first byte", &times)
            .at_most(Statistic::P50, 8.0)
            .at_most(Statistic::P99, 20.0);
        let text = line(&row);
        for part in [
            "p50 9.00",
            "p99 12.0 ms",
            "(n=3)",
            "p50 <= 8 ms: MISSED",
            "p99 <= 20 ms: met",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(row_json(&row)["goals"][0]["met"], false);
        let row = Row::value("rate", Unit::PerSecond, 312.4).at_least(Statistic::Value, 250.0);
        assert!(line(&row).contains(">= 250 /s: met"), "{}", line(&row));
    }
}
