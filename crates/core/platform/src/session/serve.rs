//! Serving a running engine: steps in, commands in, deadlines kept.

use std::time::Duration;

use astrabox_engine::{EngineClient, EngineInput, ErrorKind, EventStream, Step};
use astrabox_sandbox::ExitReason;
use astrabox_startup::StartedRuntime;
use astrabox_store::{InputChange, InputState};
use astrabox_types::{
    EventPayload, InteractionAnswer, SessionState, TurnFailure, TurnId, TurnOrigin, TurnOutcome,
};
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::Command;
use super::draft::Draft;
use super::owner::{Cause, Owner, Stop};
use crate::Result;

/// Steps that share one commit at the most.
const MOST_STEPS: usize = 64;
/// Steps that pass a waiting command at the most.
const MOST_PASSED: u32 = 8;

/// Why an interaction expires of which nobody took notice.
const UNANSWERED: &str = "nobody answered in time";

/// Why the reading of the engine's stream stopped.
enum Pause {
    /// The program ended and said all that it had to say.
    Ended,
    /// The connection is lost; the program may live.
    Detached,
    /// The server drains.
    Draining,
    /// The running turn has to be stopped by harder means.
    Escalate,
    /// The session was idle long enough.
    Idle,
    /// A command that ends the runtime.
    By(Box<Command>),
}

