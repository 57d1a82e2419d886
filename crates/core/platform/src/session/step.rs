//! A step of the engine, in the journal's words.

use std::collections::VecDeque;

use astrabox_engine::{Emission, EmissionKind, EventDraft, InteractionDraft, Step, Terminal};
use astrabox_startup::{StartedRuntime, collect_native_state};
use astrabox_store::{InputChange, InputState, InteractionChange, InteractionRow, NativeFile};
use astrabox_types::{
    ChildRunId, Delta, DeltaChannel, EventId, EventPayload, Interaction, InteractionId,
    InteractionState, SessionState, Timestamp, TurnFailure, TurnId, TurnOrigin, TurnOutcome, Usage,
};

use super::draft::Draft;
use super::owner::{Cause, Owner};
use crate::Result;

/// Whether this emission ends a turn.
pub(super) fn ends_turn(emission: &Emission) -> bool {
    matches!(emission.kind(), EmissionKind::Terminal(_))
}

impl Owner {
    /// Adds a step's emissions to the draft, in order.
    pub(super) fn translate(&mut self, step: Step, draft: &mut Draft) {
        for emission in step.emissions {
            match emission.into_kind() {
                EmissionKind::PublicEvent(event) => self.public_event(event, draft),
                EmissionKind::Diagnostic(event) => self.journal(event, draft),
                EmissionKind::Delta(delta) => {
                    let event_id = self.event_id(delta.child_run.as_ref(), &delta.key);
                    // A tool may still speak after its turn; that begins none.
                    let turn_id = match delta.channel {
                        DeltaChannel::ToolOutput => self.row.session.current_turn,
                        DeltaChannel::Text | DeltaChannel::Reasoning => {
                            self.turn_for(delta.child_run.as_ref(), draft)
                        }
                    };
                    let astrabox_engine::DeltaDraft {
                        child_run,
                        channel,
                        offset,
                        text,
                        ..
                    } = delta;
                    draft.deltas.push(Delta {
                        event_id,
                        turn_id,
                        child_run,
                        channel,
                        offset,
                        text,
                    });
                }
                EmissionKind::InputConsumed(id) => {
                    if let Some(input) = self.queue.iter_mut().find(|input| input.id == id) {
                        input.state = InputState::Consumed;
                        draft.input(InputChange::Move(id, InputState::Consumed, None));
                        draft.event(
                            self.row.session.current_turn,
                            EventPayload::InputConsumed { input_id: id },
                        );
                    }
                }
                EmissionKind::InteractionRequested(request) => {
                    self.interaction_requested(request, draft)
                }
                EmissionKind::InteractionWithdrawn { native_id, reason } => {
                    self.interaction_withdrawn(&native_id, &reason, draft);
                }
                EmissionKind::ChildRunFact(run, native) => {
                    let turn = self.row.session.current_turn;
                    let state = serde_json::to_string(&run.state).unwrap_or_default();
                    let id =
                        self.event_id(None, &format!("child_run/{}/{state}/{turn:?}", run.id.0));
                    draft.push(
                        id,
                        turn,
                        None,
                        EventPayload::ChildRunChanged { run },
                        native,
                    );
                }
                EmissionKind::PermissionModeChanged(mode) => {
                    draft.commit.session.permission_mode = Some(Some(mode.clone()));
                    self.row.session.permission_mode = Some(mode);
                }
                EmissionKind::BackgroundOpened => self.background_opened(draft),
                EmissionKind::BackgroundClosed => self.background_closed(draft),
                // A reply's end is seen in its completed message; the turn goes on.
                EmissionKind::ResponseCompleted => {}
                EmissionKind::Terminal(terminal) => self.terminal(terminal, draft),
            }
        }
    }

    /// The same key gives the same id, on every replay.
    fn event_id(&self, child_run: Option<&ChildRunId>, key: &str) -> EventId {
        let child = child_run.map_or("", |run| run.0.as_str());
        EventId::derived(self.id.uuid(), &[child, key])
    }

