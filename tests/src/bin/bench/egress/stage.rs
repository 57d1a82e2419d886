//! One upstream, and every way to it: straight, through a plain relay, through the egress role, through mitmproxy.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, EgressPolicy, HeaderPlace, MintKey, Placeholder,
    Places,
};
use astrabox_egress_proxy::{
    EgressConfig, EgressGateClient, GateOptions, RoleConfig, StaticHosts, spawn_role,
};
use astrabox_sandbox::{CredentialValues, EgressCredentials as _, EgressGate as _, EgressWorkload};
use astrabox_types::{SandboxId, Secret, SessionId};
use rustls::ClientConfig;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout};

use super::certificates::{self, HOST, ROOT};
use super::upstream::VALUE;

/// The interpreter of an installed mitmproxy; `cargo xtask bench` installs one and sets this.
const MITMPROXY: &str = "ASTRABOX_MITMPROXY";
/// Runs its command line, whatever folder it is installed in.
const MITMDUMP: &str =
    "import sys; from mitmproxy.tools.main import mitmdump; sys.exit(mitmdump())";
/// What it does with each request.
const ADDON: &str = include_str!("../../../../mitmproxy/inject.py");
/// How long anything may take to come up.
const UP_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// More than the figures need.
const CONNECTIONS: usize = 1024;

/// How a client reaches the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Direct,
    Relay,
    Role,
    Mitmproxy,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Relay => "plain relay",
            Self::Role => "egress role",
            Self::Mitmproxy => "mitmproxy",
        }
    }
}

/// One way to the upstream.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) kind: Kind,
    /// Whom to connect to.
    pub(super) address: SocketAddr,
    /// The process in between.
    pub(super) pid: Option<u32>,
    /// What the client shows: the value where nobody puts it in, else its placeholder.
    pub(super) shows: String,
    /// Whom the client trusts.
    pub(super) trust: Arc<ClientConfig>,
}

/// Everything that runs for a figure.
pub(super) struct Stage {
    pub(super) routes: Vec<Route>,
    /// What is missing and why.
    pub(super) notes: Vec<String>,
    gate: EgressGateClient,
    _processes: Vec<Child>,
    _folder: TempDir,
}

impl Stage {
    pub(super) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("ab-").tempdir()?;
        let path = folder.path();
        certificates::make(path)?;
        let root = std::fs::read_to_string(path.join(ROOT))?;
        let shown = certificates::client(&root)?;

        let (upstream, address) = own("egress-upstream", path.as_os_str().to_owned()).await?;
        let (relay, relay_address) = own("egress-relay", address.to_string().into()).await?;
        let straight = |kind, address, pid| Route {
            kind,
            address,
            pid,
            shows: VALUE.to_owned(),
            trust: Arc::clone(&shown),
        };
        let mut routes = vec![
            straight(Kind::Direct, address, None),
            straight(Kind::Relay, relay_address, relay.id()),
        ];
        let placeholder = Placeholder::mint(&MintKey::new([7; 32]), "bench", "bench");
        let (role, gate) = role(path, address, &placeholder).await?;
        routes.push(role);
        let mut processes = vec![upstream, relay];
        let mut notes = Vec::new();
        match std::env::var_os(MITMPROXY) {
            Some(python) => {
                let (route, child) = mitmproxy(&python, path, address, &placeholder).await?;
                routes.push(route);
                processes.push(child);
            }
            None => notes.push(format!(
                "mitmproxy is not measured: {MITMPROXY} names no Python that has it; `cargo xtask bench` installs it"
            )),
        }
        Ok(Self {
            routes,
            notes,
            gate,
            _processes: processes,
            _folder: folder,
        })
    }

    /// Ends the role; the others end when their input does.
    pub(super) async fn end(self) -> Result<()> {
        self.gate.shutdown_role().await?;
        self.gate.disconnect().await;
        Ok(())
    }
}

/// This program in one of its other parts, and where it listens.
async fn own(part: &str, argument: OsString) -> Result<(Child, SocketAddr)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(part)
        .arg(argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {part}"))?;
    let out = child.stdout.take().context("its output")?;
    let mut lines = BufReader::new(out).lines();
    let line = timeout(UP_WITHIN, lines.next_line()).await??;
    let address = line.with_context(|| format!("{part} does not start"))?;
    Ok((child, address.parse()?))
}

