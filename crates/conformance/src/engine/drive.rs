//! Driving a conversation as the platform does: every durable step is committed, then written and freed.

use std::time::Duration;

use astrabox_engine::{
    Checkpoint, Emission, EmissionKind, EngineClient, ErrorKind, EventStream, Step,
};
use astrabox_types::EventPayload;
use futures::StreamExt as _;

use crate::{Doing as _, Stop};

/// How long the next step may take, in the case's own time.
const STEP: Duration = Duration::from_secs(600);

/// A conversation and everything that it told.
pub(super) struct Drive<'a> {
    client: &'a dyn EngineClient,
    stream: EventStream<'a>,
    /// Every emission so far, in order.
    pub(super) told: Vec<EmissionKind>,
    /// The last checkpoint that was committed.
    pub(super) committed: Option<Checkpoint>,
}

impl<'a> Drive<'a> {
    pub(super) fn new(client: &'a dyn EngineClient) -> Self {
        Self {
            client,
            stream: client.turn_events(),
            told: Vec::new(),
            committed: None,
        }
    }

    /// The next step, not yet committed; `None` at the end of the stream.
    pub(super) async fn step(&mut self) -> Result<Option<Step>, Stop> {
        match self.next().await? {
            None => Ok(None),
            Some(Ok(step)) => Ok(Some(step)),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// The next item of the stream.
    pub(super) async fn next(
        &mut self,
    ) -> Result<Option<Result<Step, astrabox_engine::Error>>, Stop> {
        tokio::time::timeout(STEP, self.stream.next())
            .await
            .map_err(|_| {
                Stop::failed(format!(
                    "nothing comes any more; so far {}",
                    summary(&self.told)
                ))
            })
    }

    /// Keeps a step and commits it, when it is one that the platform makes durable.
    pub(super) async fn keep(&mut self, step: Step) -> Result<(), Stop> {
        let durable = step.commit || step.emissions.iter().any(|e| is_durable(e.kind()));
        self.told
            .extend(step.emissions.into_iter().map(Emission::into_kind));
        if durable {
            let checkpoint = self.client.checkpoint();
            let done = self.client.committed(&checkpoint).await;
            done.doing("tell that a checkpoint is committed")?;
            self.committed = Some(checkpoint);
        }
        Ok(())
    }

    /// Goes on until an emission like this was told, now or before.
    pub(super) async fn until(
        &mut self,
        wanted: impl Fn(&EmissionKind) -> bool,
        what: &str,
    ) -> Result<(), Stop> {
        while !self.told.iter().any(&wanted) {
            let step = self.step().await.doing(format!("waiting for {what}"))?;
            let Some(step) = step else {
                return Err(Stop::failed(format!(
                    "the stream ended before {what}; it told {}",
                    summary(&self.told)
                )));
            };
            self.keep(step).await?;
        }
        Ok(())
    }

    /// Goes on until so many turns have ended.
    pub(super) async fn until_terminals(&mut self, count: usize) -> Result<(), Stop> {
        while terminals(&self.told) < count {
            let step = self.step().await.doing("waiting for the end of the turn")?;
            let Some(step) = step else {
                return Err(Stop::failed(format!(
                    "the stream ended before the turn; it told {}",
                    summary(&self.told)
                )));
            };
            self.keep(step).await?;
        }
        Ok(())
    }

    /// Goes on to the end of the stream.
    pub(super) async fn until_end(&mut self) -> Result<(), Stop> {
        while let Some(step) = self.step().await.doing("waiting for the stream's end")? {
            self.keep(step).await?;
        }
        Ok(())
    }

    /// Goes on until nothing has come for so long.
    pub(super) async fn settle(&mut self, time: Duration) -> Result<(), Stop> {
        while let Ok(step) = tokio::time::timeout(time, self.stream.next()).await {
            match step {
                Some(step) => self.keep(step?).await?,
                None => return Err(Stop::failed("the stream ended")),
            }
        }
        Ok(())
    }

    /// Nothing but remarks comes for so long. Steps that come are committed.
    pub(super) async fn is_quiet_for(&mut self, time: Duration) -> Result<(), Stop> {
        let before = self.told.iter().filter(|kind| !is_remark(kind)).count();
        let until = tokio::time::Instant::now() + time;
        loop {
            match tokio::time::timeout_at(until, self.stream.next()).await {
                Err(_) => return Ok(()),
                Ok(Some(step)) => self.keep(step?).await?,
                Ok(None) => return Err(Stop::failed("the stream ended")),
            }
            if self.told.iter().filter(|kind| !is_remark(kind)).count() > before {
                return Err(Stop::failed(format!("it told {}", summary(&self.told))));
            }
        }
    }

    /// Goes on until the connection is told to be lost.
    pub(super) async fn until_detached(&mut self) -> Result<(), Stop> {
        loop {
            match self.next().await? {
                Some(Ok(step)) => {
                    self.told
                        .extend(step.emissions.into_iter().map(Emission::into_kind));
                }
                Some(Err(error)) if error.kind() == ErrorKind::Detached => return Ok(()),
                Some(Err(error)) => {
                    return Err(Stop::failed(format!(
                        "it failed with {error}, not Detached"
                    )));
                }
                None => return Err(Stop::failed("the stream ended, though the program lives")),
            }
        }
    }
}

/// Whether the platform writes this down.
pub(super) fn is_durable(kind: &EmissionKind) -> bool {
    !matches!(kind, EmissionKind::Delta(_))
}

fn is_remark(kind: &EmissionKind) -> bool {
    match kind {
        EmissionKind::Diagnostic(_) => true,
        EmissionKind::PublicEvent(draft) => matches!(draft.payload, EventPayload::Usage { .. }),
        _ => false,
    }
}

/// How many turns have ended.
pub(super) fn terminals(told: &[EmissionKind]) -> usize {
    let ends = told
        .iter()
        .filter(|kind| matches!(kind, EmissionKind::Terminal(_)));
    ends.count()
}

/// Whether an emission is output of a turn.
pub(super) fn is_output(kind: &EmissionKind) -> bool {
    match kind {
        EmissionKind::PublicEvent(_) => !is_remark(kind),
        EmissionKind::Delta(_)
        | EmissionKind::InteractionRequested(_)
        | EmissionKind::ChildRunFact(..)
        | EmissionKind::ResponseCompleted
        | EmissionKind::Terminal(_) => true,
        EmissionKind::InputConsumed(_)
        | EmissionKind::InteractionWithdrawn { .. }
        | EmissionKind::PermissionModeChanged(_)
        | EmissionKind::BackgroundOpened
        | EmissionKind::BackgroundClosed
        | EmissionKind::Diagnostic(_) => false,
    }
}

/// The names of emissions, for messages.
pub(super) fn summary(told: &[EmissionKind]) -> String {
    let names = told.iter().map(|kind| match kind {
        EmissionKind::PublicEvent(draft) => draft.payload.name(),
        EmissionKind::Delta(_) => "delta",
        EmissionKind::InputConsumed(_) => "input consumed",
        EmissionKind::InteractionRequested(_) => "interaction requested",
        EmissionKind::InteractionWithdrawn { .. } => "interaction withdrawn",
        EmissionKind::ChildRunFact(..) => "child run",
        EmissionKind::PermissionModeChanged(_) => "permission mode changed",
        EmissionKind::BackgroundOpened => "background opened",
        EmissionKind::BackgroundClosed => "background closed",
        EmissionKind::ResponseCompleted => "response completed",
        EmissionKind::Terminal(_) => "terminal",
        EmissionKind::Diagnostic(_) => "diagnostic",
    });
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.join(", ")
}
