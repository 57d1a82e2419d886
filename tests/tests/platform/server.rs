//! A server in a runtime of its own, and a stage on which one server follows another.

use std::future::Future;
use std::time::Duration;

use astrabox_platform::{
    Actor, AgentDraft, Error, IdempotencyKey, OpContext, Platform, SessionDraft,
};
use astrabox_types::{
    AgentId, ContentPart, EnvironmentSpec, ErrorReason, Networking, PermissionLevel, ResourceLimits,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::fault::Faults;
use crate::world::World;

/// How long anything may take until a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Why a call gave nothing.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The server was stopped under it.
    Stopped,
    /// The platform refused it.
    Refused(Error),
}

/// A running server.
pub(crate) struct Server {
    runtime: Option<Runtime>,
    pub(crate) platform: Platform,
    pub(crate) faults: Faults,
}

impl Server {
    /// Starts a server; `None` when it was stopped while it started.
    pub(crate) async fn start(world: &World, faults: Faults) -> Option<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let parts = world.parts(&faults);
        let parts = parts.await;
        let started = run(&runtime, &faults, Platform::start(parts)).await;
        match started {
            Ok(platform) => Some(Self {
                runtime: Some(runtime),
                platform,
                faults,
            }),
            Err(Broken::Stopped) => {
                end(runtime).await;
                None
            }
            Err(Broken::Refused(error)) => panic!("the platform does not start: {error}"),
        }
    }

    /// Runs a call in the server's runtime.
    pub(crate) async fn call<T, F, E>(&self, call: F) -> Result<T, Broken>
    where
        T: Send + 'static,
        F: FnOnce(Platform) -> E,
        E: Future<Output = astrabox_platform::Result<T>> + Send + 'static,
    {
        let runtime = self.runtime.as_ref().ok_or(Broken::Stopped)?;
        run(runtime, &self.faults, call(self.platform.clone())).await
    }

    /// Ends the server as a kill does.
    pub(crate) async fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            end(runtime).await;
        }
    }

    /// Ends the server in order.
    pub(crate) async fn drain(self) {
        let drained = self.call(|platform| async move {
            platform.drain(PATIENCE).await;
            Ok(())
        });
        // One that was stopped under it is ended by the kill.
        assert!(matches!(drained.await, Ok(()) | Err(Broken::Stopped)));
        self.kill().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn run<T: Send + 'static>(
    runtime: &Runtime,
    faults: &Faults,
    call: impl Future<Output = astrabox_platform::Result<T>> + Send + 'static,
) -> Result<T, Broken> {
    let mut tasks = JoinSet::new();
    tasks.spawn_on(call, runtime.handle());
    let joined = tokio::select! {
        joined = tasks.join_next() => joined.expect("there is one task"),
        _ = faults.reached() => return Err(Broken::Stopped),
    };
    match joined {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Broken::Refused(error)),
        Err(error) if error.is_cancelled() => Err(Broken::Stopped),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Waits until every task of the runtime is dropped.
async fn end(runtime: Runtime) {
    let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(PATIENCE));
    ended.await.expect("the runtime ends");
}

/// The caller of every operation, but where a test says otherwise.
pub(crate) fn caller() -> OpContext {
    OpContext::of(Actor::new("test:one").expect("a plain subject"))
}

/// A key whose digest is of `body`.
pub(crate) fn key(key: impl Into<String>, body: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey {
        key: key.into(),
        digest: format!("digest of {body}"),
    })
}

pub(crate) fn environment(name: &str) -> EnvironmentSpec {
    EnvironmentSpec {
        name: name.to_owned(),
        description: String::new(),
        engine: "fake".to_owned(),
        sandbox: String::new(),
        image: None,
        model_provider: String::new(),
        networking: Networking::Limited {
            allowed_hosts: Vec::new(),
            allow_mcp_servers: false,
        },
        permission_level: PermissionLevel::Default,
        limits: ResourceLimits::default(),
        program: None,
    }
}

pub(crate) fn agent(environment: &str) -> AgentDraft {
    AgentDraft {
        name: "tester".to_owned(),
        environment: environment.to_owned(),
        model: "a-model".to_owned(),
        ..AgentDraft::default()
    }
}

pub(crate) fn draft(agent_id: AgentId, prompt: &str) -> SessionDraft {
    let content = if prompt.is_empty() {
        Vec::new()
    } else {
        vec![ContentPart::text(prompt)]
    };
    SessionDraft {
        agent_id,
        agent_version: None,
        title: String::new(),
        metadata: Default::default(),
        permission_mode: None,
        content,
    }
}

/// The reason of a refusal.
#[track_caller]
pub(crate) fn reason<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorReason {
    result.expect_err("it is refused").reason()
}

/// Lets real time pass where time itself is the subject.
pub(crate) async fn pass_ms(milliseconds: u64) {
    let until = tokio::time::Instant::now() + Duration::from_millis(milliseconds);
    tokio::time::sleep_until(until).await;
}

/// Waits for a condition.
pub(crate) async fn eventually<F, E>(what: &str, check: F)
where
    F: Fn() -> E,
    E: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !check().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
