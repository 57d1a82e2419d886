//! Sandboxes, through the linked local provider.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use astrabox_sandbox::egress::EgressPolicy;
use astrabox_sandbox::registry::Registry;
use astrabox_sandbox::{
    BoxPath, CreateSpec, EgressGate, EgressListener, EgressWorkload, IMAGE_ROOT, ImageRef,
    OutputEvent, ProcessName, ProviderContext, Registration, SandboxProvider, SpawnSpec, Stdio,
    WORKSPACE,
};
use astrabox_types::{
    AssignmentId, PermissionLevel, ResourceLimits, SandboxId, SessionId, VolumeId,
};
use async_trait::async_trait;
use futures::StreamExt as _;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::docker::Docker;
use crate::figure::{Effort, Found, Row, Statistic, Unit, median};

/// The program in the image, and what it is called with: it prints one line and ends.
pub(crate) const PROGRAM: &str = "program";
pub(crate) const ARGUMENT: &str = "--version";
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the provider may rest between two sandboxes, so that each is made on a quiet host.
const REST: Duration = Duration::from_millis(20);

/// A sandbox from nothing to the first byte of a program.
pub(crate) async fn create(effort: Effort) -> Result<Found> {
    let host = Host::new().await?;
    let image = host.image()?;
    let mut found = Found::default();
    // The first sandbox of a host finds no template of a volume and cold caches.
    let cold = host.first_byte(&image).await?;
    host.destroy(cold.id).await?;
    let (mut whole, mut made) = (Vec::new(), Vec::new());
    let mut destroyed = Vec::new();
    for _ in 0..effort.times(100) {
        tokio::time::sleep(REST).await;
        let one = host.first_byte(&image).await?;
        whole.push(one.first_byte);
        made.push(one.created);
        let start = Instant::now();
        host.destroy(one.id).await?;
        destroyed.push(start.elapsed());
    }
    let ours = Row::times("create to first byte", &whole).at_most(Statistic::P50, 8.0);
    found.rows.push(ours);
    found.rows.push(Row::times("of that: create", &made));
    found.rows.push(Row::times("destroy", &destroyed));
    found
        .rows
        .push(Row::times("the host's first sandbox", &[cold.first_byte]));
    match Docker::find(&image.join(PROGRAM)).await {
        Ok(docker) => {
            let times = docker.create_and_start(effort.times(24)).await;
            docker.leave().await?;
            let times = times?;
            let ratio = median(&times) / median(&whole);
            found
                .rows
                .push(Row::times("docker create and start", &times));
            found.rows.push(
                Row::value("docker's time over ours, p50", Unit::Times, ratio)
                    .at_least(Statistic::Value, 20.0),
            );
        }
        Err(reason) => found
            .notes
            .push(format!("docker is not measured: {reason:#}")),
    }
    found.notes.push(
        "the program is the static runner's `--version`; the egress gate takes the listener and does nothing with it"
            .to_owned(),
    );
    Ok(found)
}

/// How many sandboxes are made per second, eight at a time.
pub(crate) async fn rate(effort: Effort) -> Result<Found> {
    const WAYS: usize = 8;
    let host = Arc::new(Host::new().await?);
    let image = host.image()?;
    let warm = host.first_byte(&image).await?;
    host.destroy(warm.id).await?;
    let total = effort.times(240);
    let mut found = Found::default();
    let (mut best, mut times) = (0.0_f64, Vec::new());
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let next = Arc::new(AtomicUsize::new(0));
        let mut makers = JoinSet::new();
        let start = Instant::now();
        for _ in 0..WAYS {
            let (host, image, next) = (Arc::clone(&host), image.clone(), Arc::clone(&next));
            makers.spawn(async move {
                let mut made = Vec::new();
                while next.fetch_add(1, Ordering::Relaxed) < total {
                    let start = Instant::now();
                    made.push((host.create(&image).await?, start.elapsed()));
                }
                anyhow::Ok(made)
            });
        }
        let made: Vec<_> = joined(makers).await?.into_iter().flatten().collect();
        best = best.max(made.len() as f64 / start.elapsed().as_secs_f64());
        let mut enders = JoinSet::new();
        for (id, time) in made {
            times.push(time);
            let host = Arc::clone(&host);
            enders.spawn(async move { host.destroy(id).await });
        }
        joined(enders).await?;
    }
    let row = Row::value("creates, 8 at a time", Unit::PerSecond, best);
    found.rows.push(row.at_least(Statistic::Value, 250.0));
    found.rows.push(Row::times("one of them", &times));
    found.notes.push(format!(
        "the best of 3 rounds of {total} sandboxes, which all live to the end of their round"
    ));
    Ok(found)
}

async fn joined<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        all.push(ended.context("a task failed")??);
    }
    Ok(all)
}

