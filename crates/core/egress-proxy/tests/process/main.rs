//! Roles as processes of their own. This program is the tests, and, told so by its arguments, what they start.

mod intercepted;
mod role;
mod stand;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A test, run by itself: some count descriptors or memory of this very process.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "be-a-role", "--config-file", file] => be_a_role(file.into()),
        [_, "start-a-role", folder, user] => stand::start_and_leave(folder, user),
        [_, "be-a-sandbox", folder, upstream] => traffic::be_a_sandbox(folder, upstream),
        _ => run_tests(),
    }
}

/// What a program does to be the role.
fn be_a_role(config_file: PathBuf) -> ExitCode {
    match astrabox_egress_proxy::role_main(&config_file) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            stand::say(&format!("{error}: {:?}", std::error::Error::source(&error)));
            ExitCode::from(error.exit_code())
        }
    }
}

fn run_tests() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let tests = role::TESTS
        .iter()
        .chain(traffic::TESTS)
        .chain(intercepted::TESTS);
    let trials = tests
        .map(|(name, test)| {
            Trial::test(*name, move || {
                test();
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