impl Owner {
    /// Serves the engine until it is gone or not wanted any more.
    pub(super) async fn serve(&mut self, runtime: StartedRuntime) -> Result<()> {
        self.redeliver(&runtime).await?;
        while !self.deferred.is_empty() {
            let command = self.deferred.remove(0);
            if self
                .handle(command, Some(&runtime))
                .await?
                .runtime_is_gone()
            {
                return Ok(());
            }
        }
        loop {
            match self.read(&runtime).await? {
                Pause::Draining => return Ok(()),
                Pause::Detached => return self.missed().await,
                Pause::Ended => return self.engine_ended(&runtime).await,
                Pause::Escalate => {
                    if !self.escalate(&runtime).await? {
                        return Ok(());
                    }
                }
                Pause::Idle => {
                    tracing::info!(session = %self.id, "releasing the sandbox of an idle session");
                    return self.put_away(Some(&runtime), None).await.map(drop);
                }
                Pause::By(command) => {
                    if self
                        .handle(*command, Some(&runtime))
                        .await?
                        .runtime_is_gone()
                    {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// What the program may not have got yet goes to it again; it takes everything once.
    async fn redeliver(&mut self, runtime: &StartedRuntime) -> Result<()> {
        let client = runtime.client.as_ref();
        if let (Some(modes), Some(mode)) =
            (client.permission_modes(), &self.row.session.permission_mode)
        {
            self.to_engine(modes.set_mode(mode).await);
        }
        let turn = self.row.session.current_turn;
        let open = self
            .queue
            .front()
            .filter(|input| turn.is_some() && input.turn_id == turn);
        if let Some(input) = open.filter(|input| input.state == InputState::Delivered) {
            let input = EngineInput {
                input_id: input.id,
                content: input.content.clone(),
                notice: self.notice().await?,
            };
            self.to_engine(client.deliver(input).await);
        }
        self.repeat_answers(client, turn).await?;
        if self.row.session.state == SessionState::Interrupting {
            let cause = Cause::of(self.row.session.state_reason.as_deref());
            self.begin_stop(runtime, cause).await;
        }
        Ok(())
    }

    /// An answer may be durable and not on its way: the program gets those that it still waits for.
    async fn repeat_answers(&self, client: &dyn EngineClient, turn: Option<TurnId>) -> Result<()> {
        let Some(interactions) = client.interactions() else {
            return Ok(());
        };
        for row in self.manager.store().interactions(self.id, true).await? {
            // A child run's question may be of no turn, or of one that has ended.
            let may_wait = row.turn_id == turn || row.child_run.is_some();
            let Some(answer) = row.answer.filter(|_| may_wait) else {
                continue;
            };
            match interactions.answer(&row.native_id, &answer).await {
                // It has this one already.
                Err(error) if error.kind() == ErrorKind::InvalidAnswer => {}
                result => self.to_engine(result),
            }
        }
        Ok(())
    }

    /// Reads the stream until something else has to be done.
    async fn read(&mut self, runtime: &StartedRuntime) -> Result<Pause> {
        let draining = self.manager.draining.clone();
        let mut events = runtime.client.turn_events();
        let mut waiting: Option<Command> = None;
        let mut passed = 0;
        loop {
            // What the program has said comes first, its end above all: no turn begins with one that is gone.
            // But a program that never stops speaking does not keep a command waiting.
            if passed < MOST_PASSED
                && let Some(next) = events.next().now_or_never()
            {
                passed += u32::from(waiting.is_some());
                if let Some(pause) = self.on_step(next, &mut events, runtime).await? {
                    self.deferred.extend(waiting);
                    return Ok(pause);
                }
                continue;
            }
            passed = 0;
            match waiting.take() {
                Some(command) if command.ends_runtime() => return Ok(Pause::By(Box::new(command))),
                Some(command) => {
                    self.handle(command, Some(runtime)).await?;
                    continue;
                }
                None => {
                    self.apply_rules(runtime).await?;
                    self.deliver_next(runtime).await?;
                }
            }
            let deadline = self.deadline();
            tokio::select! {
                () = draining.cancelled() => return Ok(Pause::Draining),
                next = events.next() => {
                    if let Some(pause) = self.on_step(next, &mut events, runtime).await? {
                        return Ok(pause);
                    }
                }
                command = self.mailbox.recv() => match command {
                    None => return Ok(Pause::Draining),
                    command => waiting = command,
                },
                () = tokio::time::sleep_until(deadline) => {
                    if let Some(pause) = self.on_deadline(runtime).await? {
                        return Ok(pause);
                    }
                }
            }
        }
    }

    /// Takes what the stream gave, and what is ready behind it.
    async fn on_step(
        &mut self,
        next: Option<astrabox_engine::Result<Step>>,
        events: &mut EventStream<'_>,
        runtime: &StartedRuntime,
    ) -> Result<Option<Pause>> {
        let mut step = match next {
            None => return Ok(Some(Pause::Ended)),
            Some(Ok(step)) => step,
            Some(Err(error)) => {
                tracing::warn!(session = %self.id, %error, "the engine's stream broke");
                return Ok(Some(Pause::Detached));
            }
        };
        // What is ready already shares the commit.
        let mut pause = None;
        for _ in 0..MOST_STEPS {
            match events.next().now_or_never() {
                Some(Some(Ok(next))) => step.absorb(next),
                Some(Some(Err(error))) => {
                    tracing::warn!(session = %self.id, %error, "the engine's stream broke");
                    pause = Some(Pause::Detached);
                    break;
                }
                Some(None) => {
                    pause = Some(Pause::Ended);
                    break;
                }
                None => break,
            }
        }
        if self.take(step, runtime).await? {
            Ok(pause)
        } else {
            Ok(Some(Pause::Detached))
        }
    }

    /// Makes a step durable and lets its bytes go; `false` when the connection is lost.
    async fn take(&mut self, step: Step, runtime: &StartedRuntime) -> Result<bool> {
        self.progress = Instant::now();
        let client = runtime.client.as_ref();
        let mut draft = Draft::default();
        if step.emissions.iter().any(super::step::ends_turn) {
            match self.native_state(runtime).await {
                Ok(files) => draft.commit.native_state = files,
                Err(error) if error.kind() == ErrorKind::Detached => return Ok(false),
                // The volume still holds it; the turn's outcome is not held back.
                Err(error) => {
                    tracing::warn!(session = %self.id, %error, "the native state could not be saved")
                }
            }
        }
        let commit = step.commit;
        self.learn_calls(&step).await?;
        self.translate(step, &mut draft);
        if !commit && draft.commit.events.is_empty() && draft.commit.interactions.is_empty() {
            self.hub.publish(Vec::new(), draft.deltas);
            self.misses = 0;
            return Ok(true);
        }
        let checkpoint = client.checkpoint();
        draft.commit.runtime.checkpoint = Some(Some(checkpoint.text().to_owned()));
        // The pieces of this very step are part of the image that is stored, and are told after it is.
        let deltas = std::mem::take(&mut draft.deltas);
        draft.deltas = self.deltas_that_stay(&draft, deltas);
        let open = self.hub.open_messages(&draft.commit.events, &draft.deltas);
        draft.commit.runtime.open_messages = Some(open);
        self.commit(draft).await?;
        self.row.checkpoint = Some(checkpoint.text().to_owned());
        match client.committed(&checkpoint).await {
            Ok(()) => {
                self.misses = 0;
                Ok(true)
            }
            Err(error) => {
                tracing::warn!(session = %self.id, %error, "bytes for the engine could not be written");
                Ok(false)
            }
        }
    }

    /// Begins the turn of the first waiting input, if nothing runs.
    async fn deliver_next(&mut self, runtime: &StartedRuntime) -> Result<()> {
        let mut draft = Draft::default();
        if let Some(input) = self.begin_turn(&mut draft).await? {
            self.commit(draft).await?;
            self.to_engine(runtime.client.deliver(input).await);
        }
        Ok(())
    }

    /// Opens the turn of the first waiting input in `draft`; the caller commits and then delivers.
    pub(super) async fn begin_turn(&mut self, draft: &mut Draft) -> Result<Option<EngineInput>> {
        if self.row.session.current_turn.is_some() || self.stop.is_some() {
            return Ok(None);
        }
        let Some(input) = self
            .queue
            .front()
            .filter(|input| input.state == InputState::Queued)
        else {
            return Ok(None);
        };
        let (id, content) = (input.id, input.content.clone());
        self.renew_before_turn(draft).await;
        let notice = self.notice().await?;
        let turn = TurnId::new();
        self.open_turn(draft, turn, TurnOrigin::Input { input_id: id });
        if let Some(input) = self.queue.front_mut() {
            input.state = InputState::Delivered;
            input.turn_id = Some(turn);
        }
        draft.input(InputChange::Move(id, InputState::Delivered, Some(turn)));
        Ok(Some(EngineInput {
            input_id: id,
            content,
            notice,
        }))
    }

    pub(super) fn open_turn(&mut self, draft: &mut Draft, turn: TurnId, origin: TurnOrigin) {
        self.row.session.current_turn = Some(turn);
        draft.commit.session.current_turn = Some(Some(turn));
        draft.event(Some(turn), EventPayload::TurnStarted { origin });
        // A child run may be waiting for an answer since before.
        let state = if self.interactions.is_empty() {
            SessionState::Busy
        } else {
            SessionState::WaitingInput
        };
        self.set_state(draft, state, None);
        self.progress = Instant::now();
    }

    /// What the program should know about the turn before: it is never repeated silently.
    async fn notice(&self) -> Result<Option<String>> {
        let last = self.manager.store().last_turn_end(self.id).await?;
        let Some(EventPayload::TurnEnded {
            outcome: TurnOutcome::Failed { failure },
            ..
        }) = last.map(|event| event.payload)
        else {
            return Ok(None);
        };
        Ok(Some(format!(
            "The previous turn ended abnormally ({}). Check what it has done before repeating a step.",
            failure.reason
        )))
    }

    /// When something is due.
    fn deadline(&self) -> Instant {
        let settings = &self.manager.parts.settings;
        if let Some(stop) = &self.stop {
            return stop.harder_at;
        }
        if let Some(interaction) = self.active_interaction() {
            let age = astrabox_types::Timestamp::now().duration_since(interaction.created_at);
            let age = Duration::try_from(age).unwrap_or_default();
            return Instant::now() + settings.interaction_timeout.saturating_sub(age);
        }
        if self.row.session.current_turn.is_some() {
            return self.progress + settings.stall_timeout;
        }
        if self.background {
            // Background work ends by the engine's word or its exit.
            return Instant::now() + Duration::from_secs(3600);
        }
        self.progress + settings.idle_timeout
    }

    async fn on_deadline(&mut self, runtime: &StartedRuntime) -> Result<Option<Pause>> {
        if self.deadline() > Instant::now() {
            return Ok(None);
        }
        if self.stop.is_some() {
            return Ok(Some(Pause::Escalate));
        }
        if let Some(row) = self.active_interaction() {
            if row.child_run.is_some() {
                return self.decline_late(runtime).await;
            }
            let mut draft = Draft::default();
            self.expire_turns_interactions(&mut draft, UNANSWERED);
            self.set_state(
                &mut draft,
                SessionState::Interrupting,
                Cause::Unanswered.reason().map(str::to_owned),
            );
            self.commit(draft).await?;
            self.begin_stop(runtime, Cause::Unanswered).await;
            return Ok(None);
        }
        if self.row.session.current_turn.is_some() {
            let mut draft = Draft::default();
            self.set_state(
                &mut draft,
                SessionState::Interrupting,
                Cause::Stalled.reason().map(str::to_owned),
            );
            self.commit(draft).await?;
            self.begin_stop(runtime, Cause::Stalled).await;
            return Ok(None);
        }
        if self.background || !self.queue.is_empty() {
            return Ok(None);
        }
        Ok(Some(Pause::Idle))
    }

    /// Nobody answered a child run in time. It gets a no and goes on; the conversation is not stopped for it.
    async fn decline_late(&mut self, runtime: &StartedRuntime) -> Result<Option<Pause>> {
        let Some(row) = self.interactions.pop_front() else {
            return Ok(None);
        };
        let mut draft = Draft::default();
        self.expire(&row, UNANSWERED, &mut draft);
        self.next_interaction(&mut draft);
        self.commit(draft).await?;
        self.progress = Instant::now();
        if let Some(interactions) = runtime.client.interactions() {
            let no = InteractionAnswer::Decline {
                comment: Some(UNANSWERED.to_owned()),
            };
            self.to_engine(interactions.answer(&row.native_id, &no).await);
        }
        Ok(None)
    }

    /// Asks the program to stop its turn; harder means follow when it does not.
    pub(super) async fn begin_stop(&mut self, runtime: &StartedRuntime, cause: Cause) {
        if self.stop.is_some() {
            return;
        }
        let harder_at = Instant::now() + self.manager.parts.settings.interrupt_timeout;
        self.stop = Some(Stop { cause, harder_at });
        self.to_engine(runtime.client.interrupt().await);
    }

    /// The program did not stop its turn: it is ended by signal and kill, and if that is not proven, its sandbox
    /// is destroyed. Returns whether the runtime can be read on.
    async fn escalate(&mut self, runtime: &StartedRuntime) -> Result<bool> {
        self.check_owner().await?;
        let within = self.manager.parts.settings.interrupt_timeout;
        let closed = tokio::time::timeout(within * 3, runtime.client.close(within)).await;
        if matches!(closed, Ok(Ok(())))
            && self
                .read_to_end(runtime.client.as_ref(), runtime, within)
                .await?
        {
            self.engine_ended(runtime).await?;
            return Ok(false);
        }
        tracing::warn!(session = %self.id, "the engine did not end; destroying its sandbox");
        let outcome = self.stopped_outcome(TurnOutcome::Interrupted);
        let gone = self.destroy_sandbox().await?;
        let mut draft = Draft::default();
        self.background = false;
        if self.row.session.current_turn.is_some() {
            self.end_turn(&mut draft, outcome, None);
        }
        self.forget_engine(&mut draft, gone);
        self.set_state(
            &mut draft,
            SessionState::Hibernated,
            Some("the engine was killed".to_owned()),
        );
        self.commit(draft).await?;
        Ok(false)
    }

    /// Takes the last steps of a program that is ending; tells whether its end was seen.
    pub(super) async fn read_to_end(
        &mut self,
        client: &dyn EngineClient,
        runtime: &StartedRuntime,
        within: Duration,
    ) -> Result<bool> {
        let until = Instant::now() + within;
        let mut events = client.turn_events();
        loop {
            match tokio::time::timeout_at(until, events.next()).await {
                Ok(None) => return Ok(true),
                Ok(Some(Ok(step))) => {
                    if !self.take(step, runtime).await? {
                        return Ok(false);
                    }
                }
                Ok(Some(Err(_))) | Err(_) => return Ok(false),
            }
        }
    }

    /// The program is gone, the sandbox is there: the next input starts a program in it.
    async fn engine_ended(&mut self, runtime: &StartedRuntime) -> Result<()> {
        let mut draft = Draft::default();
        self.background = false;
        if self.row.session.current_turn.is_some() {
            // An adapter owes a terminal on exit for a turn that it knows of. This one came when the program was
            // already dead, or the adapter does not give what it owes; neither may wedge the session.
            let reason = match runtime.client.exit().map(|exit| exit.reason) {
                None | Some(ExitReason::Exited | ExitReason::Killed) => "engine_exited",
                Some(limit) => limit.code(),
            };
            let failure = TurnFailure {
                reason: reason.to_owned(),
                message: "the engine's program ended".to_owned(),
            };
            let outcome = self.stopped_outcome(TurnOutcome::Failed { failure });
            self.end_turn(&mut draft, outcome, None);
        }
        self.reusable = true;
        self.forget_engine(&mut draft, false);
        self.set_state(
            &mut draft,
            SessionState::Hibernated,
            Some("the engine's program ended".to_owned()),
        );
        self.commit(draft).await.map(drop)
    }

    /// A call to the client failed: what is wrong shows in its stream as well.
    pub(super) fn to_engine(&self, result: astrabox_engine::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(session = %self.id, %error, "the engine's client refused a command");
        }
    }
}
