//! What becomes of local sandboxes when something of them dies, and between servers on one host.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use astrabox_conformance::doubles::{GateCall, RecordingGate};
use astrabox_sandbox::{
    BoxPath, CreateSpec, DestroyProof, ErrorKind, ExitReason, OutputEvent, Probe, ProcessName,
    Sandbox, SandboxProvider, SandboxState, SpawnSpec, Stdio, WriteOptions,
};
use astrabox_types::{
    AssignmentId, PermissionLevel, ResourceLimits, SandboxId, SessionId, VolumeId,
};
use bytes::Bytes;
use futures::StreamExt as _;
use rustix::process::Signal;
use support::Host;

const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    root: String,
    host: Host,
    provider: Arc<dyn SandboxProvider>,
    gate: RecordingGate,
}

/// A root that no other test on this host has.
fn root() -> String {
    let id = SandboxId::new().to_string();
    format!("life-{}", &id[id.len() - 10..])
}

impl Server {
    async fn new() -> Self {
        let (root, host, gate) = (root(), Host::new(), RecordingGate::new());
        let provider = host.provider(&root, Arc::new(gate.clone())).await.unwrap();
        Self {
            root,
            host,
            provider,
            gate,
        }
    }

    /// The server after its restart.
    async fn restarted(&self) -> Arc<dyn SandboxProvider> {
        let gate = Arc::new(self.gate.clone());
        self.host.provider(&self.root, gate).await.unwrap()
    }

    fn folder(&self, id: SandboxId) -> std::path::PathBuf {
        let sandboxes = self.host.path().join(&self.root).join("s/sandboxes");
        sandboxes.join(id.to_string())
    }

    async fn destroy(&self, id: SandboxId) {
        destroy(&*self.provider, id).await;
    }
}

async fn destroy(provider: &dyn SandboxProvider, id: SandboxId) {
    provider.destroy(id).await.unwrap();
    let proof = provider.confirm_destroyed(id).await.unwrap();
    assert_eq!(proof, DestroyProof::Gone);
}

fn spec(name: &str) -> CreateSpec {
    CreateSpec {
        sandbox_id: SandboxId::new(),
        session_id: SessionId::new(),
        assignment_id: AssignmentId::new(format!("assignment-{name}")).unwrap(),
        volume_id: VolumeId::new(),
        image: None,
        limits: ResourceLimits {
            memory_bytes: 256 << 20,
            pids: 64,
            cpu_millis: 2000,
            disk_bytes: 64 << 20,
            wall_seconds: 0,
        },
        permission_level: PermissionLevel::Default,
        egress: Default::default(),
        labels: BTreeMap::new(),
    }
}

fn path(text: &str) -> BoxPath {
    BoxPath::new(text).unwrap()
}

fn shell(name: &str, script: &str) -> SpawnSpec {
    SpawnSpec {
        name: ProcessName::new(name).unwrap(),
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        cwd: path("/workspace"),
        stdin: Stdio::Null,
        wall_limit: None,
    }
}

async fn run(sandbox: &Sandbox, name: &str, script: &str) -> (String, ExitReason) {
    let spec = shell(name, script);
    let process = spec.name.clone();
    sandbox.workload.spawn(spec).await.unwrap();
    let mut output = sandbox.workload.attach(&process, 0, 0).await.unwrap();
    let mut text = Vec::new();
    let read = async {
        loop {
            match output.next().await.unwrap().unwrap() {
                OutputEvent::Output(output) => text.extend_from_slice(&output.bytes),
                OutputEvent::Exited(exit) => return exit.reason,
            }
        }
    };
    let reason = tokio::time::timeout(PATIENCE, read).await.expect("it ends");
    (String::from_utf8(text).unwrap(), reason)
}

