//! Bringing an engine up: reaching the one that runs, or starting one.

use std::pin::pin;
use std::time::Duration;

use astrabox_engine::{Checkpoint, Conversation, EngineAdapter};
use astrabox_sandbox::{ErrorKind, Probe};
use astrabox_startup::{
    NativeFile, StartedRuntime, StartupError, StartupRequest, start_platform_runtime,
};
use astrabox_types::{
    AssignmentId, ErrorReason, EventPayload, SandboxId, SessionState, TurnFailure, TurnOutcome,
};
use tokio::time::Instant;

use super::Command;
use super::credentials::new_sandbox;
use super::draft::Draft;
use super::owner::Owner;
use crate::manager::timed;
use crate::{Error, Result};

/// How often a sandbox that should run is tried to be reached before its turn is given up.
const MOST_MISSES: u32 = 20;
/// How long the making of a sandbox and the start of an engine in it may take, before the binding is waited for.
const MOST_MAKING: Duration = Duration::from_secs(600);

/// How the bringing up ended without a runtime.
enum Interrupted {
    /// A command came that ends the start.
    By(Command),
    /// The server drains.
    Draining,
    /// A command failed in a way that the start cannot go on from.
    Failed(Error),
}

impl Owner {
    /// Brings an engine up and serves it until it is gone.
    pub(super) async fn bring_up(&mut self) -> Result<()> {
        let adapter = match self.adapter() {
            Ok(adapter) => adapter,
            Err(error) => return self.cannot_run("engine_unknown", &error.to_string()).await,
        };
        let attach = self.attachment();
        if attach.is_none() && self.may_run_already() {
            // A turn was open and there is no way back to its engine.
            return self
                .lost(
                    "engine_lost",
                    "the engine's place in its output is not known any more",
                )
                .await;
        }
        let reused = attach.is_none() && self.reusable;
        let request = match self.request(adapter, attach.is_some()).await {
            Ok(request) => request,
            Err(error) => {
                let reason = match error.reason() {
                    ErrorReason::ImageMissing => "image_missing",
                    ErrorReason::SandboxCleanupUnconfirmed => "sandbox_not_removed",
                    _ => return Err(error),
                };
                return self.not_started(&error.to_string(), reason).await;
            }
        };
        match self.start(adapter, &request).await {
            Ok(Ok(runtime)) => {
                self.adopt(&runtime, attach.is_some()).await?;
                self.serve(runtime).await
            }
            Ok(Err(error)) if attach.is_some() => self.not_reached(error).await,
            Ok(Err(error)) if reused && is_of_the_sandbox(&error) => {
                // It had died since its engine ended. The next round makes a new one.
                tracing::info!(session = %self.id, %error, "the kept sandbox is of no use");
                Ok(())
            }
            Ok(Err(error)) => self.not_made(error).await,
            Err(Interrupted::Draining) => Ok(()),
            Err(Interrupted::By(command)) => self.handle(command, None).await.map(drop),
            Err(Interrupted::Failed(error)) => Err(error),
        }
    }

    /// The running sandbox and where the client stands in it, if the store knows both.
    fn attachment(&self) -> Option<(SandboxId, Conversation)> {
        if !self.may_run_already() {
            return None;
        }
        let native_key = self.row.native_key.clone()?;
        let checkpoint = Checkpoint::new(self.row.checkpoint.clone()?);
        Some((
            self.row.sandbox_id?,
            Conversation::Attach {
                native_key,
                checkpoint,
            },
        ))
    }

