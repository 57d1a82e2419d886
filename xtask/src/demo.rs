//! `cargo xtask demo`: the product's main job, once, with everything real but the model.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::test::{self, Mode};

/// Where Codex's users keep a real model key.
const KEY: &str = "OPENAI_API_KEY";
/// How long a program of the demonstration may take to come up or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Run the product once: a real Codex in a real sandbox, driven by a scripted model, or by a real one.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Asks this model at the real endpoint, with the key in OPENAI_API_KEY; the key goes into a vault and from there
    /// into requests, never into the sandbox
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let has_key = std::env::var_os(KEY).is_some_and(|value| !value.is_empty());
    let brain = Brain::of(args.model, has_key)?;
    // The runner and the binaries, by the same steps as for the tests; of the images only the one that is shown.
    let context = test::prepare(&["runner", "bins"], Mode::Local)?;
    let mut image = Command::new(context.target.join("debug/astrabox"));
    image.args(["image", "build", "codex"]);
    context.prepare(&mut image);
    ensure!(image.status()?.success(), "the Codex image is not built");
    let scratch = Scratch::new()?;
    let programs = Programs {
        folder: context.target.join("debug"),
        runner: context.runner()?,
    };
    let played = play(&programs, scratch.path(), &brain);
    if played.is_err() {
        let log = fs::read_to_string(scratch.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        println!(
            "\nThe server's log ends:\n{}",
            lines[lines.len().saturating_sub(20)..].join("\n")
        );
    }
    played?;
    println!("\nEverything was removed. The README tells how to run it for good.");
    Ok(ExitCode::SUCCESS)
}

/// Who answers.
#[derive(Debug, PartialEq, Eq)]
enum Brain {
    Scripted,
    /// The model of this name, at the real endpoint.
    Real(String),
}

impl Brain {
    /// A real model costs money, so both the key and the model's name are asked for.
    fn of(model: Option<String>, has_key: bool) -> Result<Self> {
        match (model, has_key) {
            (None, false) => Ok(Self::Scripted),
            (Some(model), true) => Ok(Self::Real(model)),
            (Some(_), false) => bail!("--model asks a real model: set {KEY} to its key"),
            (None, true) => bail!(
                "{KEY} is set: say which real model is to be asked with `cargo xtask demo --model NAME` (the key goes \
                 into a vault and never into the sandbox), or run without it: `env -u {KEY} cargo xtask demo`"
            ),
        }
    }

    /// What is said to make it write and run a file, to make it remember, and to make it look.
    fn prompts(&self) -> [&'static str; 3] {
        match self {
            Self::Scripted => [
                "SAY: I shall write a small program and run it.\n\
                 WRITE hello.sh echo \"hello from $(id -un) in $(pwd)\"\\nls /home /root 2>&1 || true\n\
                 RUN: sh hello.sh",
                "RECALL",
                "RUN: cat hello.sh",
            ],
            Self::Real(_) => [
                "Write a shell script hello.sh in the current folder that prints who and where it is, and run it.",
                "What did I ask you to do, in one sentence?",
                "Show me the content of hello.sh.",
            ],
        }
    }
}

/// The story, told as it happens.
fn play(programs: &Programs, folder: &Path, brain: &Brain) -> Result<()> {
    let model = match brain {
        Brain::Scripted => {
            title("A scripted model and a server with a temporary store");
            Some(programs.model(folder)?)
        }
        Brain::Real(_) => {
            title("A server with a temporary store");
            None
        }
    };
    let server = programs.server(folder, model.as_ref().map(|model| model.address.as_str()))?;
    let [write, recall, look] = brain.prompts();

    title("An environment, an agent, a prompt: the agent writes a file and runs it");
    let name = match brain {
        Brain::Scripted => "scripted",
        Brain::Real(name) => name,
    };
    let run = [
        "run",
        "--verbose",
        "--engine",
        "codex",
        "--permission-mode",
        "never",
        "--model",
        name,
    ];
    programs.astrabox(folder, &[&run[..], &[write]].concat())?;

    let sessions = programs.astrabox_json(folder, &["--json", "session", "list"])?;
    let session = text(&sessions, "/sessions/0/id")?;
    title("The sandbox is thrown away; the conversation stays");
    programs.astrabox(folder, &["session", "release", &session])?;
    programs.astrabox(folder, &["sandbox", "list"])?;

    title("In a fresh sandbox the same conversation goes on: what was said, and the file");
    for prompt in [recall, look] {
        programs.astrabox(folder, &["run", "--verbose", "--session", &session, prompt])?;
    }

    title("Cleaning up");
    programs.astrabox(folder, &["session", "delete", &session])?;
    let left = programs.astrabox_json(folder, &["--json", "sandbox", "list"])?;
    let left = left
        .pointer("/sandboxes")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    ensure!(left == 0, "{left} sandboxes are left");
    server.end()?;
    model.map_or(Ok(()), |model| model.process.end())
}

fn title(text: &str) {
    println!("\n=== {text}");
}

fn text(value: &Value, pointer: &str) -> Result<String> {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found
        .map(str::to_owned)
        .with_context(|| format!("no {pointer} in {value}"))
}

