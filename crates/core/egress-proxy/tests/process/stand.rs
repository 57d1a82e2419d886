//! A role in a process, and what speaks to it.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use astrabox_egress::EgressPolicy;
use astrabox_egress_proxy::{
    EgressConfig, EgressGateClient, GateOptions, RoleConfig, RoleInfo, spawn_role,
};
use astrabox_sandbox::{EgressGate, EgressWorkload};
use astrabox_types::{SandboxId, SessionId};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::yield_now();
    }
}

/// Tells the person who reads the tests' output.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The role's program: this one.
pub(crate) fn argv() -> Vec<OsString> {
    vec![std::env::current_exe().unwrap().into(), "be-a-role".into()]
}

/// A folder for a role, and whatever role runs there in the end.
pub(crate) struct Stand {
    /// Nothing when the folder, and the role in it, are another process's.
    own: Option<TempDir>,
    pub(crate) folder: PathBuf,
    pub(crate) config: RoleConfig,
    pub(crate) runtime: Runtime,
}

pub(crate) struct Sandbox {
    pub(crate) id: SandboxId,
    pub(crate) proxy: SocketAddr,
}

pub(crate) fn role_config(folder: &Path, egress: EgressConfig) -> RoleConfig {
    RoleConfig {
        run_dir: folder.join("run"),
        audit_dir: folder.join("state/audit"),
        authority_dir: folder.join("state/authority"),
        egress,
    }
}

/// Starts a role as a server would that dies right after.
pub(crate) fn start_and_leave(folder: &str, user: &str) -> ExitCode {
    let egress = EgressConfig {
        user: (!user.is_empty()).then(|| user.to_owned()),
        ..EgressConfig::default()
    };
    let config = role_config(folder.as_ref(), egress);
    let runtime = Runtime::new().unwrap();
    let role = runtime
        .block_on(spawn_role(&config, &argv(), PATIENCE))
        .unwrap();
    std::io::stdout()
        .write_all(role.pid.to_string().as_bytes())
        .unwrap();
    ExitCode::SUCCESS
}

impl Stand {
    pub(crate) fn new(egress: EgressConfig) -> Self {
        let own = tempfile::tempdir().unwrap();
        let mut stand = Self::at(own.path(), egress);
        stand.own = Some(own);
        stand
    }

    /// In another process's folder.
    pub(crate) fn at(folder: impl AsRef<Path>, egress: EgressConfig) -> Self {
        Self {
            own: None,
            folder: folder.as_ref().to_owned(),
            config: role_config(folder.as_ref(), egress),
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap(),
        }
    }

    pub(crate) fn start_role(&self) -> RoleInfo {
        self.runtime
            .block_on(spawn_role(&self.config, &argv(), PATIENCE))
            .unwrap()
    }

    pub(crate) fn gate(&self) -> EgressGateClient {
        let options = GateOptions::new(self.config.clone(), Some(argv()));
        self.runtime
            .block_on(EgressGateClient::connect(options))
            .unwrap()
    }

    /// A program by this name that starts a role, tells its pid and ends.
    pub(crate) fn started_by_another(&self, user: &str) -> i32 {
        let output = Command::new(std::env::current_exe().unwrap())
            .arg("start-a-role")
            .arg(&self.folder)
            .arg(user)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    }

    pub(crate) fn open(
        &self,
        gate: &EgressGateClient,
        allowed: &[&str],
        listener: TcpListener,
    ) -> Sandbox {
        let sandbox = Sandbox {
            id: SandboxId::new(),
            proxy: listener.local_addr().unwrap(),
        };
        let workload = EgressWorkload {
            sandbox_id: sandbox.id,
            session_id: SessionId::new(),
        };
        let policy = EgressPolicy {
            unrestricted: false,
            allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
        };
        self.runtime
            .block_on(gate.open(workload, policy, listener.into()))
            .unwrap();
        sandbox
    }
}

impl Drop for Stand {
    /// Ends whatever role there is, so that a failed test leaves none behind.
    fn drop(&mut self) {
        if self.own.is_none() {
            return;
        }
        let options = GateOptions::new(self.config.clone(), None);
        let end = async {
            if let Ok(gate) = EgressGateClient::connect(options).await {
                let _ = gate.shutdown_role().await;
            }
        };
        self.runtime.block_on(end);
    }
}

/// Sends a request and reads to the end of the connection.
pub(crate) fn ask(proxy: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(crate) fn connect_to(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

/// A field of `/proc/<pid>/status`.
pub(crate) fn status(pid: i32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line[field.len()..]
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

pub(crate) fn is_running(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub(crate) fn exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
