//! Measures the product against its goals and prints what it found; see `docs/bench.md`.
//!
//! Run it with `cargo xtask bench`, which builds what it needs.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program reports to its terminal"
)]

mod bare;
mod boxes;
mod docker;
mod egress;
mod engines;
mod figure;
mod journal;
mod lines;
mod machine;
mod memory;
mod overview;
mod report;
mod run;
mod serve;
mod sessions;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use astrabox_builtin as _;
use clap::{Parser, Subcommand};

use figure::{FIGURES, Figure};

/// Measures the product against its goals.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench")]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Measure only this figure, or those whose name begins with this word, as `egress`; may be given several times.
    #[arg(long, value_name = "FIGURE")]
    only: Vec<String>,
    /// List the figures and measure none.
    #[arg(long)]
    list: bool,
    /// A quarter of the repetitions: a look, not a measurement.
    #[arg(long)]
    quick: bool,
    /// Write the figures to this file too, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the engine figures with this engine only; may be given several times.
    #[arg(long, value_name = "ENGINE")]
    engine: Vec<String>,
    /// The folder for the JSON file of every run.
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    out: PathBuf,
}

/// What the program is besides, each in a process of its own: its server, and what the egress role is measured with.
#[derive(Subcommand)]
enum Role {
    /// Serves as `astraboxd` does, with the fake engine of the test kit besides the linked ones.
    #[command(hide = true)]
    Serve {
        /// The configuration file.
        #[arg(long)]
        config: PathBuf,
    },
    /// The upstream of the egress figures.
    #[command(hide = true)]
    EgressUpstream {
        /// The folder with its certificate.
        folder: PathBuf,
    },
    /// The plain relay of the egress figures.
    #[command(hide = true)]
    EgressRelay {
        /// Where every tunnel leads.
        upstream: SocketAddr,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.role {
        Some(Role::Serve { config }) => serve::run(config),
        Some(Role::EgressUpstream { folder }) => egress::upstream::run(folder),
        Some(Role::EgressRelay { upstream }) => egress::relay::run(*upstream),
        None => bench(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result<()> {
    if args.list {
        for figure in FIGURES {
            println!("{:<16} {}", figure.name, figure.about);
        }
        return Ok(());
    }
    let chosen = choose(&args.only)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let report = runtime.block_on(run::all(&chosen, args.quick, &args.engine))?;
    let path = args.out.join(format!("{}.json", report.file_stem()));
    std::fs::create_dir_all(&args.out).context("make the folder of results")?;
    for path in [Some(path), args.json.clone()].into_iter().flatten() {
        std::fs::write(&path, report.json())
            .with_context(|| format!("write {}", path.display()))?;
        println!("written: {}", path.display());
    }
    Ok(())
}

fn choose(only: &[String]) -> Result<Vec<&'static Figure>> {
    for name in only {
        if !FIGURES.iter().any(|figure| figure.is_named(name)) {
            let names: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
            bail!(
                "there is no figure {name}; the figures are {}",
                names.join(", ")
            );
        }
    }
    let wanted =
        |figure: &&Figure| only.is_empty() || only.iter().any(|name| figure.is_named(name));
    Ok(FIGURES.iter().filter(wanted).collect())
}