    /// The turn that output belongs to. Output of the conversation itself opens a turn; a child's does not.
    fn turn_for(&mut self, child_run: Option<&ChildRunId>, draft: &mut Draft) -> Option<TurnId> {
        if self.row.session.current_turn.is_none() && child_run.is_none() {
            self.open_turn(draft, TurnId::new(), TurnOrigin::Engine);
        }
        self.row.session.current_turn
    }

    fn public_event(&mut self, event: EventDraft, draft: &mut Draft) {
        // Figures, files and the end of a call are facts about a turn that may be over; they open none.
        let speaks = matches!(
            event.payload,
            EventPayload::MessageCompleted { .. } | EventPayload::ToolCall { .. }
        );
        if speaks {
            self.turn_for(event.child_run.as_ref(), draft);
        }
        self.journal(event, draft);
    }

    fn journal(&mut self, event: EventDraft, draft: &mut Draft) {
        let mut turn = self.row.session.current_turn;
        if let Some(key) = event.call_key() {
            let call = self.event_id(event.child_run.as_ref(), &key);
            turn = self.calls.remove(&call).unwrap_or(turn);
        }
        let EventDraft {
            key,
            child_run,
            payload,
            native,
        } = event;
        let id = self.event_id(child_run.as_ref(), &key);
        if matches!(payload, EventPayload::ToolCall { .. }) {
            self.calls.insert(id, turn);
        }
        draft.push(id, turn, child_run, payload, native);
    }

    /// Learns from the journal which turns the calls belong to that the step's results answer, where this
    /// owner has not seen them: a result is its call's turn's, also when that has ended.
    pub(super) async fn learn_calls(&mut self, step: &Step) -> Result<()> {
        for emission in &step.emissions {
            let EmissionKind::PublicEvent(event) = emission.kind() else {
                continue;
            };
            let Some(key) = event.call_key() else {
                continue;
            };
            let call = self.event_id(event.child_run.as_ref(), &key);
            if self.calls.contains_key(&call) {
                continue;
            }
            let told = self.manager.store().turn_of_event(self.id, call).await?;
            if let Some(turn) = told {
                self.calls.insert(call, turn);
            }
        }
        Ok(())
    }

    /// Deltas of messages that the draft does not complete.
    pub(super) fn deltas_that_stay(&self, draft: &Draft, deltas: Vec<Delta>) -> Vec<Delta> {
        let ended = draft
            .commit
            .events
            .iter()
            .any(|event| matches!(event.payload, EventPayload::TurnEnded { .. }));
        deltas
            .into_iter()
            .filter(|delta| {
                !draft
                    .commit
                    .events
                    .iter()
                    .any(|event| event.id == delta.event_id)
            })
            .filter(|delta| !ended || delta.turn_id == self.row.session.current_turn)
            .collect()
    }

    fn interaction_requested(&mut self, request: InteractionDraft, draft: &mut Draft) {
        self.turn_for(request.child_run.as_ref(), draft);
        let InteractionDraft {
            native_id,
            child_run,
            presentation,
            native,
        } = request;
        let turn_id = self.row.session.current_turn;
        let turn = turn_id.map(|turn| turn.to_string()).unwrap_or_default();
        let id = InteractionId::derived(self.id.uuid(), &["interaction", &turn, &native_id]);
        if self
            .interactions
            .iter()
            .any(|open| open.interaction.id == id)
        {
            return;
        }
        let interaction = Interaction { id, presentation };
        let first = self.interactions.is_empty();
        let state = if first {
            InteractionState::Active
        } else {
            InteractionState::Queued
        };
        draft.interaction(InteractionChange::Open {
            interaction: interaction.clone(),
            native_id: native_id.clone(),
            turn_id,
            child_run: child_run.clone(),
            state,
        });
        self.interactions.push_back(InteractionRow {
            interaction: interaction.clone(),
            native_id,
            turn_id,
            child_run: child_run.clone(),
            state,
            created_at: Timestamp::now(),
            answer: None,
        });
        if first {
            let event_id = self.event_id(None, &format!("interaction/{id}"));
            draft.push(
                event_id,
                turn_id,
                child_run,
                EventPayload::InteractionRequested { interaction },
                native,
            );
            if self.stop.is_none() {
                self.set_state(draft, SessionState::WaitingInput, None);
            }
        }
    }

