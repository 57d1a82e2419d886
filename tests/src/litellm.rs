//! A real LiteLLM proxy for one test, in front of a scripted model that it takes for OpenAI's.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

/// The interpreter of an installed LiteLLM; `cargo xtask test` installs one and sets this.
const LITELLM: &str = "ASTRABOX_LITELLM";
/// The file for what could not be tested; `cargo xtask test` reads it.
const SKIPS: &str = "ASTRABOX_SKIPS";
/// How long it may take to come up: it loads some hundred packages, on a machine that is busy.
const UP_WITHIN: Duration = Duration::from_secs(240);
/// How long it may take to end in order.
const END_WITHIN: Duration = Duration::from_secs(30);
/// How long between two looks at one that starts.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Runs its command line, whatever folder it is installed in.
const PROGRAM: &str = "import sys; from litellm import run_server; sys.exit(run_server())";
/// The key that the proxy shows to the model.
pub const UPSTREAM_KEY: &str = "sk-upstream-of-the-proxy";

/// A proxy process. Dropping it kills it; `stop` ends it in order.
pub struct LitellmProxy {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    folder: tempfile::TempDir,
}

/// The interpreter of the installed LiteLLM; where there is none, says so for the test and in the list of skips.
///
/// # Errors
/// When the list of skips cannot be written.
#[expect(clippy::print_stderr, reason = "tells the person who runs the test")]
pub fn installed(test: &str) -> Result<Option<PathBuf>> {
    if let Some(python) = std::env::var_os(LITELLM) {
        return Ok(Some(PathBuf::from(python)));
    }
    let reason = "LiteLLM is not installed: `cargo xtask test --only litellm` does it, where there is a Python with pip";
    eprintln!("{test} is skipped: {reason}");
    if let Some(list) = std::env::var_os(SKIPS) {
        let mut list = std::fs::File::options().append(true).open(list)?;
        writeln!(list, "{test}\t{reason}")?;
    }
    Ok(None)
}

impl LitellmProxy {
    /// Starts a proxy with this key of its own that has one model, `scripted`, at this OpenAI endpoint, and waits until
    /// it serves.
    ///
    /// # Errors
    /// When it does not come up; the error has the end of its log.
    pub async fn start(python: &PathBuf, upstream: &str, key: &str) -> Result<Self> {
        // The port is free when it is chosen; somebody else may be quicker.
        let mut failure = None;
        for _ in 0..3 {
            match Self::start_once(python, upstream, key).await {
                Ok(proxy) => return Ok(proxy),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| anyhow::anyhow!("never tried")))
    }

    async fn start_once(python: &PathBuf, upstream: &str, key: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("ab-litellm-").tempdir()?;
        // JSON is YAML.
        let config = json!({
            "model_list": [{
                "model_name": "scripted",
                "litellm_params": {
                    "model": "openai/scripted",
                    "api_base": format!("{upstream}/v1"),
                    "api_key": UPSTREAM_KEY,
                },
            }],
            "litellm_settings": {"drop_params": true, "telemetry": false},
            "general_settings": {"master_key": key},
        });
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, config.to_string())?;
        let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new(python)
            .args(["-I", "-c", PROGRAM, "--host", "127.0.0.1"])
            .args([
                "--port",
                &address.port().to_string(),
                "--telemetry",
                "False",
            ])
            .arg("--config")
            .arg(&path)
            .env_clear()
            .env("HOME", folder.path())
            .env("PATH", "/usr/bin:/bin")
            // It asks nobody on the network when it starts.
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            // The model is asked over Chat Completions, which every such endpoint has.
            .env(
                "LITELLM_USE_CHAT_COMPLETIONS_URL_FOR_ANTHROPIC_MESSAGES",
                "true",
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start LiteLLM")?;
        let mut proxy = Self {
            address,
            child,
            folder,
        };
        let up = proxy.until_up().await;
        up.with_context(|| format!("its log ends:\n{}", proxy.log_tail()))?;
        Ok(proxy)
    }

    async fn until_up(&mut self) -> Result<()> {
        let until = Instant::now() + UP_WITHIN;
        while !self.is_up().await {
            if let Some(status) = self.child.try_wait()? {
                bail!("LiteLLM ended with {status}");
            }
            ensure!(Instant::now() < until, "LiteLLM does not serve");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Whether it answers as one that lives.
    async fn is_up(&self) -> bool {
        let asked = async {
            let mut stream = TcpStream::connect(self.address).await?;
            let request = "GET /health/liveliness HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.take(1024).read_to_end(&mut answer).await?;
            std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
        };
        matches!(timeout(Duration::from_secs(5), asked).await, Ok(Ok(true)))
    }

    /// The end of what it has written.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Ends it in order (SIGTERM) and waits for it.
    ///
    /// # Errors
    /// When it does not end in time; it is killed then.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("LiteLLM has ended")?;
        let signalled = Command::new("kill").arg(pid.to_string()).status().await?;
        ensure!(signalled.success(), "LiteLLM could not be signalled");
        match timeout(END_WITHIN, self.child.wait()).await {
            Ok(status) => {
                status?;
                Ok(())
            }
            Err(_) => {
                self.child.kill().await?;
                bail!("LiteLLM did not end in time");
            }
        }
    }
}
