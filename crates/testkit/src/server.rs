//! A server for tests: the real `astraboxd`, a process of its own, with everything below one temporary folder.
//!
//! It can be killed and started again over the same folder, as an operator's server is by a power failure.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use astrabox_client::{Client, Endpoint};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// How long a server may take until it serves.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long a server may take to end in order.
const END_WITHIN: Duration = Duration::from_secs(40);
/// How long between two looks at a server that starts.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server process over a temporary folder. Dropping it kills the process and whatever sandboxes a failed test has
/// left; `stop` ends it in order.
pub struct ServerProcess {
    folder: tempfile::TempDir,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: BTreeMap<String, String>,
    child: Option<Child>,
}

/// What a server for tests is like.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The model endpoint's base URL.
    pub model: Option<String>,
    /// Names that sandboxes reach at an address given here: `model.test:80` to `127.0.0.1:4711`.
    pub static_hosts: BTreeMap<String, String>,
    /// More settings, as lines of TOML without a table, such as `sessions.stall_timeout = "2s"`.
    pub settings: Vec<String>,
    /// Variables of the server's environment, beside those of the test.
    pub environment: BTreeMap<String, String>,
    /// The folder with `astraboxd`; the one of the running test when absent.
    pub bin_dir: Option<PathBuf>,
    /// A program and its first arguments that is called in place of `astraboxd`.
    pub command: Vec<OsString>,
}

impl ServerOptions {
    /// A server whose sandboxes reach a model endpoint on this host's loopback under a name of its own.
    #[must_use]
    pub fn with_model(address: std::net::SocketAddr) -> Self {
        let name = format!("model.test:{}", address.port());
        Self {
            model: Some(format!("http://{name}")),
            static_hosts: BTreeMap::from([(name, address.to_string())]),
            ..Self::default()
        }
    }

    fn config(&self, folder: &Path) -> String {
        let mut text = String::new();
        for name in ["state", "run", "cache"] {
            let _ = writeln!(
                text,
                "{name}_dir = {:?}",
                folder.join(name).display().to_string()
            );
        }
        let _ = writeln!(text, "log.level = \"info\"");
        if let Some(model) = &self.model {
            let _ = writeln!(text, "model.direct.base_url = {model:?}");
        }
        if let Some(runner) = std::env::var_os("ASTRABOX_RUNNER") {
            let _ = writeln!(
                text,
                "sandbox.local.runner = {:?}",
                PathBuf::from(runner).display().to_string()
            );
        }
        for line in &self.settings {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(text, "\n[egress.static_hosts]");
        for (name, address) in &self.static_hosts {
            let _ = writeln!(text, "{name:?} = {address:?}");
        }
        text
    }
}

/// The folder with the programs: `ASTRABOX_BIN_DIR`, or where the running test was built.
///
/// # Errors
/// When the programs are not there; says how to build them.
pub fn bin_dir() -> Result<PathBuf> {
    let folder = match std::env::var_os("ASTRABOX_BIN_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            // target/debug/deps/test-1234 or target/debug/program
            let program = std::env::current_exe().context("the running program's path")?;
            let folder = program.parent().context("the running program's folder")?;
            let deps = folder.file_name().is_some_and(|name| name == "deps");
            if deps {
                folder.parent().unwrap_or(folder)
            } else {
                folder
            }
            .to_path_buf()
        }
    };
    ensure!(
        folder.join("astraboxd").is_file(),
        "astraboxd is not built: run `cargo build -p astraboxd -p astrabox -p astrabox-runner`"
    );
    Ok(folder)
}

