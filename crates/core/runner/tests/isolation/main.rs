//! Boxes as they really are: made, looked at from inside and outside, and taken down again.
//!
//! One program in three roles, because a box can only be made by a process with a single thread, and
//! because what is tried inside a box are system calls that no ordinary program makes. As `driver` it
//! holds one box and does what the test asks; as `probe` it is what runs in the box.

mod attacks;
mod confinement;
mod driver;
mod files;
mod host;
mod life;
mod limits;
mod measure;
mod probe;
mod protocol;
mod rootless;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

/// What a test needs of the machine.
#[derive(Clone, Copy)]
enum Needs {
    /// Root, for a box with a user of its own.
    Root,
    /// Being able to be an ordinary user who makes user namespaces.
    Rootless,
}

type Test = (&'static str, Needs, fn());

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("driver") => return driver::main(&arguments[2..]),
        Some("probe") => return probe::main(&arguments[2..]),
        Some("measure") => return measure::main(&arguments[2..]),
        _ => {}
    }
    let tests = [
        confinement::TESTS,
        attacks::TESTS,
        files::TESTS,
        limits::TESTS,
        life::TESTS,
        rootless::TESTS,
    ];
    let trials = tests
        .into_iter()
        .flatten()
        .map(|test| trial(*test))
        .collect();
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    host::remove_shared();
    conclusion.exit_code()
}

fn trial((name, needs, test): Test) -> Trial {
    Trial::test(name, move || {
        if let Some(reason) = host::lacks(needs) {
            host::skipped(name, &reason);
            return Ok(());
        }
        std::panic::catch_unwind(test).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Failed::from(text.unwrap_or_default())
        })
    })
}