    /// Makes the decision durable and writes it down as a request.
    async fn request(
        &mut self,
        adapter: &'static dyn EngineAdapter,
        attach: bool,
    ) -> Result<StartupRequest> {
        // A new activation has a new epoch: what an older one still has under way is refused from now on.
        let store = self.manager.store();
        self.epoch = store.renew_claim(self.id, self.epoch).await?;
        let image = self.manager.image_of(&self.environment.spec, adapter);
        if !attach && !std::mem::take(&mut self.reusable) {
            // What an interrupted start or an engine that was given up left may still run: there is one runtime.
            self.destroy_or_refuse().await?;
            self.row.assignment_id = None;
            self.row.sandbox_id = None;
        }
        let (attach_to, conversation) = match self.attachment().filter(|_| attach) {
            Some((sandbox, conversation)) => (Some(sandbox), conversation),
            None => (None, self.stored_conversation().await?),
        };
        let assignment_id = match &self.row.assignment_id {
            Some(assignment) => assignment.clone(),
            None => AssignmentId::new(format!("assignment-{}", SandboxId::new().uuid().simple()))
                .map_err(|error| Error::new(ErrorReason::Internal, error.to_string()))?,
        };
        let image = if attach { image.ok() } else { Some(image?) };
        if !attach {
            let mut draft = Draft::default();
            draft.commit.runtime.assignment_id = Some(Some(assignment_id.clone()));
            draft.commit.runtime.sandbox_id = Some(self.row.sandbox_id);
            self.set_state(&mut draft, SessionState::Creating, None);
            self.row.assignment_id = Some(assignment_id.clone());
            self.commit(draft).await?;
        }
        let native_state = match &conversation {
            Conversation::Resume { .. } => self.saved_state().await?,
            _ => Vec::new(),
        };
        // The same for as long as the decision is: what an interrupted start made has this id as well.
        let new_sandbox_id = new_sandbox(self.id, &assignment_id);
        Ok(StartupRequest {
            session_id: self.id,
            session_kind: self.row.session.kind,
            assignment_id,
            new_sandbox_id,
            epoch: self.epoch,
            agent: self.agent.spec.clone(),
            environment: self.environment.spec.clone(),
            image,
            permission_mode: self.row.session.permission_mode.clone(),
            conversation,
            attach_to,
            native_state,
            bind_within: self.manager.parts.settings.start_timeout,
        })
    }

    /// The conversation to go on with. One in which nothing was ever said has left no native state to resume.
    async fn stored_conversation(&self) -> Result<Conversation> {
        match &self.row.native_key {
            Some(key) if self.manager.store().has_history(self.id).await? => {
                Ok(Conversation::Resume {
                    native_key: key.clone(),
                })
            }
            _ => Ok(Conversation::New),
        }
    }

    async fn saved_state(&self) -> Result<Vec<NativeFile>> {
        let files = self.manager.store().native_state(self.id).await?;
        Ok(files
            .into_iter()
            .map(|file| NativeFile {
                path: file.path,
                content: file.content.into(),
            })
            .collect())
    }

    /// Runs the startup line and takes commands meanwhile.
    async fn start(
        &mut self,
        adapter: &'static dyn EngineAdapter,
        request: &StartupRequest,
    ) -> std::result::Result<std::result::Result<StartedRuntime, StartupError>, Interrupted> {
        let manager = std::sync::Arc::clone(&self.manager);
        let mut start = pin!(start_platform_runtime(manager.as_ref(), adapter, request));
        let late = Instant::now() + MOST_MAKING + request.bind_within;
        loop {
            let command = tokio::select! {
                started = &mut start => return Ok(started),
                () = tokio::time::sleep_until(late) => return Ok(Err(too_late())),
                () = manager.draining.cancelled() => return Err(Interrupted::Draining),
                command = self.mailbox.recv() => command,
            };
            match command {
                Some(command) if command.ends_runtime() => return Err(Interrupted::By(command)),
                Some(command) if command.wants_engine() => self.deferred.push(command),
                Some(command) => {
                    if let Err(error) = self.handle(command, None).await {
                        return Err(Interrupted::Failed(error));
                    }
                }
                None => return Err(Interrupted::Draining),
            }
        }
    }