#[tokio::test]
async fn a_sandbox_whose_runner_was_killed_is_gone_but_its_volume_stays() {
    let server = Server::new().await;
    let first = spec("killed");
    let sandbox = server.provider.create_sandbox(first.clone()).await.unwrap();
    run(
        &sandbox,
        "write",
        "echo kept > file; mkdir -p /home/agent/x; echo home > /home/agent/x/y",
    )
    .await;
    sandbox
        .workload
        .spawn(shell("sleep", "sleep 1000"))
        .await
        .unwrap();
    server.host.signal(&server.root, sandbox.id, Signal::KILL);
    let until = tokio::time::Instant::now() + PATIENCE;
    while !matches!(server.provider.probe(sandbox.id).await, Probe::NotFound) {
        assert!(tokio::time::Instant::now() < until, "the end is seen");
        tokio::task::yield_now().await;
    }
    for provider in [&server.provider, &server.restarted().await] {
        let connected = provider.connect(sandbox.id).await.unwrap_err();
        assert_eq!(connected.kind(), ErrorKind::NotFound);
        let info = provider.describe(sandbox.id).await.unwrap();
        assert_eq!(info.state, SandboxState::Dead);
        let told = provider.diagnostics(sandbox.id).await.unwrap().summary;
        assert!(told.contains("process sleep: last known Running"), "{told}");
    }
    // Another sandbox gets the volume, although nobody has removed the dead one.
    let second = CreateSpec {
        volume_id: first.volume_id,
        session_id: first.session_id,
        ..spec("second")
    };
    let next = server.provider.create_sandbox(second).await.unwrap();
    let (text, _) = run(&next, "read", "cat file /home/agent/x/y").await;
    assert_eq!(text, "kept\nhome\n");
    let found = server
        .provider
        .find_sandbox_by_assignment(&first.assignment_id)
        .await;
    assert_eq!(found.unwrap(), None);
    assert!(
        !server.folder(sandbox.id).exists(),
        "the dead one was removed"
    );
    let (text, _) = run(&next, "again", "cat file").await;
    assert_eq!(text, "kept\n", "and the living one was left alone");
    server.destroy(next.id).await;
}