/// Where the built programs are.
struct Programs {
    folder: PathBuf,
    runner: PathBuf,
}

/// The scripted model and where it listens.
struct Model {
    process: Running,
    address: String,
}

impl Programs {
    fn model(&self, folder: &Path) -> Result<Model> {
        let ready = folder.join("model");
        let mut command = Command::new(self.folder.join("scripted-model"));
        command
            .arg("--ready-file")
            .arg(&ready)
            .stdout(Stdio::null());
        let process = Running::start("the scripted model", &mut command)?;
        let url = process.until("writes its address", || fs::read_to_string(&ready).ok())?;
        let address = url
            .trim()
            .strip_prefix("http://")
            .context("the model's address is a URL")?
            .to_owned();
        Ok(Model { process, address })
    }

    fn server(&self, folder: &Path, model: Option<&str>) -> Result<Running> {
        let mut config = format!(
            "state_dir = {state:?}\nrun_dir = {run:?}\ncache_dir = {cache:?}\nsandbox.local.runner = {runner:?}\n",
            state = folder.join("state"),
            run = folder.join("run"),
            cache = folder.join("cache"),
            runner = self.runner,
        );
        if let Some(model) = model {
            let port = model
                .rsplit(':')
                .next()
                .context("the model's address has a port")?;
            config += &format!(
                "model.direct.base_url = \"http://model.test:{port}\"\n\
                 [egress.static_hosts]\n\"model.test:{port}\" = {model:?}\n"
            );
        }
        let file = folder.join("astrabox.toml");
        fs::write(&file, config)?;
        let log = File::create(folder.join("log"))?;
        let mut command = Command::new(self.folder.join("astraboxd"));
        command
            .arg("--config")
            .arg(&file)
            .stdout(log.try_clone()?)
            .stderr(log);
        let server = Running::start("the server", &mut command)?;
        server.until("serves", || {
            let mut look = self.command(folder, &["engine", "list"]);
            let seen = look.stdout(Stdio::null()).stderr(Stdio::null()).status();
            seen.is_ok_and(|status| status.success()).then_some(())
        })?;
        Ok(server)
    }

    fn command(&self, folder: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("astrabox"));
        command
            .arg("--config")
            .arg(folder.join("astrabox.toml"))
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command of the product as a person would, output and all.
    fn astrabox(&self, folder: &Path, arguments: &[&str]) -> Result<()> {
        println!(
            "$ astrabox {}",
            arguments
                .iter()
                .map(|argument| quoted(argument))
                .collect::<Vec<_>>()
                .join(" ")
        );
        let status = self
            .command(folder, arguments)
            .status()
            .context("cannot start astrabox")?;
        ensure!(status.success(), "astrabox {}: {status}", arguments[0]);
        Ok(())
    }

    fn astrabox_json(&self, folder: &Path, arguments: &[&str]) -> Result<Value> {
        println!("$ astrabox {}", arguments.join(" "));
        let output = self
            .command(folder, arguments)
            .stderr(Stdio::inherit())
            .output()?;
        ensure!(
            output.status.success(),
            "astrabox {}: {}",
            arguments.join(" "),
            output.status
        );
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

fn quoted(argument: &str) -> String {
    let plain = argument
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_./:".contains(&b));
    if plain {
        argument.to_owned()
    } else {
        format!("'{argument}'")
    }
}

/// A program that runs beside the story.
struct Running {
    what: &'static str,
    child: Child,
}

impl Running {
    fn start(what: &'static str, command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        Ok(Self { what, child })
    }

    /// Waits until `look` finds something.
    fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(found) = look() {
                return Ok(found);
            }
            wait_a_little();
        }
        bail!("{} does not come so far that it {what}", self.what)
    }

    /// Ends it in order and waits for it.
    fn end(mut self) -> Result<()> {
        let asked = Command::new("kill")
            .arg(self.child.id().to_string())
            .status()?;
        ensure!(asked.success(), "{} could not be signalled", self.what);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{}: {status}", self.what);
                return Ok(());
            }
            wait_a_little();
        }
        bail!("{} does not end", self.what)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a failed story; one that ended well has nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program without an executor waits for another program"
)]
fn wait_a_little() {
    std::thread::sleep(Duration::from_millis(20));
}

/// A short temporary folder, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        // Short, because paths of sockets are limited; private, because the server demands it.
        let path = std::env::temp_dir().join(format!("ab-demo-{}", std::process::id()));
        fs::create_dir(&path).context("a temporary folder")?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!(
                "the folder {} could not be removed: {error}",
                self.0.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_model_is_asked_only_by_name_and_with_a_key() {
        assert_eq!(Brain::of(None, false).ok(), Some(Brain::Scripted));
        let real = Brain::of(Some("m".to_owned()), true).ok();
        assert_eq!(real, Some(Brain::Real("m".to_owned())));
        for (model, has_key) in [(None, true), (Some("m".to_owned()), false)] {
            let error = Brain::of(model, has_key).unwrap_err().to_string();
            assert!(error.contains(KEY) && error.contains("--model"), "{error}");
        }
    }
}