    fn interaction_withdrawn(&mut self, native_id: &str, reason: &str, draft: &mut Draft) {
        let Some(at) = self
            .interactions
            .iter()
            .position(|open| open.native_id == native_id)
        else {
            return;
        };
        if let Some(row) = self.interactions.remove(at) {
            self.expire(&row, reason, draft);
        }
        self.next_interaction(draft);
    }

    pub(super) fn expire(&self, row: &InteractionRow, reason: &str, draft: &mut Draft) {
        let (id, reason) = (row.interaction.id, reason.to_owned());
        draft.interaction(InteractionChange::Expire {
            id,
            reason: reason.clone(),
        });
        let payload = EventPayload::InteractionExpired {
            interaction_id: id,
            reason,
        };
        draft.event(row.turn_id, payload);
    }

    /// After an interaction is closed: the next one can be answered, or the turn goes on.
    pub(super) fn next_interaction(&mut self, draft: &mut Draft) {
        match self.interactions.front_mut() {
            Some(row) if row.state == InteractionState::Queued => {
                row.state = InteractionState::Active;
                row.created_at = Timestamp::now();
                let (interaction, turn_id) = (row.interaction.clone(), row.turn_id);
                let child_run = row.child_run.clone();
                draft.interaction(InteractionChange::Activate(interaction.id));
                let event_id = self.event_id(None, &format!("interaction/{}", interaction.id));
                draft.push(
                    event_id,
                    turn_id,
                    child_run,
                    EventPayload::InteractionRequested { interaction },
                    None,
                );
            }
            Some(_) => {}
            None if self.row.session.state == SessionState::WaitingInput => {
                let state = match self.row.session.current_turn {
                    Some(_) => SessionState::Busy,
                    None => self.state_at_rest(),
                };
                self.set_state(draft, state, None);
            }
            None => {}
        }
    }

    /// Closes every open interaction.
    pub(super) fn expire_interactions(&mut self, draft: &mut Draft, reason: &str) {
        for row in std::mem::take(&mut self.interactions) {
            self.expire(&row, reason, draft);
        }
    }

    /// Closes the interactions of a turn that ends. A child run in the background goes on, and so do its questions.
    pub(super) fn expire_turns_interactions(&mut self, draft: &mut Draft, reason: &str) {
        let of_children = self.background;
        let (stay, go) = std::mem::take(&mut self.interactions)
            .into_iter()
            .partition(|row| of_children && row.child_run.is_some());
        self.interactions = stay;
        let go: VecDeque<InteractionRow> = go;
        for row in &go {
            self.expire(row, reason, draft);
        }
        if !self.interactions.is_empty() {
            self.next_interaction(draft);
        }
    }

    /// The state of a session of which no turn runs and nothing is asked.
    fn state_at_rest(&self) -> SessionState {
        if self.background {
            SessionState::BackgroundRunning
        } else {
            SessionState::Ready
        }
    }

    fn background_opened(&mut self, draft: &mut Draft) {
        self.background = true;
        if self.row.session.state == SessionState::Ready {
            self.set_state(draft, SessionState::BackgroundRunning, None);
        }
    }

    fn background_closed(&mut self, draft: &mut Draft) {
        self.background = false;
        if self.row.session.state == SessionState::BackgroundRunning {
            self.set_state(draft, SessionState::Ready, None);
        }
    }

    fn terminal(&mut self, terminal: Terminal, draft: &mut Draft) {
        if self.row.session.current_turn.is_none() {
            tracing::warn!(session = %self.id, "the engine ended a turn that is not open");
            return;
        }
        if terminal.outcome == TurnOutcome::Completed && self.input_waits() {
            // The engine was speaking by itself when the input came: it completed that, not what it was not told.
            tracing::debug!(session = %self.id, "the engine ended what it had begun before the input");
            return;
        }
        let outcome = self.stopped_outcome(terminal.outcome);
        self.end_turn(draft, outcome, terminal.usage);
    }

