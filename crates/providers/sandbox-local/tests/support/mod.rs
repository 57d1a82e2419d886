//! The local provider for tests, with the runner of this very build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use astrabox_runner_protocol::ProcessIdentity;
use astrabox_runner_protocol::state::StateDir;
use astrabox_sandbox::{EgressGate, ProviderContext, Result, SandboxProvider};
use astrabox_types::SandboxId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

/// The runner program: the one named in `ASTRABOX_TEST_RUNNER`, else built here when it is not there or old.
pub(crate) fn runner_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(named) = std::env::var_os("ASTRABOX_TEST_RUNNER") {
            return named.into();
        }
        let test = std::env::current_exe().expect("this is a program");
        // A copy of this test and of the runner may stand side by side.
        let beside = test.with_file_name("astrabox-runner");
        if beside.is_file() {
            return beside;
        }
        let folder = test
            .ancestors()
            .nth(2)
            .expect("it is in target/PROFILE/deps");
        let mut build = Command::new(env!("CARGO"));
        build
            .args([
                "build",
                "--quiet",
                "--package",
                "astrabox-runner",
                "--target-dir",
            ])
            .arg(folder.parent().expect("target/PROFILE is in target"));
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(built.expect("cargo runs").success(), "the runner is built");
        folder.join("astrabox-runner")
    })
}

/// A host's worth of local providers, removed at the end.
pub(crate) struct Host(TempDir);

impl Host {
    pub(crate) fn new() -> Self {
        // Sockets go below it, and their paths are short.
        Self(
            tempfile::Builder::new()
                .prefix("abx")
                .tempdir()
                .expect("a directory"),
        )
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The provider of a server over this root.
    pub(crate) async fn provider(
        &self,
        root: &str,
        gate: Arc<dyn EgressGate>,
    ) -> Result<Arc<dyn SandboxProvider>> {
        let context = ProviderContext {
            state_dir: self.state(root),
            run_dir: self.path().join(root).join("r"),
            cache_dir: self.path().join("c"),
            root_id: root.to_owned(),
            gate,
        };
        for directory in [&context.state_dir, &context.run_dir, &context.cache_dir] {
            std::fs::create_dir_all(directory).expect("a directory");
        }
        let config = json!({ "runner": runner_program() });
        astrabox_sandbox_local::REGISTRATION
            .build(config, context)
            .await
    }

    fn state(&self, root: &str) -> PathBuf {
        self.path().join(root).join("s")
    }

    /// The runner of a sandbox.
    pub(crate) fn runner(&self, root: &str, id: SandboxId) -> ProcessIdentity {
        let sandbox = self.state(root).join("sandboxes").join(id.to_string());
        let record = StateDir::new(sandbox.join("runner")).read_runner();
        record.expect("a record").expect("a runner").process
    }

    /// Sends a signal to the runner of a sandbox.
    pub(crate) fn signal(&self, root: &str, id: SandboxId, signal: Signal) {
        let pid = i32::try_from(self.runner(root, id).pid).expect("a pid");
        kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("the runner is there");
    }
}
