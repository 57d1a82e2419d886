//! What a restart of the server survives: the database, the sandboxes, the programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use astrabox_conformance::doubles::{
    FixedModels, MemoryProvider, MemorySecrets, MemoryWorld, Program, Programs, TokenIdentity,
    program,
};
use astrabox_egress::EgressPolicy;
use astrabox_platform::{Images, PlatformParts, PlatformSettings};
use astrabox_registry::Registry;
use astrabox_sandbox::{
    BoxPath, CreateSpec, EgressGate, EgressListener, EgressWorkload, ProviderContext, Registration,
    Result as SandboxResult, SandboxInfo, SandboxProvider, Signal, SignalScope, WORKSPACE,
    Workload, WriteOptions,
};
use astrabox_store::{NativeFile, SessionCommit, Store};
use astrabox_testkit::fake_engine;
use astrabox_tests::MemoryHost;
use astrabox_types::{
    AssignmentId, PermissionLevel, ResourceLimits, SandboxId, SessionId, VolumeId,
};
use async_trait::async_trait;
use tokio::runtime::Handle;

use crate::boundary::Boundary;
use crate::boxes::FaultyProvider;
use crate::fault::Faults;
use crate::wire::{Log, Wire};

/// A host with a database and sandboxes.
pub(crate) struct World {
    dir: tempfile::TempDir,
    pub(crate) provider: Arc<dyn SandboxProvider>,
    /// The programs of real sandboxes; each server then has a provider of its own.
    real: Option<Real>,
    pub(crate) log: Log,
    pub(crate) wire: Wire,
    /// What sandboxes may put into requests.
    pub(crate) boundary: Arc<Boundary>,
    secrets: MemorySecrets,
    /// Whether servers know the engine.
    pub(crate) linked: bool,
    /// Whether nothing can be destroyed.
    pub(crate) stuck: Arc<AtomicBool>,
    pub(crate) settings: PlatformSettings,
    programs: Handle,
}

const ROOT: &str = "root";

/// A folder with a short path: sockets go below it.
fn folder() -> tempfile::TempDir {
    let mut builder = tempfile::Builder::new();
    builder
        .prefix("abx")
        .tempdir()
        .expect("a temporary directory")
}

impl World {
    /// A world with these settings; call it in the runtime that outlives the servers.
    pub(crate) fn with(settings: PlatformSettings) -> Self {
        let memory = MemoryWorld::new();
        let provider = MemoryProvider::new(&memory, ROOT, Arc::new(OpenGate), programs());
        let world = Self::over(folder(), Arc::new(provider), settings);
        std::fs::create_dir(world.image()).expect("the image's directory");
        world
    }

    /// A world with real sandboxes on this machine and the fake engine as a real program.
    pub(crate) async fn real(real: Real) -> Self {
        let dir = folder();
        let provider = real.provider(dir.path()).await;
        let mut world = Self::over(dir, provider, settings());
        fake_engine::image(&real.engine, &world.image()).expect("the image can be written");
        world.real = Some(real);
        world
    }

    fn over(
        dir: tempfile::TempDir,
        provider: Arc<dyn SandboxProvider>,
        settings: PlatformSettings,
    ) -> Self {
        Self {
            dir,
            provider,
            real: None,
            log: Log::default(),
            wire: Wire::new(),
            boundary: Arc::default(),
            secrets: MemorySecrets::default(),
            linked: true,
            stuck: Arc::default(),
            settings,
            programs: Handle::current(),
        }
    }

