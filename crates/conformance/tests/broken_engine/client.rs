//! The client of `talk` with one fault.

use std::sync::Mutex;
use std::time::Duration;

use astrabox_engine::line::LineClient;
use astrabox_engine::{
    BindRequest, BoundConversation, Checkpoint, ChildRunControl, Emitter, EngineClient,
    EngineInput, ErrorKind, EventStream, Interactions, PermissionModes, Result, ServerInfo, Step,
};
use astrabox_sandbox::ExitStatus;
use astrabox_types::InputId;
use async_trait::async_trait;
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::faults::Fault;
use super::protocol::BrokenProtocol;

pub(crate) struct BrokenClient<const F: usize> {
    inner: LineClient<BrokenProtocol<F>>,
    delivered: Mutex<Vec<InputId>>,
}

impl<const F: usize> BrokenClient<F> {
    pub(crate) fn new(inner: LineClient<BrokenProtocol<F>>) -> Self {
        Self {
            inner,
            delivered: Mutex::default(),
        }
    }

    fn has(fault: Fault) -> bool {
        fault as usize == F
    }

    fn stalled() -> Step {
        let mut emitter = Emitter::new();
        emitter.failed("engine_stalled", "nothing came for long", None);
        Step {
            emissions: emitter.take(),
            commit: false,
        }
    }
}

#[async_trait]
impl<const F: usize> EngineClient for BrokenClient<F> {
    async fn bind_conversation(&self, mut request: BindRequest) -> Result<BoundConversation> {
        if Self::has(Fault::WaitsTooLong) {
            request.within *= 3;
        }
        if !Self::has(Fault::AcceptsAnother) {
            return self.inner.bind_conversation(request).await;
        }
        let expected = request.expected.take();
        let bound = self.inner.bind_conversation(request).await?;
        Ok(BoundConversation {
            native_key: expected.unwrap_or(bound.native_key),
        })
    }

    async fn deliver(&self, mut input: EngineInput) -> Result<()> {
        if Self::has(Fault::DeliversAgain) {
            let mut delivered = self.delivered.lock().expect("nobody panics with it");
            if delivered.contains(&input.input_id) {
                input.input_id = InputId::new();
            }
            delivered.push(input.input_id);
        }
        self.inner.deliver(input).await
    }

    fn turn_events(&self) -> EventStream<'_> {
        let events = self.inner.turn_events();
        if Self::has(Fault::WritesEarly) {
            let early = events.then(move |step| async move {
                let step = step?;
                if step.commit && step.emissions.is_empty() {
                    let checkpoint = self.inner.checkpoint();
                    self.inner.committed(&checkpoint).await?;
                }
                Ok(step)
            });
            return early.boxed();
        }
        if Self::has(Fault::EndsWhenDetached) {
            let ending = events.take_while(|step| {
                let lost = step
                    .as_ref()
                    .is_err_and(|error| error.kind() == ErrorKind::Detached);
                async move { !lost }
            });
            return ending.boxed();
        }
        if Self::has(Fault::EndsOnSilence) {
            let patient = futures::stream::unfold(events, |mut events| async move {
                let half_an_hour = Duration::from_secs(1800);
                match tokio::time::timeout(half_an_hour, events.next()).await {
                    Ok(step) => Some((step?, events)),
                    Err(_) => Some((Ok(Self::stalled()), events)),
                }
            });
            return patient.boxed();
        }
        events
    }

    fn checkpoint(&self) -> Checkpoint {
        let checkpoint = self.inner.checkpoint();
        if !Self::has(Fault::ForgetsWhatWaits) {
            return checkpoint;
        }
        let mut value: Value = serde_json::from_str(checkpoint.text()).expect("it is JSON");
        value["outbox"] = json!([]);
        Checkpoint::new(value.to_string())
    }

    async fn committed(&self, checkpoint: &Checkpoint) -> Result<()> {
        self.inner.committed(checkpoint).await
    }

    async fn interrupt(&self) -> Result<()> {
        self.inner.interrupt().await
    }

    fn capabilities(&self) -> Vec<String> {
        self.inner.capabilities()
    }

    async fn close(&self, within: Duration) -> Result<()> {
        if Self::has(Fault::CloseDoesNothing) {
            return Ok(());
        }
        self.inner.close(within).await
    }

    fn exit(&self) -> Option<ExitStatus> {
        self.inner.exit()
    }

    fn interactions(&self) -> Option<&dyn Interactions> {
        if Self::has(Fault::HidesInteractions) {
            return None;
        }
        self.inner.interactions()
    }

    fn permission_modes(&self) -> Option<&dyn PermissionModes> {
        self.inner.permission_modes()
    }

    fn child_run_control(&self) -> Option<&dyn ChildRunControl> {
        self.inner.child_run_control()
    }

    fn server_info(&self) -> Option<&dyn ServerInfo> {
        self.inner.server_info()
    }
}