/// A host's worth of local sandboxes, in a temporary folder.
struct Host {
    folder: TempDir,
    runner: PathBuf,
    provider: Arc<dyn SandboxProvider>,
}

/// A sandbox that printed something.
struct First {
    id: SandboxId,
    created: Duration,
    first_byte: Duration,
}

impl Host {
    async fn new() -> Result<Self> {
        // Sockets go below it, and their paths are short.
        let folder = tempfile::Builder::new().prefix("ab-").tempdir()?;
        let below = |name: &str| folder.path().join(name);
        let root = SandboxId::new().to_string();
        let context = ProviderContext {
            state_dir: below("s"),
            run_dir: below("r"),
            cache_dir: below("c"),
            root_id: format!("bench-{}", &root[root.len() - 10..]),
            gate: Arc::new(OpenGate),
        };
        for directory in [&context.state_dir, &context.run_dir, &context.cache_dir] {
            std::fs::create_dir_all(directory)?;
        }
        let runner = runner()?;
        let linked = Registry::<Registration>::linked()?;
        let local = linked
            .get("local")
            .context("the local provider is linked")?;
        let config = serde_json::json!({ "runner": runner });
        let provider = local.build(config, context).await?;
        Ok(Self {
            folder,
            runner,
            provider,
        })
    }

    /// An image with one small static program.
    fn image(&self) -> Result<PathBuf> {
        let image = self.folder.path().join("image");
        std::fs::create_dir_all(&image)?;
        std::fs::copy(&self.runner, image.join(PROGRAM)).context("copy the program")?;
        Ok(image)
    }

    async fn create(&self, image: &Path) -> Result<SandboxId> {
        let spec = spec(image)?;
        let made = tokio::time::timeout(PATIENCE, self.provider.create_sandbox(spec)).await;
        Ok(made.context("no sandbox in time")??.id)
    }

    async fn first_byte(&self, image: &Path) -> Result<First> {
        let (spec, process) = (spec(image)?, ProcessName::new("program")?);
        let program = SpawnSpec {
            name: process.clone(),
            argv: vec![format!("{IMAGE_ROOT}/{PROGRAM}"), ARGUMENT.to_owned()],
            env: BTreeMap::new(),
            cwd: BoxPath::new(WORKSPACE)?,
            stdin: Stdio::Null,
            wall_limit: None,
        };
        let way = async {
            let start = Instant::now();
            let sandbox = self.provider.create_sandbox(spec).await?;
            let created = start.elapsed();
            sandbox.workload.spawn(program).await?;
            let mut output = sandbox.workload.attach(&process, 0, 0).await?;
            let first = match output.next().await.context("the output ended")?? {
                OutputEvent::Output(_) => First {
                    id: sandbox.id,
                    created,
                    first_byte: start.elapsed(),
                },
                OutputEvent::Exited(exit) => bail!("the program printed nothing: {exit:?}"),
            };
            anyhow::Ok(first)
        };
        tokio::time::timeout(PATIENCE, way)
            .await
            .context("no byte in time")?
    }

    async fn destroy(&self, id: SandboxId) -> Result<()> {
        let ended = tokio::time::timeout(PATIENCE, self.provider.destroy(id)).await;
        Ok(ended.context("a sandbox does not end")??)
    }
}

/// The static runner, as `cargo xtask` built it.
pub(crate) fn runner() -> Result<PathBuf> {
    let runner = std::env::var_os("ASTRABOX_RUNNER").map(PathBuf::from);
    let runner = runner.context("ASTRABOX_RUNNER is not set: run this with `cargo xtask bench`")?;
    ensure!(
        runner.is_file(),
        "there is no runner at {}",
        runner.display()
    );
    Ok(runner)
}

fn spec(image: &Path) -> Result<CreateSpec> {
    let id = SandboxId::new();
    Ok(CreateSpec {
        sandbox_id: id,
        session_id: SessionId::new(),
        assignment_id: AssignmentId::new(format!("assignment-{id}"))?,
        volume_id: VolumeId::new(),
        image: Some(ImageRef {
            name: "bench:1".to_owned(),
            root: image.to_owned(),
        }),
        limits: ResourceLimits::default(),
        permission_level: PermissionLevel::Default,
        egress: EgressPolicy::default(),
        labels: BTreeMap::new(),
    })
}

/// A gate for sandboxes that reach nothing.
struct OpenGate;

#[async_trait]
impl EgressGate for OpenGate {
    async fn open(
        &self,
        _: EgressWorkload,
        _: EgressPolicy,
        _: EgressListener,
    ) -> astrabox_sandbox::Result<()> {
        Ok(())
    }

    async fn update(&self, _: SandboxId, _: EgressPolicy) -> astrabox_sandbox::Result<()> {
        Ok(())
    }

    async fn close(&self, _: SandboxId) -> astrabox_sandbox::Result<()> {
        Ok(())
    }
}
