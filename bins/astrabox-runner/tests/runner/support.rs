//! One launched runner, removed with everything it made, whatever becomes of the test.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use astrabox_runner_core::protocol::launch::{
    Base, Cleaned, LaunchSpec, Limits, Report, SPEC_FORMAT, Started, Volume,
};
use astrabox_runner_core::protocol::state::StateDir;
use astrabox_runner_core::protocol::{
    AttachEvent, ConnectOptions, ExitInfo, OutputStream, ProcessInfo, RunnerClient, SpawnCommand,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::from_slice;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_astrabox-runner");

/// How long anything may take that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A user that is not root, for runners without privileges.
const ORDINARY: u32 = 65_534;

pub(crate) struct Box {
    pub(crate) spec: LaunchSpec,
    pub(crate) client: RunnerClient,
    pub(crate) started: Started,
    pub(crate) state: StateDir,
    uid: Option<u32>,
    spec_file: std::path::PathBuf,
    _dir: TempDir,
}

/// What a test wants to be different.
pub(crate) type Change = fn(&mut LaunchSpec);

pub(crate) fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Box {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: Change) -> Self {
        Self::launched_as(change, None).await
    }

    /// With a runner that has no privileges, even if the tests have.
    pub(crate) async fn rootless(change: Change) -> Self {
        Self::launched_as(change, am_root().then_some(ORDINARY)).await
    }

    async fn launched_as(change: Change, uid: Option<u32>) -> Self {
        let dir = tempfile::Builder::new().prefix("runner").tempdir().unwrap();
        let (spec, spec_file) = prepare(dir.path(), change, uid);
        let started = match launch(&spec_file, uid) {
            Report::Ok(started) => started,
            Report::Failed(failure) => panic!("launch: {failure:?}"),
        };
        let client = RunnerClient::connect(ConnectOptions::new(spec.runner_socket()))
            .await
            .unwrap();
        let state = StateDir::new(&spec.state_dir);
        Self {
            spec,
            client,
            started,
            state,
            uid,
            spec_file,
            _dir: dir,
        }
    }

    /// Another launch of the same spec.
    pub(crate) fn launch_again(&self) -> Report<Started> {
        launch(&self.spec_file, self.uid)
    }

    /// A second connection.
    pub(crate) async fn connect(&self) -> RunnerClient {
        let options = ConnectOptions::new(self.spec.runner_socket());
        RunnerClient::connect(options).await.unwrap()
    }

    pub(crate) fn clean(&self) -> Report<Cleaned> {
        let output = program(self.uid)
            .arg("clean")
            .arg(&self.spec_file)
            .output()
            .unwrap();
        from_slice(&output.stdout).unwrap()
    }

    pub(crate) fn runner_is_alive(&self) -> bool {
        self.started.process.is_alive().unwrap()
    }

    pub(crate) fn kill_runner(&self) {
        let pid = i32::try_from(self.started.process.pid).unwrap();
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        wait_ended(&[self.started.process.pid]);
    }

    pub(crate) async fn spawn(&self, command: SpawnCommand) -> ProcessInfo {
        self.client.spawn(command).await.unwrap()
    }

    /// Runs a shell script to its end.
    pub(crate) async fn run(&self, name: &str, script: &str) -> (String, String, ExitInfo) {
        self.spawn(shell(name, script)).await;
        self.collect(name, 0, 0).await
    }

    /// All output from these offsets on, and the end.
    pub(crate) async fn collect(
        &self,
        name: &str,
        out: u64,
        err: u64,
    ) -> (String, String, ExitInfo) {
        let mut attachment = self.client.attach(name, out, err).await.unwrap();
        let mut texts = [Vec::new(), Vec::new()];
        let collect = async {
            loop {
                match attachment.next().await.unwrap().unwrap() {
                    AttachEvent::Output { stream, data, .. } => {
                        texts[usize::from(stream == OutputStream::Stderr)].extend_from_slice(&data);
                    }
                    AttachEvent::Exited(exit) => return exit,
                }
            }
        };
        let exit = tokio::time::timeout(PATIENCE, collect)
            .await
            .expect("the process ends");
        let [out, err] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
        (out, err, exit)
    }

    /// The host's process ids of everything that lives in the box, found by its root directory.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let runner = self.started.process.pid.to_string();
        let mut found = Vec::new();
        let mut parents = vec![runner];
        while let Some(parent) = parents.pop() {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
            for child in children.unwrap_or_default().split_whitespace() {
                found.push(child.parse().unwrap());
                parents.push(child.to_owned());
            }
        }
        found
    }
}

