//! A server in a runtime of its own, so that it can be killed, and the programs that talk to it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use astrabox_builtin as _;
use astrabox_client::{Client, Endpoint, v1};
use astrabox_config::{Block, Config, Host};
use astrabox_egress::EgressPolicy;
use astrabox_registry::Registry;
use astrabox_sandbox::{
    BoxPath, EgressGate, EgressListener, EgressWorkload, ProviderContext, Registration, Result,
    SandboxProvider, WORKSPACE, WriteOptions,
};
use astrabox_server::platform::Images;
use astrabox_server::{App, EgressMode, Registries, RunningApp};
use astrabox_testkit::fake_engine;
use astrabox_types::SandboxId;
use async_trait::async_trait;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::pty::Pty;

/// How long anything may take. Far more than it takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of the programs: as the test run says, else they are built here.
fn programs() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("ASTRABOX_BIN_DIR") {
            return folder.into();
        }
        let test = std::env::current_exe().expect("this is a program");
        let folder = test.ancestors().nth(2).expect("target/PROFILE/deps");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--target-dir"]);
        build.arg(folder.parent().expect("target/PROFILE is in target"));
        build.args([
            "-p",
            "astrabox",
            "-p",
            "astrabox-testkit",
            "-p",
            "astrabox-runner",
            "--bins",
        ]);
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(built.expect("cargo runs").success(), "they are built");
        folder.to_owned()
    })
}

/// The one image that there is.
struct OneImage(PathBuf);

impl Images for OneImage {
    fn name_for(&self, engine: &'static str) -> String {
        engine.to_owned()
    }

    fn find(&self, _name: &str) -> Option<PathBuf> {
        Some(self.0.clone())
    }

    fn build_command(&self, _engine: &'static str) -> String {
        "nothing to build".to_owned()
    }
}