#[tokio::test]
async fn what_a_crash_left_half_made_is_found_dead_and_removed() {
    let server = Server::new().await;
    let spec = spec("half");
    let sandbox = server.provider.create_sandbox(spec.clone()).await.unwrap();
    let runner = server.host.runner(&server.root, sandbox.id);
    // As if the server had died between the start of the runner and its last record.
    let record = server.folder(sandbox.id).join("sandbox.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(
        &record,
        text.replace(r#""complete":true"#, r#""complete":false"#),
    )
    .unwrap();
    let restarted = server.restarted().await;
    let info = restarted.describe(sandbox.id).await.unwrap();
    assert_eq!(info.state, SandboxState::Dead);
    assert!(matches!(restarted.probe(sandbox.id).await, Probe::NotFound));
    let found = restarted
        .find_sandbox_by_assignment(&spec.assignment_id)
        .await;
    assert_eq!(found.unwrap(), None);
    assert!(!runner.is_alive().unwrap());
    let proof = restarted.confirm_destroyed(sandbox.id).await.unwrap();
    assert_eq!(proof, DestroyProof::Gone);
}

#[tokio::test]
async fn a_sandbox_can_be_removed_in_every_state() {
    let server = Server::new().await;
    for (name, damage) in [
        ("whole", ""),
        ("torn", "sandbox.json"),
        ("lost", "spec.json"),
    ] {
        let sandbox = server.provider.create_sandbox(spec(name)).await.unwrap();
        let runner = server.host.runner(&server.root, sandbox.id);
        let damaged = server.folder(sandbox.id).join(damage);
        match damage {
            "sandbox.json" => std::fs::write(damaged, "{").unwrap(),
            "spec.json" => std::fs::remove_file(damaged).unwrap(),
            _ => {}
        }
        let others = server.provider.list().await.unwrap();
        assert!(others.iter().all(|info| info.id == sandbox.id));
        server.provider.destroy(sandbox.id).await.unwrap();
        server.destroy(sandbox.id).await;
        assert!(!runner.is_alive().unwrap(), "{name}");
    }
    // A run directory alone, as a crash in the middle of a removal leaves it.
    let id = SandboxId::new();
    let text = id.to_string();
    let run_dir = server
        .host
        .path()
        .join(&server.root)
        .join("r")
        .join(&text[text.len() - 16..]);
    std::fs::create_dir(&run_dir).unwrap();
    let proof = server.provider.confirm_destroyed(id).await.unwrap();
    assert_eq!(proof, DestroyProof::StillThere);
    server.destroy(id).await;
}

#[tokio::test]
async fn a_silent_runner_is_doubtful_until_it_is_destroyed() {
    let server = Server::new().await;
    let sandbox = server
        .provider
        .create_sandbox(spec("silent"))
        .await
        .unwrap();
    server.host.signal(&server.root, sandbox.id, Signal::STOP);
    let seen = server.provider.probe(sandbox.id).await;
    assert!(matches!(seen, Probe::ProbeFailed(_)), "{seen:?}");
    let info = server.provider.describe(sandbox.id).await.unwrap();
    assert_eq!(info.state, SandboxState::Unknown);
    server.destroy(sandbox.id).await;
}

#[tokio::test]
async fn a_server_that_starts_again_gives_the_listener_to_the_gate_again() {
    let server = Server::new().await;
    let sandbox = server
        .provider
        .create_sandbox(spec("adopted"))
        .await
        .unwrap();
    let restarted = server.restarted().await;
    for provider in [&restarted, &restarted, &server.provider] {
        let again = provider.connect(sandbox.id).await.unwrap();
        let name = ProcessName::new("ask").unwrap();
        assert_eq!(again.workload.status(&name).await.unwrap(), None);
    }
    let opened = |call: &&GateCall| matches!(call, GateCall::Open(..));
    assert_eq!(
        server.gate.calls(sandbox.id).iter().filter(opened).count(),
        4
    );
    restarted.destroy(sandbox.id).await.unwrap();
    assert!(matches!(
        server.gate.calls(sandbox.id).last(),
        Some(GateCall::Close(_))
    ));
    server.destroy(sandbox.id).await;
}

#[tokio::test]
async fn a_snapshot_holds_the_volume_and_the_sandbox_goes_on() {
    let server = Server::new().await;
    let sandbox = server
        .provider
        .create_sandbox(spec("snapshot"))
        .await
        .unwrap();
    let script = "mkdir -p deep/er; echo text > deep/er/file; ln -s deep/er/file link; mkfifo fifo;
        head -c 3000000 /dev/zero > zeros; echo secret > /home/agent/.state; chmod 600 /home/agent/.state;
        chmod 755 deep/er/file";
    run(&sandbox, "fill", script).await;
    let counter = "i=0; while :; do i=$((i+1)); echo $i > ../tmp/count; done";
    sandbox
        .workload
        .spawn(shell("count", counter))
        .await
        .unwrap();
    let snapshot = server.provider.snapshot(sandbox.id).await.unwrap();
    assert!(snapshot.bytes > 0);
    let info = server.provider.describe(sandbox.id).await.unwrap();
    assert_eq!(info.state, SandboxState::Running);
    let read = async || {
        let read = sandbox
            .workload
            .read_file(&path("/tmp/count"), 0, 100)
            .await;
        read.unwrap_or_default()
    };
    let (before, until) = (read().await, tokio::time::Instant::now() + PATIENCE);
    while read().await == before {
        assert!(tokio::time::Instant::now() < until, "it counts on");
    }

    let sealed = server.host.path().join(&server.root).join("s/snapshots");
    let file = std::fs::File::open(sealed.join(format!("{}.tar.zst", snapshot.name))).unwrap();
    let unpacked = tempfile::tempdir().unwrap();
    let mut archive = tar::Archive::new(zstd::Decoder::new(file).unwrap());
    archive.unpack(unpacked.path()).unwrap();
    let inside = |path: &str| unpacked.path().join(path);
    assert_eq!(
        std::fs::read(inside("workspace/deep/er/file")).unwrap(),
        b"text\n"
    );
    assert_eq!(
        std::fs::read(inside("workspace/zeros")).unwrap(),
        vec![0; 3_000_000]
    );
    let target = std::fs::read_link(inside("workspace/link")).unwrap();
    assert_eq!(target.to_str(), Some("deep/er/file"));
    for (path, mode) in [
        ("workspace/deep/er/file", 0o755),
        ("home/agent/.state", 0o600),
    ] {
        let found = inside(path).metadata().unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }

    // A paused sandbox stays paused.
    server.provider.pause(sandbox.id).await.unwrap();
    server.provider.snapshot(sandbox.id).await.unwrap();
    let info = server.provider.describe(sandbox.id).await.unwrap();
    assert_eq!(info.state, SandboxState::Paused);
    server.destroy(sandbox.id).await;
}

#[tokio::test]
async fn servers_with_different_roots_work_side_by_side_with_users_of_their_own() {
    const EACH: usize = 4;
    let host = Host::new();
    let gate = Arc::new(RecordingGate::new());
    let one = host.provider(&root(), gate.clone()).await.unwrap();
    let two = host.provider(&root(), gate).await.unwrap();
    let make = async |provider: &Arc<dyn SandboxProvider>, name: &str| {
        let makes =
            (0..EACH).map(|number| provider.create_sandbox(spec(&format!("{name}-{number}"))));
        let made = futures::future::join_all(makes).await;
        made.into_iter()
            .map(|made| made.unwrap())
            .collect::<Vec<_>>()
    };
    let (ones, twos) = tokio::join!(make(&one, "a"), make(&two, "b"));
    let mut users = BTreeSet::new();
    for (provider, sandboxes) in [(&one, &ones), (&two, &twos)] {
        let listed: BTreeSet<_> = provider
            .list()
            .await
            .unwrap()
            .into_iter()
            .map(|info| info.id)
            .collect();
        assert_eq!(listed, sandboxes.iter().map(|sandbox| sandbox.id).collect());
        for sandbox in sandboxes {
            users.insert(
                provider
                    .security_posture(sandbox.id)
                    .await
                    .unwrap()
                    .host_uid,
            );
        }
    }
    let root = rustix::process::geteuid().is_root();
    assert_eq!(users.len(), if root { 2 * EACH } else { 1 });
    for sandbox in &ones {
        destroy(&*one, sandbox.id).await;
    }
    for sandbox in &twos {
        let (text, _) = run(sandbox, "after", "echo here").await;
        assert_eq!(text, "here\n");
        destroy(&*two, sandbox.id).await;
    }
}

#[tokio::test]
async fn a_volume_of_a_sandbox_is_neither_given_away_nor_removed() {
    let server = Server::new().await;
    let first = spec("first");
    let sandbox = server.provider.create_sandbox(first.clone()).await.unwrap();
    let second = CreateSpec {
        volume_id: first.volume_id,
        ..spec("second")
    };
    let refused = server
        .provider
        .create_sandbox(second.clone())
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongState);
    assert!(!server.folder(second.sandbox_id).exists());
    let refused = server
        .provider
        .delete_volume(first.volume_id)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WrongState);
    let options = WriteOptions::default();
    let file = path("/workspace/file");
    sandbox
        .workload
        .write_file(&file, Bytes::from_static(b"x"), options)
        .await
        .unwrap();
    server.destroy(sandbox.id).await;
    server
        .provider
        .delete_volume(first.volume_id)
        .await
        .unwrap();
    server
        .provider
        .delete_volume(first.volume_id)
        .await
        .unwrap();
    let empty = server.provider.create_sandbox(second).await.unwrap();
    let gone = empty.workload.stat(&file).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    server.destroy(empty.id).await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_name() {
    let host = Host::new();
    let context = || astrabox_sandbox::ProviderContext {
        state_dir: host.path().join("s"),
        run_dir: host.path().join("r"),
        cache_dir: host.path().join("c"),
        root_id: "one".into(),
        gate: Arc::new(RecordingGate::new()),
    };
    let runner = support::runner_program();
    for (config, named) in [
        (
            serde_json::json!({ "runner": "/no/such/program" }),
            "cargo build --profile runner",
        ),
        (
            serde_json::json!({ "runner": runner, "surprise": 1 }),
            "surprise",
        ),
        (
            serde_json::json!({ "runner": runner, "base": "usr" }),
            "sandbox.local.base",
        ),
        (
            serde_json::json!({ "runner": runner, "first_uid": 1000 }),
            "first_uid",
        ),
        (
            serde_json::json!({ "runner": runner, "spool_bytes": 1 }),
            "spool_bytes",
        ),
    ] {
        let built = astrabox_sandbox_local::REGISTRATION
            .build(config, context())
            .await;
        let Err(error) = built else {
            panic!("{named} was taken")
        };
        assert!(error.to_string().contains(named), "{error}");
    }
}