    pub(crate) fn new() -> Self {
        Self::with(settings())
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Where the image is; the image is built when it is a directory.
    pub(crate) fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// What a server of this world is put together from.
    pub(crate) async fn parts(&self, faults: &Faults) -> PlatformParts {
        let store = Store::open(&self.database())
            .await
            .expect("the store opens");
        let inner = match &self.real {
            Some(real) => real.provider(self.dir.path()).await,
            None => Arc::clone(&self.provider),
        };
        let provider: Arc<dyn SandboxProvider> = Arc::new(FaultyProvider {
            inner,
            faults: faults.clone(),
            log: self.log.clone(),
            wire: self.wire.clone(),
            stuck: Arc::clone(&self.stuck),
            programs: self.programs.clone(),
        });
        let models = FixedModels {
            base_url: Some("https://model.example/v1".to_owned()),
            ..FixedModels::default()
        };
        let identity = TokenIdentity {
            token: "open sesame".to_owned(),
        };
        let engines = if self.linked {
            Registry::empty().with(fake_engine::registration())
        } else {
            Ok(Registry::empty())
        };
        PlatformParts {
            engines: engines.expect("one engine"),
            sandboxes: BTreeMap::from([("box", provider)]),
            models: BTreeMap::from([("fixed", Arc::new(models) as Arc<_>)]),
            secrets: Some(Arc::new(self.secrets.clone())),
            boundary: Some(Arc::clone(&self.boundary) as Arc<_>),
            identity: Arc::new(identity),
            images: Arc::new(OneImage(self.image())),
            store: store.with_fault_point(faults.of_store()),
            settings: self.settings.clone(),
        }
    }

    /// The sandboxes of a session.
    pub(crate) async fn boxes(&self, session: SessionId) -> Vec<SandboxInfo> {
        let mut all = self.provider.list().await.expect("memory lists");
        all.retain(|info| info.claim.session_id == session);
        all
    }

    /// The inside of the one sandbox of a session.
    pub(crate) async fn inside(&self, session: SessionId) -> (SandboxId, Arc<dyn Workload>) {
        self.try_inside(session).await.expect("it has a sandbox")
    }

    async fn try_inside(&self, session: SessionId) -> Option<(SandboxId, Arc<dyn Workload>)> {
        let boxes = self.boxes(session).await;
        assert!(boxes.len() <= 1, "a session has one sandbox: {boxes:?}");
        let id = boxes.first()?.id;
        let sandbox = self.provider.connect(id).await.ok()?;
        Some((id, sandbox.workload))
    }

    /// The session that had this sandbox, among those that are there.
    pub(crate) async fn memory_session(&self, id: SandboxId) -> SessionId {
        let claim = self.provider.claim_of(id).await.expect("memory answers");
        claim.expect("the sandbox is there").session_id
    }

    /// Kills the engine's program of a session, as a person would.
    pub(crate) async fn kill_engine(&self, session: SessionId) {
        assert!(self.try_kill_engine(session).await, "it has a program");
    }

    pub(crate) async fn try_kill_engine(&self, session: SessionId) -> bool {
        let Some((sandbox, workload)) = self.try_inside(session).await else {
            return false;
        };
        let mut names = self.log.processes();
        names.retain(|(id, _)| *id == sandbox);
        let last = names.pop().map(|(_, name)| name);
        let Some(last) = last else { return false };
        let killed = workload.signal(&last, Signal::Kill, SignalScope::Sandbox);
        killed.await.is_ok()
    }

    /// How many programs of a session run.
    pub(crate) async fn running(&self, session: SessionId) -> usize {
        let Some((sandbox, workload)) = self.try_inside(session).await else {
            return 0;
        };
        let mut running = 0;
        for (_, process) in self.log.processes().iter().filter(|(id, _)| *id == sandbox) {
            let status = workload.status(process).await.expect("memory answers");
            running += usize::from(status.is_some_and(|status| status.exit.is_none()));
        }
        running
    }

    /// Ends the sandbox of a session behind the server's back.
    pub(crate) async fn destroy_box(&self, session: SessionId) {
        assert!(self.try_destroy_box(session).await, "it has a sandbox");
    }

    pub(crate) async fn try_destroy_box(&self, session: SessionId) -> bool {
        match self.try_inside(session).await {
            Some((sandbox, _)) => self.provider.destroy(sandbox).await.is_ok(),
            None => false,
        }
    }

    async fn store(&self) -> Store {
        Store::open(&self.database())
            .await
            .expect("the store opens")
    }

    /// Takes the session's volume away, as a move to another machine does.
    pub(crate) async fn lose_volume(&self, session: SessionId) {
        let store = self.store().await;
        let row = store.session(session).await.expect("it is there");
        let lost = self.provider.delete_volume(row.volume_id);
        lost.await.expect("no sandbox has it");
        store.close().await;
    }

    /// Takes the saved native state away, and gives it.
    pub(crate) async fn lose_saved_state(&self, session: SessionId) -> Vec<NativeFile> {
        let store = self.store().await;
        let files = store.native_state(session).await.expect("it can be read");
        store.close().await;
        self.set_saved_state(session, Vec::new()).await;
        files
    }

    pub(crate) async fn set_saved_state(&self, session: SessionId, files: Vec<NativeFile>) {
        let store = self.store().await;
        let epoch = store.session(session).await.expect("it is there").epoch;
        let commit = SessionCommit {
            epoch,
            native_state: Some(files),
            ..SessionCommit::default()
        };
        store
            .commit(session, commit)
            .await
            .expect("the epoch is right");
        store.close().await;
    }

    /// How much of what was said in a session is in the database.
    pub(crate) async fn words_left(&self, session: SessionId) -> usize {
        let store = self.store().await;
        let events = store.events(session, 0, 1000).await.expect("read");
        let interactions = store.interactions(session, true).await.expect("read");
        let inputs = store.open_inputs(session).await.expect("read");
        let state = store.native_state(session).await.expect("read");
        store.close().await;
        events.len() + interactions.len() + inputs.len() + state.len()
    }

    /// Makes a sandbox that no session knows of.
    pub(crate) async fn make_orphan(&self) -> SandboxId {
        let spec = CreateSpec {
            sandbox_id: SandboxId::new(),
            session_id: SessionId::new(),
            assignment_id: AssignmentId::new("assignment-orphan").expect("plain"),
            volume_id: VolumeId::new(),
            image: None,
            limits: ResourceLimits::default(),
            permission_level: PermissionLevel::Default,
            egress: EgressPolicy::default(),
            labels: BTreeMap::new(),
        };
        self.provider
            .create_sandbox(spec)
            .await
            .expect("memory makes it")
            .id
    }

    /// Lets what waits for this name go on.
    pub(crate) async fn release(&self, session: SessionId, name: &str) {
        assert!(self.try_release(session, name).await, "it has a sandbox");
    }

    pub(crate) async fn try_release(&self, session: SessionId, name: &str) -> bool {
        let Some((_, workload)) = self.try_inside(session).await else {
            return false;
        };
        let path = BoxPath::new(format!("{WORKSPACE}/{name}")).expect("a plain name");
        let written = workload.write_file(&path, "go".into(), WriteOptions::default());
        written.await.is_ok()
    }
}

/// Settings with which a test that goes wrong ends soon, and one that goes well meets no watchdog.
pub(crate) fn settings() -> PlatformSettings {
    PlatformSettings {
        default_sandbox: "box".to_owned(),
        default_model: "fixed".to_owned(),
        start_timeout: Duration::from_secs(10),
        stall_timeout: Duration::from_secs(600),
        interrupt_timeout: Duration::from_millis(300),
        idle_timeout: Duration::from_secs(600),
        interaction_timeout: Duration::from_secs(600),
        max_queued_inputs: 10,
        ..PlatformSettings::default()
    }
}

/// The programs of real sandboxes.
pub(crate) struct Real {
    /// `fake-engine`.
    pub(crate) engine: PathBuf,
    /// `astrabox-runner`.
    pub(crate) runner: PathBuf,
}

impl Real {
    async fn provider(&self, dir: &Path) -> Arc<dyn SandboxProvider> {
        let context = ProviderContext {
            state_dir: dir.join("s"),
            run_dir: dir.join("r"),
            cache_dir: dir.join("c"),
            root_id: ROOT.to_owned(),
            gate: Arc::new(OpenGate),
        };
        for directory in [&context.state_dir, &context.run_dir, &context.cache_dir] {
            std::fs::create_dir_all(directory).expect("a directory");
        }
        let linked = Registry::<Registration>::linked().expect("names are unique");
        let local = linked.get("local").expect("it is linked");
        let config = serde_json::json!({ "runner": self.runner });
        let built = local.build(config, context).await;
        built.expect("it can make sandboxes here")
    }
}

struct OneImage(PathBuf);

impl Images for OneImage {
    fn name_for(&self, engine: &'static str) -> String {
        format!("{engine}:1")
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        (name == "fake:1" && self.0.is_dir()).then(|| self.0.clone())
    }

    fn build_command(&self, engine: &'static str) -> String {
        format!("build {engine}")
    }
}

/// A gate for sandboxes that reach nothing anyway.
struct OpenGate;

#[async_trait]
impl EgressGate for OpenGate {
    async fn open(
        &self,
        _: EgressWorkload,
        _: EgressPolicy,
        _: EgressListener,
    ) -> SandboxResult<()> {
        Ok(())
    }

    async fn update(&self, _: SandboxId, _: EgressPolicy) -> SandboxResult<()> {
        Ok(())
    }

    async fn close(&self, _: SandboxId) -> SandboxResult<()> {
        Ok(())
    }
}

/// Every command line starts the fake engine.
fn programs() -> Programs {
    let one: Program =
        program(|io| async move { fake_engine::run(&mut MemoryHost::new(io)).await });
    Arc::new(move |_| Some(one.clone()))
}
