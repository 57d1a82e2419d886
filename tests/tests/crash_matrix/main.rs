//! Each process is killed at each step of a turn, with the real programs: what survives goes on, what cannot is settled
//! with a reason, and the session takes a new turn. What comes out is compared with `docs/crash-matrix.md`, cell by
//! cell; `ASTRABOX_BLESS=1` writes that page anew.

mod left;
mod processes;
mod scenario;
mod step;
mod table;

use std::sync::Arc;

use astrabox_tests::{CLAUDE_CODE, CODEX, Program};
use libtest_mimic::{Arguments, Failed, Trial};
use processes::Process;
use step::Step;
use table::Table;

fn main() {
    let mut arguments = Arguments::from_args();
    // A scenario mostly waits for programs that start.
    arguments.test_threads.get_or_insert(4);
    let table = Arc::new(Table::read());
    let trials = cells()
        .map(|(program, step, killed)| {
            let table = Arc::clone(&table);
            let name = format!("{}::{}::{}", program.engine, step.slug(), slug(&killed));
            Trial::test(name, move || {
                check(&table, program, step, &killed)
                    .map_err(|error| Failed::from(format!("{error:#}")))
            })
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    table.finish();
    conclusion.exit();
}

/// Every scenario: each process alone at each step, and each two of them where most is under way.
fn cells() -> impl Iterator<Item = (&'static Program, Step, Vec<Process>)> {
    [&CODEX, &CLAUDE_CODE].into_iter().flat_map(|program| {
        Step::ALL.into_iter().flat_map(move |step| {
            killings(step)
                .into_iter()
                .map(move |killed| (program, step, killed))
        })
    })
}

/// What is killed at a step.
fn killings(step: Step) -> Vec<Vec<Process>> {
    let alone = Process::ALL.map(|one| vec![one]);
    let pairs = Process::ALL.iter().enumerate().flat_map(|(at, first)| {
        let others = &Process::ALL[at + 1..];
        others.iter().map(move |second| vec![*first, *second])
    });
    let pairs = pairs.filter(|_| step.is_under_way());
    alone.into_iter().chain(pairs).collect()
}

fn slug(killed: &[Process]) -> String {
    let names: Vec<_> = killed.iter().map(|process| process.name()).collect();
    names.join("+")
}

fn check(
    table: &Table,
    program: &'static Program,
    step: Step,
    killed: &[Process],
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(scenario::run(program, step, killed))?;
    table.compare(program.engine, step, &slug(killed), &outcome)
}