impl Drop for Box {
    fn drop(&mut self) {
        if self.runner_is_alive() {
            self.kill_runner();
        }
        let cleaned = self.clean();
        if !std::thread::panicking() {
            assert_eq!(cleaned, Report::Ok(Cleaned {}));
        }
    }
}

/// Directories, a volume and a spec.
fn prepare(dir: &Path, change: Change, uid: Option<u32>) -> (LaunchSpec, std::path::PathBuf) {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut private = fs::DirBuilder::new();
    private.mode(0o700);
    let place = |name: &str| {
        let path = dir.join(name);
        private.create(&path).unwrap();
        if let Some(uid) = uid {
            std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
        }
        path
    };
    if uid.is_some() {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (run_dir, state_dir, volume, cache) = (
        place("run"),
        place("state"),
        place("volume"),
        place("cache"),
    );
    let mut spec = LaunchSpec {
        format: SPEC_FORMAT,
        sandbox_id: format!("sbx-{}-{number}", std::process::id()),
        root_id: format!("runner-tests-{}", std::process::id()),
        run_dir,
        state_dir,
        base: Base::Host,
        image: None,
        volume: Volume::Directory {
            path: volume.clone(),
        },
        host_uid: 1_960_000_000 + (std::process::id() % 10_000) * 100 + number,
        limits: Limits {
            memory_bytes: 256 << 20,
            pids: 64,
            cpu_millis: 2000,
            disk_bytes: 32 << 20,
            file_bytes: 16 << 20,
        },
        level: Default::default(),
        hostname: "box".into(),
        egress_port: 3128,
        spool_bytes: 4 << 20,
        stdin_bytes: 1 << 20,
        max_processes: 8,
        log_bytes: 64 << 10,
    };
    change(&mut spec);
    let bytes = spec.limits.disk_bytes.to_string();
    let output = program(uid)
        .arg("prepare-volume")
        .args([&cache, &volume])
        .arg(bytes)
        .output()
        .unwrap();
    match from_slice(&output.stdout).unwrap() {
        Report::Ok(volume) => spec.volume = volume,
        Report::Failed(failure) => panic!("volume: {failure:?}"),
    }
    let spec_file = dir.join("spec.json");
    spec.write(&spec_file).unwrap();
    if let Some(uid) = uid {
        std::os::unix::fs::chown(&spec_file, Some(uid), Some(uid)).unwrap();
    }
    (spec, spec_file)
}

fn program(uid: Option<u32>) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    command
}

/// Launches a runner; the launched process ends at once, the report comes from the one that stays.
pub(crate) fn launch(spec_file: &Path, uid: Option<u32>) -> Report<Started> {
    let output = program(uid).arg("run").arg(spec_file).output().unwrap();
    from_slice(&output.stdout).unwrap()
}

/// A process that runs a shell script.
pub(crate) fn shell(name: &str, script: &str) -> SpawnCommand {
    SpawnCommand {
        name: name.into(),
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/workspace".into(),
        ..Default::default()
    }
}

/// Waits for the ends of these processes, whoever's children they are.
pub(crate) fn wait_ended(pids: &[u32]) {
    let until = Instant::now() + PATIENCE;
    for pid in pids {
        let pid = Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        let ended = poll(&mut fds, Some(&left.try_into().unwrap())).unwrap();
        assert_eq!(ended, 1, "process {pid:?} did not end");
    }
}

/// Waits for a condition that is asked of the runner.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{what} did not come"));
}
