//! The process that holds one sandbox.
//!
//! Invariant: decides nothing; everything is in `astrabox-runner-core`.

use std::process::ExitCode;

fn main() -> ExitCode {
    astrabox_runner_core::main(std::env::args_os().skip(1))
}
