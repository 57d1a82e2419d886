//! The project's own commands: the checks, generators and test runs behind `cargo xtask`.
//!
//! Invariant: depends on no crate of the product; it starts cargo and the built programs, so it
//! still runs when the product does not compile.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program reports to its terminal"
)]

mod bench;
mod ci;
mod codegen;
mod conformance;
mod demo;
mod finding;
mod fuzz;
mod glob;
mod layers;
mod process;
mod record;
mod source;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

/// Declares the commands: a module with `Args` and `run(Args)` for each. A new command is one
/// line here and its `mod` line above.
macro_rules! commands {
    ($($module:ident => $variant:ident,)*) => {
        #[derive(Subcommand)]
        enum Command {
            $($variant($module::Args),)*
        }

        impl Command {
            fn run(self) -> anyhow::Result<ExitCode> {
                match self {
                    $(Command::$variant(args) => $module::run(args),)*
                }
            }
        }
    };
}

commands! {
    demo => Demo,
    bench => Bench,
    fuzz => Fuzz,
    test => Test,
    ci => Ci,
    conformance => Conformance,
    record => Record,
    layers => Layers,
    tidy => Tidy,
    codegen => Codegen,
}

/// The project's own commands.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The names of all commands, as typed.
fn command_names() -> Vec<String> {
    Cli::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect()
}
