//! Runs the scripted model endpoint by itself, for demos and by hand.
//!
//! `GET /control` tells at which names answers wait; `POST /control/release/NAME` lets them go on.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use astrabox_testkit::model::{Recorded, ScriptedModel};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// A model endpoint that does what the prompt says.
#[derive(Parser)]
#[command(name = "scripted-model", version)]
struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A file that gets the base URL once requests are taken.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// A file that gets one JSON line per request, secrets redacted.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// A model to list; may be given again.
    #[arg(long = "model", value_name = "ID")]
    models: Vec<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // Before the address is known to anyone, so that no signal is missed.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;

    let mut builder = ScriptedModel::builder().listen(arguments.listen);
    for model in arguments.models {
        builder = builder.model(model);
    }
    if let Some(path) = &arguments.log {
        builder = builder.observer(log_to(path)?);
    }
    let model = builder.start().await?;
    if let Some(path) = &arguments.ready_file {
        write_whole(path, &format!("{}\n", model.base_url()))?;
    }
    writeln!(io::stdout(), "listening on {}", model.base_url())?;

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    model.shutdown().await;
    Ok(())
}

/// An observer that writes each request as a line.
fn log_to(path: &Path) -> anyhow::Result<impl Fn(&Recorded) + Send + Sync + use<>> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = Mutex::new(file.context("cannot open the log")?);
    Ok(move |request: &Recorded| {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write_line(&mut file, request) {
            // The log is an aid: a full disk must not change what the model answers.
            let _ = writeln!(io::stderr(), "cannot write the log: {error}");
        }
    })
}

fn write_line(file: &mut File, request: &Recorded) -> io::Result<()> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// Writes a file so that nobody reads it half.
fn write_whole(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = path
        .file_name()
        .context("the ready file needs a name")?
        .to_owned();
    name.push(".partial");
    let partial = path.with_file_name(name);
    fs::write(&partial, text).context("cannot write the ready file")?;
    fs::rename(&partial, path).context("cannot write the ready file")
}
