//! `cargo xtask demo`: the product's main job, once, with everything real but the model.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::test::{self, Mode};

/// Variables in which people keep real model keys.
const KEYS: &[&str] = &[
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AZURE_OPENAI_API_KEY",
    "DEEPSEEK_API_KEY",
    "OPENROUTER_API_KEY",
];
/// How long a program of the demonstration may take to come up or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Run the product once: a real Codex in a real sandbox, driven by a scripted model.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<ExitCode> {
    refuse_real_keys(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))?;
    // The binaries and the image, by the same steps as for the tests.
    let context = test::prepare(&["image"], Mode::Local)?;
    let scratch = Scratch::new()?;
    let programs = Programs {
        folder: context.target.join("debug"),
        runner: context.runner()?,
    };
    let played = play(&programs, scratch.path());
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

/// A key that is meant for a real model must not come near a sandbox.
fn refuse_real_keys(is_set: impl Fn(&str) -> bool) -> Result<()> {
    if let Some(name) = KEYS.iter().find(|name| is_set(name)) {
        bail!(
            "{name} is set: a real model key would have to enter the sandbox, because credentials are not yet put \
             into requests outside of it. The demonstration needs no key; run it with `env -u {name} cargo xtask demo`"
        );
    }
    Ok(())
}

/// The story, told as it happens.
fn play(programs: &Programs, folder: &Path) -> Result<()> {
    title("A scripted model and a server with a temporary store");
    let model = programs.model(folder)?;
    let server = programs.server(folder, &model.address)?;

    title("An environment, an agent, a prompt: the agent writes a file and runs it");
    let environment = [
        "--json",
        "environment",
        "create",
        "--name",
        "demo",
        "--engine",
        "codex",
    ];
    programs.astrabox_json(folder, &environment)?;
    let agent = [
        "--json",
        "agent",
        "create",
        "--name",
        "demo",
        "--environment",
        "demo",
        "--model",
        "scripted",
        "--permission-mode",
        "never",
    ];
    let agent = programs.astrabox_json(folder, &agent)?;
    let agent = text(&agent, "/agent/id").or_else(|_| text(&agent, "/id"))?;
    let prompt = "SAY: I shall write a small program and run it.\n\
                  WRITE hello.sh echo \"hello from $(id -un) in $(pwd)\"\\nls /home /root 2>&1 || true\n\
                  RUN: sh hello.sh";
    programs.astrabox(folder, &["run", "--verbose", "--agent", &agent, prompt])?;

    let sessions = programs.astrabox_json(folder, &["--json", "session", "list"])?;
    let session = text(&sessions, "/sessions/0/id")?;
    title("The sandbox is thrown away; the conversation stays");
    programs.astrabox(folder, &["session", "release", &session])?;
    programs.astrabox(folder, &["sandbox", "list"])?;

    title("In a fresh sandbox the same conversation goes on: what was said, and the file");
    programs.astrabox(
        folder,
        &["run", "--verbose", "--session", &session, "RECALL"],
    )?;
    programs.astrabox(
        folder,
        &[
            "run",
            "--verbose",
            "--session",
            &session,
            "RUN: cat hello.sh",
        ],
    )?;

    title("Cleaning up");
    programs.astrabox(folder, &["session", "delete", &session])?;
    let left = programs.astrabox_json(folder, &["--json", "sandbox", "list"])?;
    let left = left
        .pointer("/sandboxes")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    ensure!(left == 0, "{left} sandboxes are left");
    server.end()?;
    model.process.end()
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

    fn server(&self, folder: &Path, model: &str) -> Result<Running> {
        let port = model
            .rsplit(':')
            .next()
            .context("the model's address has a port")?;
        let config = format!(
            "state_dir = {state:?}\nrun_dir = {run:?}\ncache_dir = {cache:?}\n\
             model.direct.base_url = \"http://model.test:{port}\"\nsandbox.local.runner = {runner:?}\n\
             [egress.static_hosts]\n\"model.test:{port}\" = {model:?}\n",
            state = folder.join("state"),
            run = folder.join("run"),
            cache = folder.join("cache"),
            runner = self.runner,
        );
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
    fn a_real_key_is_refused_by_name_and_with_the_reason() {
        assert!(refuse_real_keys(|_| false).is_ok());
        let error = refuse_real_keys(|name| name == "OPENAI_API_KEY")
            .expect_err("it is set")
            .to_string();
        assert!(
            error.contains("OPENAI_API_KEY") && error.contains("enter the sandbox"),
            "{error}"
        );
    }
}
