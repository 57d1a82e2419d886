//! `astrabox image`: local to this host, without a server.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use astrabox_images::engine::Registration;
use astrabox_images::engine::registry::Registry;
use astrabox_images::{Event, Image, ImageStore, Listed, Progress, image_name};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::args::Global;
use crate::bytes;
use crate::connect::config;
use crate::exit::{Failure, INTERRUPTED, USAGE};
use crate::out::{Column, Out, note};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Builds the image of an engine; one that is built already is shown at once
    Build {
        /// The engine's kind, as codex; all engines when left out
        engine: Option<String>,
    },
    /// Makes an image out of a folder that holds a program, for environments that name their program
    Import {
        /// The folder; everything in it goes into the image
        folder: std::path::PathBuf,
        /// The engine's kind
        #[arg(long, default_value = "acp")]
        engine: String,
        /// The program's version
        #[arg(long)]
        version: String,
    },
    /// The images of this user
    List,
    /// Removes an image
    Remove {
        /// Its name, as list shows it
        image: String,
    },
}

const COLUMNS: &[Column] = &[
    ("NAME", "/name"),
    ("STATE", "/state"),
    ("SIZE", "/size"),
    ("BUILT", "/built_at"),
    ("LICENCE", "/licence"),
];

pub(crate) async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    let out = Out::new(global.json);
    let folder = config(global)?.images.cache_dir;
    let store = ImageStore::open(&folder).await?;
    match command {
        Command::Build { engine } => {
            // Dropping the build ends its programs and leaves nothing behind.
            tokio::select! {
                built = build(&store, &out, engine.as_deref()) => built,
                _ = tokio::signal::ctrl_c() => Err(Failure::with_code(INTERRUPTED, "interrupted; nothing of the image was kept")),
            }
        }
        Command::Import {
            folder,
            engine,
            version,
        } => {
            let progress = Shown::new(&format!("{engine}:{version}"), out.is_json());
            let imported = tokio::select! {
                imported = store.import(&engine, &version, &folder, &progress) => imported,
                _ = tokio::signal::ctrl_c() => {
                    return Err(Failure::with_code(INTERRUPTED, "interrupted; nothing of the image was kept"));
                }
            };
            progress.finish();
            let image = imported?;
            out.done(
                &describe(&image, &out),
                &format!("{} is there ({})", image.name, bytes::show(image.bytes)),
            )
        }
        Command::List => {
            let rows = store
                .list()
                .await?
                .iter()
                .map(|listed| row(listed, &out))
                .collect();
            out.table("images", rows, COLUMNS)
        }
        Command::Remove { image } => {
            store.remove(&image).await?;
            out.done(&json!({ "removed": image }), &format!("{image} is removed"))
        }
    }
}

/// The engines that are linked into this program.
pub(crate) fn engines() -> anyhow::Result<Registry<Registration>> {
    Ok(Registry::linked()?)
}

async fn build(store: &ImageStore, out: &Out, wanted: Option<&str>) -> anyhow::Result<()> {
    let engines = engines()?;
    let kinds: Vec<&str> = match wanted {
        Some(kind) => vec![kind],
        None => engines.names().collect(),
    };
    for kind in kinds {
        let Some(engine) = engines.get(kind) else {
            let known = engines.names().collect::<Vec<_>>().join(", ");
            return Err(Failure::with_code(
                USAGE,
                format!("no engine is called `{kind}`; there are: {known}"),
            ));
        };
        let recipe = engine.adapter().image_recipe();
        let progress = Shown::new(&image_name(kind, &recipe), out.is_json());
        let built = store.build(kind, &recipe, &progress).await;
        progress.finish();
        let image = built.map_err(|error| with_output(error, out.is_json()))?;
        out.done(
            &describe(&image, out),
            &format!("{} is built ({})", image.name, bytes::show(image.bytes)),
        )?;
    }
    Ok(())
}

/// Shows the end of the failed program's output before the error.
fn with_output(error: astrabox_images::Error, as_json: bool) -> anyhow::Error {
    if !as_json {
        error
            .output()
            .iter()
            .for_each(|line| note(&format!("  {line}")));
    }
    error.into()
}

fn row(listed: &Listed, out: &Out) -> Value {
    match listed {
        Listed::Complete(image) => describe(image, out),
        other => serde_json::to_value(other).unwrap_or(Value::Null),
    }
}

fn describe(image: &Image, out: &Out) -> Value {
    let mut value = serde_json::to_value(image).unwrap_or(Value::Null);
    value["state"] = json!("complete");
    if !out.is_json() {
        value["size"] = json!(bytes::show(image.bytes));
    }
    value
}

/// Progress: a moving line on a terminal, plain lines elsewhere, nothing for programs.
struct Shown {
    image: String,
    bar: Option<ProgressBar>,
    quiet: bool,
    /// The step that runs, for the moving line.
    step: Mutex<String>,
}

impl Shown {
    fn new(image: &str, quiet: bool) -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let bar = (terminal && !quiet).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {prefix} {wide_msg} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(image.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            image: image.to_owned(),
            bar,
            quiet,
            step: Mutex::new(String::new()),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("{}: {line}", self.image)),
            None if !self.quiet => note(&format!("{}: {line}", self.image)),
            None => {}
        }
    }

    fn show(&self, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(message);
        }
    }

    fn step(&self) -> std::sync::MutexGuard<'_, String> {
        self.step
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Progress for Shown {
    fn report(&self, event: Event<'_>) {
        match event {
            Event::Started(step) => {
                *self.step() = step.to_string();
                self.show(step.to_string());
                if self.bar.is_none() {
                    self.say(&step.to_string());
                }
            }
            Event::Finished(step, took) => {
                self.say(&format!("{step}: {:.1} s", took.as_secs_f64()))
            }
            Event::Output(line) => self.show(format!("{}: {line}", self.step())),
            Event::Bytes { done, total } => {
                let total = total
                    .map(|total| format!(" of {}", bytes::show(total)))
                    .unwrap_or_default();
                self.show(format!("{}: {}{total}", self.step(), bytes::show(done)));
            }
            _ => {}
        }
    }
}

/// Whether the images of all engines are built, for the doctor: name and whether it is there.
pub(crate) async fn state(global: &Global) -> anyhow::Result<Vec<(&'static str, String, bool)>> {
    let folder = config(global)?.images.cache_dir;
    let store = ImageStore::open(&folder).await.context("the image cache")?;
    let mut states = Vec::new();
    for engine in engines()?.iter() {
        let kind = engine.adapter().kind();
        let name = image_name(kind, &engine.adapter().image_recipe());
        let built = store.find(&name).await.is_ok_and(|image| image.is_some());
        states.push((kind, name, built));
    }
    Ok(states)
}
