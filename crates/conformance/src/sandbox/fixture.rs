//! What a provider's author gives to the suite.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use astrabox_sandbox::{EgressGate, ImageRef, Result, SandboxProvider, SpawnSpec};
use astrabox_types::SandboxId;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncBufReadExt as _;

use super::Probe;
use crate::doubles::{MemoryProvider, MemoryWorld, Program, ProgramIo, Programs, program};

/// How a provider is built, and what its sandboxes can run.
#[async_trait]
pub trait ProviderFixture: Send + Sync + 'static {
    /// The provider's name, for reports.
    fn name(&self) -> String;

    /// Builds the provider over the sandbox root of this id, with state that a later call with the same id finds
    /// again: two calls with one id are a server before and after its restart. Ids are new in each run.
    async fn provider(
        &self,
        root: &str,
        gate: Arc<dyn EgressGate>,
    ) -> Result<Arc<dyn SandboxProvider>>;

    /// The image of the sandboxes; none for bare ones.
    fn image(&self) -> Option<ImageRef> {
        None
    }

    /// The command line that runs this probe inside a sandbox; `None` when it cannot be run there.
    fn command(&self, probe: &Probe) -> Option<Vec<String>> {
        Some(probe.in_shell("/bin/sh"))
    }

    /// What of the provider can be seen on this host; `None` when its sandboxes are elsewhere or nowhere.
    fn host(&self) -> Option<HostView> {
        None
    }

    /// Makes a running sandbox unreachable without ending it, as a lost connection does. `false` when there is no way.
    async fn cut_off(&self, _root: &str, _id: SandboxId) -> bool {
        false
    }

    /// Ends what [`Self::cut_off`] began.
    async fn mend(&self, _root: &str, _id: SandboxId) {}
}

/// Where a provider that makes its sandboxes on this Linux host keeps what it makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostView {
    /// Its directories: state, run files and cache. Nothing else is in them.
    pub directories: Vec<PathBuf>,
}

/// The fixture of [`MemoryProvider`].
#[derive(Clone, Default)]
pub struct MemoryFixture {
    world: MemoryWorld,
    bare: bool,
}

impl MemoryFixture {
    /// A provider that declares all that it can.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A provider that declares nothing.
    #[must_use]
    pub fn bare() -> Self {
        Self {
            bare: true,
            ..Self::default()
        }
    }
}

#[async_trait]
impl ProviderFixture for MemoryFixture {
    fn name(&self) -> String {
        if self.bare { "bare memory" } else { "memory" }.to_owned()
    }

    async fn provider(
        &self,
        root: &str,
        gate: Arc<dyn EgressGate>,
    ) -> Result<Arc<dyn SandboxProvider>> {
        let programs: Programs = Arc::new(probe_program);
        let provider = MemoryProvider::new(&self.world, root, gate, programs);
        Ok(Arc::new(if self.bare {
            provider.with_capabilities(astrabox_sandbox::Capabilities {
                permission_levels: vec![astrabox_types::PermissionLevel::Default],
                ..astrabox_sandbox::Capabilities::default()
            })
        } else {
            provider
        }))
    }

    fn command(&self, probe: &Probe) -> Option<Vec<String>> {
        if matches!(probe, Probe::Script(_)) {
            return None;
        }
        let text = serde_json::to_string(probe).ok()?;
        Some(vec!["/probe".to_owned(), text, "a b".to_owned()])
    }

    async fn cut_off(&self, root: &str, id: SandboxId) -> bool {
        self.world.obscure(root, id, true);
        true
    }

    async fn mend(&self, root: &str, id: SandboxId) {
        self.world.obscure(root, id, false);
    }
}

/// The probes as programs in memory: `/probe` with the probe as JSON. For [`MemoryProvider`]'s programs.
#[must_use]
pub fn probe_program(spec: &SpawnSpec) -> Option<Program> {
    let [path, text, ..] = spec.argv.as_slice() else {
        return None;
    };
    if path != "/probe" {
        return None;
    }
    let probe: Probe = serde_json::from_str(text).ok()?;
    Some(program(move |io| run_probe(probe.clone(), io)))
}

async fn run_probe(probe: Probe, mut io: ProgramIo) -> i32 {
    match probe {
        Probe::Copy => {
            while let Some(bytes) = io.read().await {
                io.print(bytes);
            }
            0
        }
        Probe::Count { lines } => {
            for line in 1..=lines {
                io.print(format!("line {line}\n"));
            }
            0
        }
        Probe::Say {
            stdout,
            stderr,
            code,
        } => {
            io.print(stdout);
            io.eprint(stderr);
            code
        }
        Probe::Wait => std::future::pending().await,
        Probe::Tick => {
            let mut every = tokio::time::interval(Duration::from_millis(20));
            for count in 1_u64.. {
                every.tick().await;
                io.print(format!("{count}\n"));
            }
            0
        }
        Probe::Mark { path } => {
            let Ok(path) = astrabox_sandbox::BoxPath::new(path) else {
                return 2;
            };
            let mut marks = io
                .files
                .read(&path, 0, u64::MAX)
                .unwrap_or_default()
                .to_vec();
            marks.push(b'x');
            let written = io.files.write(&path, Bytes::from(marks), <_>::default());
            if written.is_err() {
                return 1;
            }
            std::future::pending().await
        }
        Probe::Surroundings => {
            for (name, value) in &io.env {
                io.print(format!("{name}={value}\n"));
            }
            io.print(format!("cwd={}\n", io.cwd));
            io.print(format!(
                "arg={}\n",
                io.argv.last().map_or("", String::as_str)
            ));
            0
        }
        Probe::Link { target, path } => {
            let made = astrabox_sandbox::BoxPath::new(path)
                .is_ok_and(|path| io.files.link(&target, &path).is_ok());
            i32::from(!made)
        }
        Probe::Egress => ask_gate(&io).await.unwrap_or(7),
        Probe::Script(_) => 127,
    }
}

async fn ask_gate(io: &ProgramIo) -> Option<i32> {
    let stream = tokio::net::TcpStream::connect(io.egress?).await.ok()?;
    let mut lines = tokio::io::BufReader::new(stream).lines();
    let line = lines.next_line().await.ok()??;
    io.print(format!("{line}\n"));
    Some(0)
}
