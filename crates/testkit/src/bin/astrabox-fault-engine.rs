//! The fault engine as a program: `astrabox-fault-engine PROGRAM QUIRK [ARGUMENT...]`.

use std::io::{self, Write as _};
use std::process::ExitCode;

use astrabox_testkit::fake_engine::{StdHost, block_on};
use astrabox_testkit::fault_engine::{Protocol, Quirk, run};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let protocol = arguments.next().as_deref().and_then(Protocol::find);
    let quirk = arguments.next().as_deref().and_then(Quirk::find);
    let (Some(protocol), Some(quirk)) = (protocol, quirk) else {
        // Who cannot be told either way sees the exit code.
        let _ = writeln!(
            io::stderr(),
            "usage: astrabox-fault-engine PROGRAM QUIRK [ARGUMENT...]"
        );
        return ExitCode::from(2);
    };
    let arguments: Vec<_> = arguments.collect();
    let code = block_on(run(&mut StdHost::new(), protocol, quirk, &arguments));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