/// `astraboxd egress` with one sandbox, whose credential may stand in the Authorization header.
async fn role(
    folder: &Path,
    upstream: SocketAddr,
    placeholder: &Placeholder,
) -> Result<(Route, EgressGateClient)> {
    let mut static_hosts = StaticHosts::default();
    static_hosts
        .insert(HOST, &upstream.to_string())
        .map_err(anyhow::Error::msg)?;
    let config = RoleConfig {
        run_dir: folder.join("run"),
        audit_dir: folder.join("audit"),
        authority_dir: folder.join("authority"),
        egress: EgressConfig {
            static_hosts,
            extra_roots: vec![folder.join(ROOT)],
            max_connections: CONNECTIONS,
            // Nothing is left for long when this program is stopped.
            orphan_grace: Duration::from_secs(5),
            ..EgressConfig::default()
        },
    };
    let program = std::env::current_exe()?.with_file_name("astraboxd");
    let argv = vec![program.into(), "egress".into()];
    let info = spawn_role(&config, &argv, UP_WITHIN).await?;
    let gate = EgressGateClient::connect(GateOptions::new(config, Some(argv))).await?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let sandbox_id = SandboxId::new();
    let workload = EgressWorkload {
        sandbox_id,
        session_id: SessionId::new(),
    };
    let policy = EgressPolicy {
        unrestricted: false,
        allowed: Vec::new(),
    };
    gate.open(workload, policy, listener.into()).await?;
    let grant = CredentialGrant {
        credential_id: "bench".to_owned(),
        handle: "BENCH_TOKEN".to_owned(),
        placeholder: placeholder.clone(),
        hosts: vec![HOST.parse()?],
        anywhere: false,
        methods: Vec::new(),
        paths: Vec::new(),
        places: Places {
            header: HeaderPlace::Named("authorization".to_owned()),
            body: BodyPlace::Refuse,
            websocket: false,
        },
        cleartext: false,
    };
    let plan = CredentialPlan {
        environment: vec![grant],
        ..CredentialPlan::default()
    };
    let mut values = CredentialValues::default();
    values.insert("bench", Secret::new(VALUE.as_bytes().to_vec()));
    gate.set_credentials(sandbox_id, plan, values).await?;
    let route = Route {
        kind: Kind::Role,
        address,
        pid: Some(info.pid),
        shows: placeholder.to_string(),
        trust: certificates::client(&gate.authority().await?)?,
    };
    Ok((route, gate))
}

/// mitmproxy with an addon that does the same.
async fn mitmproxy(
    python: &OsString,
    folder: &Path,
    upstream: SocketAddr,
    placeholder: &Placeholder,
) -> Result<(Route, Child)> {
    let own = folder.join("mitmproxy");
    std::fs::create_dir(&own)?;
    let addon = own.join("inject.py");
    std::fs::write(&addon, ADDON)?;
    // The port is free when it is chosen.
    let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let log = std::fs::File::create(own.join("log"))?;
    let set = |name: &str, value: &Path| format!("{name}={}", value.display());
    let child = Command::new(python)
        .args(["-I", "-c", MITMDUMP, "--quiet", "--listen-host"])
        .args([&address.ip().to_string(), "--listen-port"])
        .args([&address.port().to_string(), "--set"])
        .args([&set("confdir", &own), "--set"])
        .arg(set("ssl_verify_upstream_trusted_ca", &folder.join(ROOT)))
        .args(["--set", "stream_large_bodies=1m", "--scripts"])
        .arg(&addon)
        .env_clear()
        .env("HOME", &own)
        .env("BENCH_UPSTREAM", upstream.to_string())
        .env("BENCH_PLACEHOLDER", placeholder.as_str())
        .env("BENCH_VALUE", VALUE)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("start mitmproxy")?;
    let authority: PathBuf = own.join("mitmproxy-ca-cert.pem");
    let deadline = Instant::now() + UP_WITHIN;
    while !authority.exists() || TcpStream::connect(address).await.is_err() {
        if Instant::now() > deadline {
            let log = std::fs::read_to_string(own.join("log"))?;
            bail!("mitmproxy does not start: {log}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let route = Route {
        kind: Kind::Mitmproxy,
        address,
        pid: child.id(),
        shows: placeholder.to_string(),
        trust: certificates::client(&std::fs::read_to_string(authority)?)?,
    };
    Ok((route, child))
}