    /// Takes a started runtime into the session.
    async fn adopt(&mut self, runtime: &StartedRuntime, attached: bool) -> Result<()> {
        self.row.sandbox_id = Some(runtime.sandbox.id);
        self.row.native_key = Some(runtime.native_key.clone());
        self.progress = Instant::now();
        if attached {
            return Ok(());
        }
        let checkpoint = runtime.client.checkpoint();
        let mut draft = Draft::default();
        draft.commit.runtime.checkpoint = Some(Some(checkpoint.text().to_owned()));
        draft.commit.runtime.open_messages = Some(None);
        self.row.checkpoint = Some(checkpoint.text().to_owned());
        self.background = false;
        if !runtime.cut_state.is_empty() {
            let payload = EventPayload::DiagnosticRaw {
                topic: "native_state_cut".to_owned(),
                message: format!(
                    "the last record of the conversation was not whole and is left out: {}",
                    runtime.cut_state.join(", ")
                ),
            };
            draft.event(None, payload);
        }
        self.set_state(&mut draft, SessionState::Ready, None);
        self.commit(draft).await?;
        // A lost connection shows in the stream, which is read next.
        if let Err(error) = runtime.client.committed(&checkpoint).await {
            tracing::warn!(session = %self.id, %error, "the first checkpoint could not be acknowledged");
        }
        Ok(())
    }

    /// A sandbox that should run could not be reached: only proof of its end is taken for its end.
    async fn not_reached(&mut self, error: StartupError) -> Result<()> {
        tracing::warn!(session = %self.id, %error, "the running engine could not be reached");
        if let StartupError::Engine(engine) = &error {
            match engine.kind() {
                astrabox_engine::ErrorKind::ConversationLost => {
                    return self.lost("engine_lost", engine.context()).await;
                }
                astrabox_engine::ErrorKind::Exited => {
                    return self.lost("engine_exited", engine.context()).await;
                }
                _ => {}
            }
        }
        self.missed().await
    }