    /// Whether the running turn's input has not been taken by the engine.
    fn input_waits(&self) -> bool {
        self.queue.front().is_some_and(|input| {
            input.turn_id.is_some()
                && input.turn_id == self.row.session.current_turn
                && input.state == InputState::Delivered
        })
    }

    /// A turn that was being stopped ends for the cause of the stop, unless it was completed before.
    pub(super) fn stopped_outcome(&self, outcome: TurnOutcome) -> TurnOutcome {
        let failed = |reason: &str, message: &str| TurnOutcome::Failed {
            failure: TurnFailure {
                reason: reason.to_owned(),
                message: message.to_owned(),
            },
        };
        match (self.stop.as_ref().map(|stop| stop.cause), outcome) {
            (_, TurnOutcome::Completed) => TurnOutcome::Completed,
            (None, outcome) => outcome,
            (Some(Cause::Asked), _) => TurnOutcome::Interrupted,
            (Some(Cause::Stalled), _) => {
                failed("engine_stalled", "the engine was silent for too long")
            }
            (Some(Cause::Unanswered), _) => {
                failed("interaction_expired", "nobody answered the engine in time")
            }
        }
    }

    /// Ends the running turn: its interactions, its input, its state.
    pub(super) fn end_turn(
        &mut self,
        draft: &mut Draft,
        outcome: TurnOutcome,
        usage: Option<Usage>,
    ) {
        let turn = self.row.session.current_turn;
        self.expire_turns_interactions(draft, "the turn ended");
        if let Some(input) = self
            .queue
            .front()
            .filter(|input| input.turn_id.is_some() && input.turn_id == turn)
        {
            draft.input(InputChange::Move(input.id, InputState::Settled, None));
            self.queue.pop_front();
        }
        draft.event(turn, EventPayload::TurnEnded { outcome, usage });
        self.row.session.current_turn = None;
        draft.commit.session.current_turn = Some(None);
        self.stop = None;
        let state = if self.interactions.is_empty() {
            self.state_at_rest()
        } else {
            SessionState::WaitingInput
        };
        self.set_state(draft, state, None);
    }

    /// The first waiting input gets a turn that failed before it began.
    pub(super) fn fail_first_input(&mut self, draft: &mut Draft, failure: TurnFailure) {
        let Some(input) = self.queue.pop_front() else {
            return;
        };
        let turn = input.turn_id.unwrap_or_else(TurnId::new);
        if input.turn_id.is_none() {
            draft.event(
                Some(turn),
                EventPayload::TurnStarted {
                    origin: TurnOrigin::Input { input_id: input.id },
                },
            );
        }
        draft.event(
            Some(turn),
            EventPayload::TurnEnded {
                outcome: TurnOutcome::Failed { failure },
                usage: None,
            },
        );
        draft.input(InputChange::Move(input.id, InputState::Settled, Some(turn)));
        self.row.session.current_turn = None;
        draft.commit.session.current_turn = Some(None);
    }

    /// The engine's own state, for the store; `None` when there is none yet.
    pub(super) async fn native_state(
        &self,
        runtime: &StartedRuntime,
    ) -> astrabox_engine::Result<Option<Vec<NativeFile>>> {
        let Some(adapter) = self.adapter else {
            return Ok(None);
        };
        let spec = adapter.startup_material_request().native_state;
        let files = collect_native_state(
            runtime.sandbox.workload.as_ref(),
            &spec,
            self.environment.spec.program.as_ref(),
            &runtime.native_key,
        )
        .await?;
        let files: Vec<_> = files
            .into_iter()
            .map(|file| NativeFile {
                path: file.path,
                content: file.content.into(),
            })
            .collect();
        Ok((!files.is_empty()).then_some(files))
    }
}
