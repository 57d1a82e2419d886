//! The local provider conforms: as whoever runs the tests and, when that is root, as an ordinary user too.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use astrabox_conformance::sandbox::{HostView, ProviderFixture, assert_conforms};
use astrabox_sandbox::{EgressGate, Result, SandboxProvider};
use astrabox_types::SandboxId;
use async_trait::async_trait;
use rustix::process::Signal;
use support::{Host, runner_program};

struct Local(Host);

#[async_trait]
impl ProviderFixture for Local {
    fn name(&self) -> String {
        "local".to_owned()
    }

    async fn provider(
        &self,
        root: &str,
        gate: Arc<dyn EgressGate>,
    ) -> Result<Arc<dyn SandboxProvider>> {
        self.0.provider(root, gate).await
    }

    fn host(&self) -> Option<HostView> {
        let directories = vec![self.0.path().to_owned()];
        Some(HostView { directories })
    }

    async fn cut_off(&self, root: &str, id: SandboxId) -> bool {
        self.0.signal(root, id, Signal::STOP);
        true
    }

    async fn mend(&self, root: &str, id: SandboxId) {
        self.0.signal(root, id, Signal::CONT);
    }
}

/// The suite looks at the whole process, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn provider_conformance() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_conforms(Arc::new(Local(Host::new())));
}

/// A user who is not root and owns nothing.
const ORDINARY: u32 = 65_534;

#[test]
fn an_ordinary_user_has_conforming_sandboxes_too() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !rustix::process::geteuid().is_root() {
        println!("skipped: the tests run as an ordinary user already");
        return;
    }
    // The programs are copied to where that user can read them.
    let home = tempfile::Builder::new()
        .prefix("abx")
        .tempdir()
        .expect("a directory");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let scratch = home.path().join("t");
    fs::create_dir(&scratch).expect("it is new");
    chown(&scratch, Some(ORDINARY), Some(ORDINARY)).expect("it is ours");
    let test = home.path().join("conformance");
    let own = std::env::current_exe().expect("this is a program");
    for (from, to) in [
        (own.as_path(), &test),
        (runner_program(), &home.path().join("astrabox-runner")),
    ] {
        fs::copy(from, to).expect("there is room");
    }
    let output = Command::new(&test)
        .args(["--exact", "provider_conformance", "--nocapture"])
        .env("TMPDIR", &scratch)
        .current_dir(&scratch)
        .uid(ORDINARY)
        .gid(ORDINARY)
        .output()
        .expect("the copy runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    assert!(told.contains("1 passed"), "{told}");
}
