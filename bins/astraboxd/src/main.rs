//! The AstraBox server and its egress role.
//!
//! Invariant: reads arguments, installs the log and handles signals; what it does then is in the libraries.

mod args;
mod log;
mod serve;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use args::{Args, Command};
use astrabox_builtin as _;
use astrabox_config::{Config, Inputs};
use astrabox_server::{App, Registries};
use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Something failed.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.command {
        // First of all, because the role gives up its rights before there is a second thread.
        Some(Command::Egress { config_file }) => return egress(config_file),
        None => server(&args),
    };
    done.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::from(FAILED)
    })
}

fn egress(config_file: &std::path::Path) -> ExitCode {
    // Its standard error is its own log file, which the server opened for it.
    log::for_role();
    match astrabox_server::egress_role::role_main(config_file) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.exit_code();
            complain(&format!("egress: {:#}", anyhow::Error::new(error)));
            ExitCode::from(code)
        }
    }
}

fn server(args: &Args) -> anyhow::Result<ExitCode> {
    forbid_core_dumps()?;
    let mut inputs = Inputs::of_process();
    inputs.file = args.config.clone();
    inputs.overrides = args.set.clone();
    let config = inputs.load()?;
    let filter = log::filter(&config.log.level)?;
    if args.dump_config {
        std::io::stdout().write_all(config.dump().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.check_config {
        check(config)?;
        return Ok(ExitCode::SUCCESS);
    }
    log::install(filter, config.log.format);
    match inputs.config_file() {
        Some(file) => tracing::info!(file = %file.display(), "configuration read"),
        None => tracing::info!("no configuration file; the defaults hold"),
    }
    serve::until_signalled(app(config)?)
}

/// The server holds secrets, so its memory is never written down. One byte holds no core file; zero would mean the same
/// for files, but the kernel would still feed a core to a handler (core(5)).
fn forbid_core_dumps() -> anyhow::Result<()> {
    let given = getrlimit(Resource::Core).maximum;
    let most = Some(given.map_or(1, |given| given.min(1)));
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Core, limit).context("forbid core dumps")
}

fn app(config: Config) -> anyhow::Result<App> {
    Ok(App::builder(config)
        .registries(Registries::linked()?)
        .build()?)
}

fn check(config: Config) -> anyhow::Result<()> {
    let app = app(config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(app.check())?;
    writeln!(std::io::stdout(), "the configuration is fine")?;
    Ok(())
}

/// A line on standard error; when nobody can read it, the exit code still tells.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "astraboxd: {text}");
}
