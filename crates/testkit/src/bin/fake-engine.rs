//! The fake engine as a program, for real sandboxes.

use std::io::{self, Write as _};
use std::process::ExitCode;

use astrabox_testkit::fake_engine::{StdHost, VERSION, block_on, run};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("--version") {
        let said = writeln!(io::stdout(), "fake-engine {VERSION}");
        return ExitCode::from(u8::from(said.is_err()));
    }
    let code = block_on(run(&mut StdHost::new()));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