/// A server, and everything of it below one folder.
pub(crate) struct Stage {
    folder: tempfile::TempDir,
    server: Option<(Runtime, RunningApp)>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("ab-").tempdir();
        let folder = folder.expect("a folder");
        let engine = programs().join("fake-engine");
        fake_engine::image(&engine, &folder.path().join("image")).expect("an image");
        let mut stage = Self {
            folder,
            server: None,
        };
        stage.start();
        stage
    }

    /// Starts the server, after `kill`.
    pub(crate) fn start(&mut self) {
        assert!(self.server.is_none(), "it runs");
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let app = self.app();
        let running = runtime.block_on(app.spawn()).expect("it starts");
        self.server = Some((runtime, running));
    }

    fn config(&self) -> Config {
        let folder = self.folder.path();
        let mut config = Config::below(folder, &Host::of_process());
        let mut direct = Block::default();
        direct.set("base_url", "http://model.test:9");
        direct.set("default_model", "scripted");
        config.model.providers.insert("direct".into(), direct);
        let runner = std::env::var_os("ASTRABOX_RUNNER").map(PathBuf::from);
        let runner = runner.unwrap_or_else(|| programs().join("astrabox-runner"));
        let mut local = Block::default();
        local.set("runner", runner.display().to_string());
        config.sandbox.providers.insert("local".into(), local);
        config
    }

    fn app(&self) -> App {
        let registries = Registries::linked().expect("no name is taken twice");
        let registries = registries.with_engine(fake_engine::registration());
        let image = self.folder.path().join("image");
        App::builder(self.config())
            .registries(registries.expect("no name is taken twice"))
            .egress(EgressMode::Embedded)
            .images(Arc::new(OneImage(image)))
            .build()
            .expect("the configuration is fine")
    }

    /// Ends the server in the middle of what it does.
    pub(crate) fn kill(&mut self) {
        let (runtime, running) = self.server.take().expect("it runs");
        runtime.shutdown_timeout(PATIENCE);
        drop(running);
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("run/astrabox.sock")
    }

    /// The program with the server named, without the test's own environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(programs().join("astrabox"));
        self.prepare(&mut command).args(arguments);
        command
    }

    fn prepare<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TERM", "xterm")
            .env("ASTRABOX_MODEL__DIRECT__DEFAULT_MODEL", "scripted")
            .env("ASTRABOX_SOCKET", self.socket())
    }

    /// The program at a terminal of its own.
    pub(crate) fn at_terminal(&self, arguments: &[&str]) -> Pty {
        self.at_terminal_with(arguments, &[])
    }

    /// The program at a terminal of its own, with more in its environment.
    pub(crate) fn at_terminal_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Pty {
        let program = programs().join("astrabox");
        Pty::start(&program, |command| {
            self.prepare(command)
                .args(arguments)
                .envs(variables.iter().copied());
        })
    }

    /// The program in a pipe, to its end.
    pub(crate) fn piped(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null());
        command.output().expect("it starts")
    }

    /// The program in a pipe; it succeeds and prints an object.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.piped(&[&["--json"], arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("an object")
    }

    /// The id of the newest session.
    pub(crate) fn session(&self) -> String {
        let sessions = self.json(&["session", "list"]);
        let id = sessions["sessions"][0]["id"].as_str();
        id.expect("there is a session").to_owned()
    }

    /// Puts a file into the workspace of the session: the word for which a `HOLD` waits.
    pub(crate) fn word(&self, session: &str, name: &str) {
        let sandboxes = self.json(&["sandbox", "list"]);
        let sandboxes = sandboxes["sandboxes"].as_array().expect("a list");
        let own = sandboxes
            .iter()
            .find(|found| found["session_id"] == session);
        let id = own.expect("it has a sandbox")["id"].as_str();
        let id = id.and_then(|id| id.parse().ok()).expect("an id");
        let path = BoxPath::new(format!("{WORKSPACE}/{name}")).expect("a plain name");
        block_on(async {
            let inside = self.provider().await.connect(id).await.expect("it lives");
            let written = inside
                .workload
                .write_file(&path, "x".into(), WriteOptions::default());
            written.await.expect("it is writable");
        });
    }

    /// The sandboxes of the server, past it.
    async fn provider(&self) -> Arc<dyn SandboxProvider> {
        let config = self.config();
        let context = ProviderContext {
            state_dir: config.state_dir.join("sandbox/local"),
            run_dir: config.run_dir.join("local"),
            cache_dir: config.cache_dir.join("sandbox/local"),
            root_id: config.root_id(),
            gate: Arc::new(NoGate),
        };
        let block = config.sandbox.providers["local"].value();
        let linked = Registry::<Registration>::linked().expect("names are unique");
        let local = linked.get("local").expect("it is linked");
        local.build(block, context).await.expect("it finds them")
    }

    /// Waits until there is a session, and gives its id.
    pub(crate) fn until_session(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sessions = self.json(&["session", "list"]);
            if let Some(id) = sessions["sessions"][0]["id"].as_str() {
                return id.to_owned();
            }
            assert!(Instant::now() < deadline, "there is no session");
        }
    }

    /// Waits until the session is in this state.
    pub(crate) fn until_state(&self, session: &str, state: v1::SessionState) {
        let deadline = Instant::now() + PATIENCE;
        block_on(async {
            let client = Client::connect(Endpoint::unix(self.socket())).await;
            let mut watch = client
                .expect("it serves")
                .watch(session, astrabox_client::WatchOptions::default())
                .await
                .expect("it is there");
            let mut found = false;
            while !found {
                let left = deadline.saturating_duration_since(Instant::now());
                let item = tokio::time::timeout(left, watch.next()).await;
                let item = item.expect("it comes in time").expect("the watch goes on");
                if let Some(astrabox_client::WatchItem::Event(event)) = item
                    && let Some(v1::event::Payload::SessionStatus(status)) = event.payload
                {
                    found = status.state() == state;
                }
            }
        });
    }

    /// Removes every session, sees that nothing is left, and ends the server in order.
    pub(crate) fn clear(mut self) {
        let sessions = self.json(&["session", "list", "--archived"]);
        for session in sessions["sessions"].as_array().expect("a list") {
            let id = session["id"].as_str().expect("an id");
            self.json(&["session", "delete", id]);
        }
        let left = self.json(&["sandbox", "list"]);
        assert_eq!(left["sandboxes"], serde_json::json!([]));
        let (runtime, running) = self.server.take().expect("it runs");
        runtime.block_on(running.shutdown());
        runtime.shutdown_timeout(PATIENCE);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After a failed test: what its sessions left is removed by the server that has them.
        if self.server.is_none() && std::thread::panicking() {
            self.start();
        }
        let Some((runtime, running)) = self.server.take() else {
            return;
        };
        let sessions = self.piped(&["--json", "session", "list", "--archived"]);
        let sessions: Value = serde_json::from_slice(&sessions.stdout).unwrap_or_default();
        for session in sessions["sessions"].as_array().into_iter().flatten() {
            if let Some(id) = session["id"].as_str() {
                self.piped(&["session", "delete", id]);
            }
        }
        runtime.block_on(running.shutdown());
        runtime.shutdown_timeout(PATIENCE);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// For a provider that opens no sandbox.
struct NoGate;

#[async_trait]
impl EgressGate for NoGate {
    async fn open(&self, _: EgressWorkload, _: EgressPolicy, _: EgressListener) -> Result<()> {
        Ok(())
    }

    async fn update(&self, _: SandboxId, _: EgressPolicy) -> Result<()> {
        Ok(())
    }

    async fn close(&self, _: SandboxId) -> Result<()> {
        Ok(())
    }
}
