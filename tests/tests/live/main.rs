//! Every case over every agent program that declares what the case needs, in real sandboxes; at the end a matrix of
//! program by case. `cargo xtask conformance --live` runs this alone.
#![expect(clippy::print_stdout, reason = "the matrix is for who runs it")]

mod matrix;

use std::sync::Arc;

use astrabox_builtin as _;
use astrabox_engine::Registration;
use astrabox_engine::registry::Registry;
use astrabox_tests::cases::{self, Case, Need};
use astrabox_tests::{PROGRAMS, Program};
use astrabox_types::EngineFeature;
use libtest_mimic::{Arguments, Trial};
use matrix::{Cell, Matrix};

fn main() {
    let mut arguments = Arguments::from_args();
    // A case mostly waits for programs that start.
    arguments.test_threads.get_or_insert(3);
    let engines = Registry::<Registration>::linked().expect("the linked engines are sound");
    let cases = cases::all();
    let matrix = Arc::new(Matrix::new(PROGRAMS, &cases));
    let mut trials = vec![
        Trial::test("every_linked_engine_has_a_program", {
            let linked: Vec<_> = engines.names().map(str::to_owned).collect();
            move || every_engine_runs(&linked)
        }),
        Trial::test("every_feature_has_a_case", {
            let cases = cases.clone();
            move || every_feature_has_a_case(&cases)
        }),
    ];
    for (case, program) in cases
        .iter()
        .flat_map(|case| PROGRAMS.iter().map(move |program| (*case, *program)))
    {
        let Some(engine) = engines.get(program.engine) else {
            continue;
        };
        if !case.fits(program, &engine.adapter().capabilities()) {
            matrix.set(program, &case, Cell::NotDeclared);
            continue;
        }
        trials.push(trial(program, case, Arc::clone(&matrix)));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        println!("{matrix}");
    }
    conclusion.exit();
}

fn trial(program: &'static Program, case: Case, matrix: Arc<Matrix>) -> Trial {
    let name = format!("{}::{}::{}", program.name, case.module, case.name);
    Trial::test(name, move || {
        // A case that panics leaves this behind.
        matrix.set(program, &case, Cell::Failed);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        runtime.block_on((case.run)(program));
        matrix.set(program, &case, Cell::Passed);
        Ok(())
    })
}

/// The programs are those of the linked engines, each at least once.
fn every_engine_runs(linked: &[String]) -> Result<(), libtest_mimic::Failed> {
    let missing: Vec<_> = linked
        .iter()
        .filter(|kind| !PROGRAMS.iter().any(|program| program.engine == **kind))
        .collect();
    let unknown: Vec<_> = PROGRAMS
        .iter()
        .filter(|program| !linked.iter().any(|kind| kind == program.engine))
        .map(|program| program.name)
        .collect();
    if missing.is_empty() && unknown.is_empty() {
        return Ok(());
    }
    Err(
        format!("engines without a program: {missing:?}; programs without an engine: {unknown:?}")
            .into(),
    )
}

/// What an engine may declare, some case holds it to.
fn every_feature_has_a_case(cases: &[Case]) -> Result<(), libtest_mimic::Failed> {
    let untried: Vec<_> = EngineFeature::ALL
        .into_iter()
        .filter(|feature| {
            !cases
                .iter()
                .any(|case| case.needs.contains(&Need::Has(*feature)))
        })
        .collect();
    match untried.as_slice() {
        [] => Ok(()),
        untried => Err(format!("no case needs {untried:?}").into()),
    }
}
