//! The least platform: a journal, one stored checkpoint, and crashes where a test wants them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::line::{LineClient, Start};
use astrabox_engine::sandbox::{BoxPath, ProcessName, SpawnSpec, Stdio, WORKSPACE};
use astrabox_engine::{
    BindRequest, Checkpoint, EmissionKind, EngineClient, EngineInput, ErrorKind, Result, Step,
};
use astrabox_types::{ContentPart, InputId, InteractionAnswer};
use futures::StreamExt;

use crate::echo::EchoProtocol;
use crate::fake::Fake;

pub(crate) type Client = LineClient<EchoProtocol>;

pub(crate) fn spec(epoch: u64) -> SpawnSpec {
    SpawnSpec {
        name: ProcessName::new(format!("engine-{epoch}")).expect("plain"),
        argv: vec!["/bin/echo-engine".to_owned()],
        env: Default::default(),
        cwd: BoxPath::new(WORKSPACE).expect("plain"),
        stdin: Stdio::Piped,
        wall_limit: None,
    }
}

pub(crate) async fn spawn(fake: &Arc<Fake>, epoch: u64) -> Result<Client> {
    let start = Start::Spawn(spec(epoch), EchoProtocol::default());
    LineClient::open(Arc::clone(fake) as _, epoch, start).await
}

pub(crate) async fn attach(fake: &Arc<Fake>, epoch: u64, at: &Checkpoint) -> Result<Client> {
    LineClient::open(Arc::clone(fake) as _, epoch, Start::Attach(at.clone())).await
}

pub(crate) fn bind(expected: Option<&str>) -> BindRequest {
    BindRequest {
        expected: expected.map(str::to_owned),
        within: Duration::from_secs(10),
    }
}

pub(crate) fn input(text: &str) -> EngineInput {
    EngineInput {
        input_id: InputId::new(),
        content: vec![ContentPart::text(text)],
        notice: None,
    }
}

pub(crate) fn choose(choice: &str) -> InteractionAnswer {
    InteractionAnswer::Choose {
        choice_id: choice.to_owned(),
        comment: None,
        input: None,
    }
}

/// Waits for what must come soon.
pub(crate) async fn within<T>(wait: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    waited.expect("it comes within half a minute")
}

/// Whether a step has something for the journal, or bytes that wait for a commit.
pub(crate) fn is_durable(step: &Step) -> bool {
    step.commit
        || step
            .emissions
            .iter()
            .any(|emission| !matches!(emission.kind(), EmissionKind::Delta(_)))
}

/// What a crash is in a test: the platform forgets everything but what it stored.
pub(crate) struct Crashed;

/// A session's platform.
pub(crate) struct Platform {
    pub(crate) fake: Arc<Fake>,
    pub(crate) journal: Vec<String>,
    /// Deltas as they came, repeated ones included.
    pub(crate) live: Vec<(String, u64, String)>,
    stored: Option<Checkpoint>,
    epoch: u64,
    /// What clients sent and no turn answered yet.
    inputs: VecDeque<EngineInput>,
    question: Option<String>,
    /// Crash when this many more points are passed.
    crash_in: Option<usize>,
    /// How many points were passed.
    pub(crate) points: usize,
}

impl Platform {
    pub(crate) fn new(fake: Fake, inputs: &[EngineInput], crash_in: Option<usize>) -> Self {
        Self {
            fake: Arc::new(fake),
            journal: Vec::new(),
            live: Vec::new(),
            stored: None,
            epoch: 0,
            inputs: inputs.iter().cloned().collect(),
            question: None,
            crash_in,
            points: 0,
        }
    }

    /// Answers all inputs, whatever breaks on the way.
    pub(crate) async fn run(&mut self) {
        while !self.inputs.is_empty() {
            assert!(self.epoch < 100, "it does not get on: {:#?}", self.journal);
            self.epoch += 1;
            // A crash: whatever the run held is gone with it.
            let _ = self.serve().await;
        }
    }

    fn point(&mut self) -> std::result::Result<(), Crashed> {
        self.points += 1;
        if let Some(left) = &mut self.crash_in {
            if *left == 0 {
                self.crash_in = None;
                return Err(Crashed);
            }
            *left -= 1;
        }
        Ok(())
    }

    async fn serve(&mut self) -> std::result::Result<(), Crashed> {
        let opened = match self.stored.clone() {
            None => spawn(&self.fake, self.epoch).await,
            Some(at) => attach(&self.fake, self.epoch, &at).await,
        };
        let client = opened.map_err(lost)?;
        let key = client.bind_conversation(bind(None)).await.map_err(lost)?;
        assert_eq!(key.native_key, "key");
        self.point()?;
        let mut delivered = None;
        loop {
            if let Some(id) = self.question.clone() {
                client
                    .interactions()
                    .expect("it asks")
                    .answer(&id, &choose("yes"))
                    .await
                    .expect("it is open");
                // The answer and the bytes that carry it are one commit.
                self.question = None;
                self.stored = Some(client.checkpoint());
                self.journal.push(format!("answered {id}"));
                self.point()?;
            }
            let Some(next) = self.inputs.front() else {
                return Ok(());
            };
            if delivered != Some(next.input_id) {
                delivered = Some(next.input_id);
                client.deliver(next.clone()).await.expect("it queues");
            }
            let Some(step) = within(client.turn_events().next()).await else {
                panic!("the stream ended: {:#?}", self.journal);
            };
            self.take(&client, step.map_err(lost)?).await?;
        }
    }

    async fn take(&mut self, client: &Client, step: Step) -> std::result::Result<(), Crashed> {
        let durable = is_durable(&step);
        if durable {
            self.point()?;
        }
        for emission in step.emissions {
            match emission.into_kind() {
                EmissionKind::Delta(delta) => self.live.push((delta.key, delta.offset, delta.text)),
                kind => {
                    match &kind {
                        EmissionKind::Terminal(_) => drop(self.inputs.pop_front()),
                        EmissionKind::InteractionRequested(draft) => {
                            self.question = Some(draft.native_id.clone());
                        }
                        _ => {}
                    }
                    self.journal.push(format!("{kind:?}"));
                }
            }
        }
        if durable {
            let checkpoint = client.checkpoint();
            self.stored = Some(checkpoint.clone());
            self.point()?;
            client.committed(&checkpoint).await.map_err(lost)?;
            self.point()?;
        }
        Ok(())
    }
}

fn lost(error: astrabox_engine::Error) -> Crashed {
    assert_eq!(error.kind(), ErrorKind::Detached, "{error}");
    Crashed
}
