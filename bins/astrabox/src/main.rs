//! The AstraBox command line.
//!
//! Invariant: changes sessions, agents, environments and vaults through the public API only; of the server's own files it
//! reads the configuration, and shares the cache of images.

mod again;
mod agent;
mod args;
mod bytes;
mod connect;
mod doctor;
mod engine;
mod environment;
mod exit;
mod image;
mod out;
mod pairs;
mod run;
mod sandbox;
mod session;
mod tooling;
mod vault;
mod view;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use args::{Args, Command};
use astrabox_builtin as _;
use clap::Parser as _;

fn main() -> ExitCode {
    let args = Args::parse();
    let json = args.global.json;
    match start(args) {
        Ok(code) => code,
        Err(error) => exit::report(&error, json),
    }
}

fn start(args: Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the runtime does not start")?;
    let done = runtime.block_on(dispatch(args));
    // A read of the terminal cannot be cancelled; the process does not wait for it.
    runtime.shutdown_background();
    std::io::stdout()
        .flush()
        .or_else(exit::ignore_closed_pipe)?;
    done
}

async fn dispatch(args: Args) -> anyhow::Result<ExitCode> {
    let Args { global, command } = args;
    match command {
        Command::Run(command) => return run::run(&global, *command).await,
        Command::Session { command } => return session::run(&global, command).await,
        Command::Agent { command } => agent::run(&global, *command).await?,
        Command::Environment { command } => environment::run(&global, *command).await?,
        Command::Engine { command } => engine::run(&global, command).await?,
        Command::Image { command } => image::run(&global, command).await?,
        Command::Vault { command } => vault::run(&global, *command).await?,
        Command::Sandbox { command } => sandbox::run(&global, command).await?,
        Command::Doctor(args) => return doctor::run(&global, args).await,
    }
    Ok(ExitCode::SUCCESS)
}