impl ServerProcess {
    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    /// When the program is missing or does not come up; the error has the end of its log.
    pub async fn start(options: &ServerOptions) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("ab-")
            .tempdir()
            .context("a temporary folder")?;
        std::fs::write(
            folder.path().join("astrabox.toml"),
            options.config(folder.path()),
        )?;
        let (program, arguments) = match (options.command.split_first(), &options.bin_dir) {
            (Some((program, arguments)), _) => (program.into(), arguments.to_vec()),
            (None, Some(folder)) => (folder.join("astraboxd"), Vec::new()),
            (None, None) => (bin_dir()?.join("astraboxd"), Vec::new()),
        };
        let mut server = Self {
            folder,
            program,
            arguments,
            environment: options.environment.clone(),
            child: None,
        };
        server.start_again().await?;
        Ok(server)
    }

    /// Starts the server over the same folder, after `kill` or `stop`.
    ///
    /// # Errors
    /// As `start`.
    pub async fn start_again(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "the server runs already");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .arg("--config")
            .arg(self.folder.path().join("astrabox.toml"))
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().transpose())
            {
                self.child = None;
                bail!(
                    "the server ended with {}; its log ends:\n{}",
                    status?,
                    self.log_tail()
                );
            }
            if let Ok(client) = self.client().await
                && client.is_serving().await.unwrap_or(false)
            {
                return Ok(());
            }
            if Instant::now() > until {
                bail!(
                    "the server does not serve; its log ends:\n{}",
                    self.log_tail()
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// A client of this server.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::connect(Endpoint::unix(self.socket())).await?)
    }

    /// Its unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("run/astrabox.sock")
    }

    /// The folder that everything of this server is below.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Its whole log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The lines of the audit log of its egress role so far, each a JSON object.
    ///
    /// # Errors
    /// When it cannot be read, as before the role has written a line.
    pub fn audit(&self) -> Result<Vec<String>> {
        let path = self.folder.path().join("state/egress/audit.jsonl");
        let text = std::fs::read_to_string(path)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Kills the server process (SIGKILL), and nothing else.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the server does not run")?;
        child.kill().await.context("killing the server")
    }

    /// Ends the server in order (SIGTERM) and waits for it.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn stop(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the server does not run")?;
        let pid = child.id().context("the server has ended")?;
        let signalled = Command::new("kill").arg(pid.to_string()).status().await?;
        ensure!(signalled.success(), "the server could not be signalled");
        match tokio::time::timeout(END_WITHIN, child.wait()).await {
            Ok(status) => {
                ensure!(
                    status?.success(),
                    "the server ended badly; its log ends:\n{}",
                    self.log_tail()
                );
                Ok(())
            }
            Err(_) => {
                child.kill().await?;
                bail!(
                    "the server did not end in time; its log ends:\n{}",
                    self.log_tail()
                )
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // The sandboxes below must not be made anew.
            let _ = child.start_kill();
        }
        let sandboxes = self.folder.path().join("state/sandbox/local/sandboxes");
        let Ok(entries) = std::fs::read_dir(sandboxes) else {
            return;
        };
        for entry in entries.flatten() {
            if let Err(error) = self.remove_sandbox(&entry.path()) {
                note(&format!(
                    "a sandbox of a failed test could not be removed: {error:#}"
                ));
            }
        }
    }
}

impl ServerProcess {
    /// Kills the runner of a sandbox that nobody owns any more, and with it the sandbox, and removes what is left.
    fn remove_sandbox(&self, folder: &Path) -> Result<()> {
        let record = std::fs::read(folder.join("runner/runner.json"))?;
        let record: serde_json::Value = serde_json::from_slice(&record)?;
        let pid = record
            .pointer("/process/pid")
            .and_then(serde_json::Value::as_u64)
            .context("the runner's pid")?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let spec = folder.join("spec.json");
        let is_it = String::from_utf8_lossy(&line).contains(&*spec.to_string_lossy());
        if is_it {
            std::process::Command::new("kill")
                .args(["-9", &pid.to_string()])
                .status()?;
        }
        let runner = match std::env::var_os("ASTRABOX_RUNNER") {
            Some(runner) => PathBuf::from(runner),
            None => self.program.with_file_name("astrabox-runner"),
        };
        // The runner's lock is free once the kernel has let go of it.
        for _ in 0..100 {
            let cleaned = std::process::Command::new(&runner)
                .arg("clean")
                .arg(&spec)
                .stdout(Stdio::null())
                .status()?;
            if cleaned.success() {
                return Ok(());
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        bail!("it is still held")
    }
}

/// Says something where a failed test's output is.
#[expect(
    clippy::print_stderr,
    reason = "a test double tells the person who reads the failed test"
)]
fn note(text: &str) {
    eprintln!("{text}");
}
