//! The table of what is killed when, and what comes out: kept in `docs/crash-matrix.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};

use crate::processes::Process;
use crate::step::Step;

const HEAD: &str = "\
# What survives what

Every process of a running session is killed (SIGKILL) at every step of a turn, alone and in pairs, with the real
programs; `cargo test -p astrabox-tests --test crash_matrix` does it and compares with this page. The session takes a
new turn after each of these, and no process, sandbox, mount, cgroup or file is left.

* **same**: the journal is that of an undisturbed run, apart from ids and times.
* **completed**: the turn completed; the journal tells of what was done again, such as a request to the model.
* **failed: reason**: the turn was settled with this reason, and the session takes the next input.

Where two outcomes stand, both are right and time decides, as when two processes die at once. An input that comes
between the death of an idle program and the news of it fails with `engine_exited`; it is not repeated by itself, because
nobody can tell what the program had begun.

";

type Cells = BTreeMap<(String, Step, String), String>;

/// What is expected, and what came out.
pub(crate) struct Table {
    expected: Cells,
    found: Mutex<Cells>,
    bless: bool,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/crash-matrix.md")
}

impl Table {
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        Self {
            expected: parse(&text),
            found: Mutex::default(),
            bless: std::env::var_os("ASTRABOX_BLESS").is_some(),
        }
    }

    /// Whether a scenario came out as the page says.
    pub(crate) fn compare(
        &self,
        engine: &str,
        step: Step,
        killed: &str,
        outcome: &str,
    ) -> Result<()> {
        let cell = (engine.to_owned(), step, killed.to_owned());
        let expected = self.expected.get(&cell).cloned().unwrap_or_default();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.insert(cell, outcome.to_owned());
        // A cell may name two outcomes where both are right and time decides.
        let right = expected.split(" or ").any(|one| one == outcome);
        ensure!(
            self.bless || right,
            "docs/crash-matrix.md says `{expected}`, and it came out as `{outcome}`"
        );
        Ok(())
    }

    /// Prints what came out, and writes the page when asked to.
    pub(crate) fn finish(&self) {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.is_empty() {
            return;
        }
        let mut all = self.expected.clone();
        for (cell, outcome) in &*found {
            let known = all.entry(cell.clone()).or_default();
            if known.is_empty() {
                known.clone_from(outcome);
            } else if !known.split(" or ").any(|one| one == outcome) {
                let _ = write!(known, " or {outcome}");
            }
        }
        let shown = if self.bless { &all } else { &*found };
        let text = print(shown);
        write_out(&text);
        if self.bless && std::fs::write(path(), format!("{HEAD}{text}")).is_err() {
            write_out("the page cannot be written\n");
        }
    }
}

#[expect(clippy::print_stdout, reason = "the table is what this test prints")]
fn write_out(text: &str) {
    println!("{text}");
}

fn parse(text: &str) -> Cells {
    let mut cells = Cells::new();
    let mut engine = String::new();
    let mut step = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## `") {
            engine = name.trim_end_matches('`').to_owned();
        }
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, at, killed, outcome, _] = columns[..] else {
            continue;
        };
        if !at.is_empty() {
            step = Step::ALL.into_iter().find(|step| step.words() == at);
        }
        if let Some(step) = step {
            cells.insert(
                (engine.clone(), step, killed.replace(" and ", "+")),
                outcome.to_owned(),
            );
        }
    }
    cells
}

fn print(cells: &Cells) -> String {
    let mut text = String::new();
    let mut engine = None;
    let mut last = None;
    for ((of, step, killed), outcome) in sorted(cells) {
        if engine != Some(of) {
            let gap = if engine.is_some() { "\n" } else { "" };
            let _ = writeln!(
                text,
                "{gap}## `{of}`\n\n| when | killed | outcome |\n|---|---|---|"
            );
            engine = Some(of);
            last = None;
        }
        let when = if last == Some(step) { "" } else { step.words() };
        last = Some(step);
        let killed = killed.replace('+', " and ");
        let _ = writeln!(text, "| {when} | {killed} | {outcome} |");
    }
    text
}

/// By engine, step and the order in which processes are named.
fn sorted(cells: &Cells) -> Vec<(&(String, Step, String), &String)> {
    let place = |killed: &str| -> (usize, Vec<usize>) {
        let at = |name: &str| Process::ALL.iter().position(|one| one.name() == name);
        let all: Vec<_> = killed.split('+').filter_map(at).collect();
        (all.len(), all)
    };
    let mut all: Vec<_> = cells.iter().collect();
    all.sort_by_key(|((engine, step, killed), _)| (engine.clone(), *step, place(killed)));
    all
}