    /// The connection to a sandbox that should run is lost or could not be made. Only proof of the sandbox's end
    /// is taken for its end; anything else is tried again, a bounded number of times.
    pub(super) async fn missed(&mut self) -> Result<()> {
        let Some(sandbox) = self.row.sandbox_id else {
            return self.lost("sandbox_gone", "it has no sandbox").await;
        };
        let provider = match self
            .manager
            .sandbox_provider(&self.environment.spec.sandbox)
        {
            Ok(provider) => std::sync::Arc::clone(provider),
            Err(error) => {
                let message = error.to_string();
                return self.lost("sandbox_provider_unknown", &message).await;
            }
        };
        let probing = async { Ok(provider.probe(sandbox).await) };
        match timed("probe", probing).await {
            Ok(Probe::NotFound) => return self.lost("sandbox_gone", "the sandbox ended").await,
            Ok(Probe::Ok) => {}
            Ok(Probe::ProbeFailed(error)) | Err(error) => {
                tracing::warn!(session = %self.id, %error, "nothing is known about the sandbox");
            }
        }
        self.misses += 1;
        if self.misses >= MOST_MISSES {
            return self
                .lost("sandbox_unreachable", "the sandbox could not be reached")
                .await;
        }
        let pause = Duration::from_millis(50 << self.misses.min(6));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.manager.draining.cancelled() => {}
        }
        Ok(())
    }

    /// The engine and its sandbox are given up: the open turn fails with this reason, the conversation stays.
    pub(super) async fn lost(&mut self, reason: &str, message: &str) -> Result<()> {
        let gone = self.destroy_sandbox().await?;
        let mut draft = Draft::default();
        if self.row.session.current_turn.is_some() {
            let failure = TurnFailure {
                reason: reason.to_owned(),
                message: message.to_owned(),
            };
            self.end_turn(&mut draft, TurnOutcome::Failed { failure }, None);
        }
        self.background = false;
        self.misses = 0;
        self.forget_engine(&mut draft, gone);
        self.set_state(
            &mut draft,
            SessionState::Hibernated,
            Some(format!("{reason}: {message}")),
        );
        self.commit(draft).await.map(drop)
    }

    /// A new engine could not be made.
    async fn not_made(&mut self, error: StartupError) -> Result<()> {
        tracing::warn!(session = %self.id, %error, "the engine did not start");
        self.row.sandbox_id = self.manager.store().session(self.id).await?.sandbox_id;
        if let StartupError::Engine(engine) = &error
            && engine.kind() == astrabox_engine::ErrorKind::ConversationLost
        {
            let gone = self.destroy_sandbox().await?;
            let mut draft = Draft::default();
            self.forget_engine(&mut draft, gone);
            let store = self.manager.store();
            if self.row.native_key.is_some() && !store.has_settled_turn(self.id).await? {
                // Every turn failed, and none was written down: nothing is lost that the program had.
                self.row.native_key = None;
                draft.commit.runtime.native_key = Some(None);
                let payload = EventPayload::DiagnosticRaw {
                    topic: "conversation_begun_anew".to_owned(),
                    message: "the program had ended before it wrote anything of the conversation down; it begins anew"
                        .to_owned(),
                };
                draft.event(None, payload);
                return self.commit(draft).await.map(drop);
            }
            let reason = format!("native conversation: {}", engine.context());
            self.set_state(&mut draft, SessionState::RecoveryRequired, Some(reason));
            return self.commit(draft).await.map(drop);
        }
        let reason = match &error {
            StartupError::Sandbox(sandbox) if sandbox.kind() == ErrorKind::NoCapacity => {
                "no_capacity"
            }
            StartupError::Sandbox(_) => "sandbox_not_started",
            StartupError::Engine(_) => "engine_not_started",
            StartupError::Model(_) | StartupError::NoModelGateway => "model_not_configured",
            StartupError::Refused(_)
            | StartupError::NeedsCallback { .. }
            | StartupError::SessionKind { .. } => "refused",
        };
        self.not_started(&error.to_string(), reason).await
    }

    /// The input that wanted the engine fails with the reason; the next one tries again.
    async fn not_started(&mut self, message: &str, reason: &str) -> Result<()> {
        let gone = self.destroy_sandbox().await?;
        let mut draft = Draft::default();
        self.forget_engine(&mut draft, gone);
        let failure = TurnFailure {
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        self.fail_first_input(&mut draft, failure);
        self.set_state(
            &mut draft,
            SessionState::Hibernated,
            Some(format!("{reason}: {message}")),
        );
        self.commit(draft).await.map(drop)
    }

    /// The session cannot go on with this server as it is configured; everything of it stays.
    async fn cannot_run(&mut self, reason: &str, message: &str) -> Result<()> {
        let gone = self.destroy_sandbox().await?;
        let mut draft = Draft::default();
        if self.row.session.current_turn.is_some() {
            let failure = TurnFailure {
                reason: reason.to_owned(),
                message: message.to_owned(),
            };
            self.end_turn(&mut draft, TurnOutcome::Failed { failure }, None);
        }
        self.background = false;
        self.forget_engine(&mut draft, gone);
        let reason = Some(format!("{reason}: {message}"));
        self.set_state(&mut draft, SessionState::RecoveryRequired, reason);
        self.commit(draft).await.map(drop)
    }

    /// Writes down that no engine runs, and that there is no sandbox when its end is proven. One whose end is not
    /// proven stays written down: it is destroyed before anything else is started.
    pub(super) fn forget_engine(&mut self, draft: &mut Draft, gone: bool) {
        // Nobody waits for an answer any more, and nothing is left to be stopped.
        self.expire_interactions(draft, "the engine that asked is gone");
        self.stop = None;
        self.row.checkpoint = None;
        draft.commit.runtime.checkpoint = Some(None);
        draft.commit.runtime.open_messages = Some(None);
        if gone {
            self.row.assignment_id = None;
            self.row.sandbox_id = None;
            draft.commit.runtime.assignment_id = Some(None);
            draft.commit.runtime.sandbox_id = Some(None);
        }
    }
}

/// Whether a start may have failed because its sandbox died.
fn is_of_the_sandbox(error: &StartupError) -> bool {
    use astrabox_engine::ErrorKind::{Detached, Exited};
    match error {
        StartupError::Sandbox(_) => true,
        StartupError::Engine(engine) => matches!(engine.kind(), Detached | Exited),
        _ => false,
    }
}

fn too_late() -> StartupError {
    let text = "the sandbox and its engine did not come up in time";
    astrabox_sandbox::Error::new(ErrorKind::DeadlineExceeded, "start", text).into()
}
