//! What clients ask of a session.

use astrabox_startup::StartedRuntime;
use astrabox_store::{InputChange, InputRow, InputState, InteractionChange, Key};
use astrabox_types::{
    ApprovalDecision, ApprovalRule, ChildRunId, ChildRunState, Choice, ContentPart, ErrorReason,
    EventPayload, InputId, InteractionAnswer, InteractionId, InteractionState, Json, Presentation,
    SandboxId, SessionState, TurnId,
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::draft::Draft;
use super::owner::{Cause, Owner};
use super::{Command, Reply};
use crate::{Error, Result, validate};

/// Who answered, when a rule of the agent did.
const BY_RULE: &str = "approval-rule";

/// What a command left of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// As it was.
    AsItWas,
    /// The command ended it.
    RuntimeGone,
}

impl Left {
    pub(super) fn runtime_is_gone(self) -> bool {
        self == Self::RuntimeGone
    }
}

impl Command {
    /// Whether it ends the runtime, so that nothing may read the engine's stream meanwhile.
    pub(super) fn ends_runtime(&self) -> bool {
        matches!(
            self,
            Self::Release { .. } | Self::Archive { .. } | Self::Delete { .. }
        )
    }

    /// Whether it waits until an engine that is being reached is there.
    pub(super) fn wants_engine(&self) -> bool {
        matches!(self, Self::Respond { .. })
    }
}

/// Sends the answer; a caller that has gone does not matter.
fn answer<T>(reply: Reply<T>, result: Result<T>) {
    let _ = reply.send(result);
}

impl Owner {
    /// Carries out one command. An error is the owner's; the caller has its answer in any case.
    pub(super) async fn handle(
        &mut self,
        command: Command,
        runtime: Option<&StartedRuntime>,
    ) -> Result<Left> {
        let mut left = if command.ends_runtime() {
            Left::RuntimeGone
        } else {
            Left::AsItWas
        };
        match command {
            Command::Hub { reply } => answer(reply, Ok(std::sync::Arc::clone(&self.hub))),
            Command::SendInput {
                key,
                content,
                reply,
            } => {
                let result = self.send_input(key, content, runtime).await;
                answer(reply, result)
            }
            Command::Interrupt { key, reply } => {
                let result = self.interrupt(key, runtime).await;
                answer(reply, result)
            }
            Command::Respond {
                key,
                actor,
                interaction,
                answer: given,
                reply,
            } => {
                let result = self.respond(key, actor, interaction, given, runtime).await;
                answer(reply, result)
            }
            Command::SetMode { key, mode, reply } => {
                let result = self.set_mode(key, mode, runtime).await;
                answer(reply, result)
            }
            Command::StopChild { key, run, reply } => {
                let result = self.stop_child(key, &run, runtime).await;
                answer(reply, result)
            }
            Command::Credentials { reply } => {
                let result = self.renew_credentials().await;
                answer(reply, result)
            }
            Command::Recover { key, reply } => {
                let result = self.recover(key).await;
                answer(reply, result)
            }
            Command::Release { key, reply } => {
                let result = self.release(key, runtime).await;
                if self.row.session.current_turn.is_some() {
                    // Refused: the turn goes on.
                    left = Left::AsItWas;
                }
                answer(reply, result);
            }
            Command::Archive { key, reply } => {
                let result = self.archive(key, runtime).await;
                answer(reply, result)
            }
            Command::Delete { key, reply } => {
                let result = self.delete(key, runtime).await;
                answer(reply, result)
            }
        }
        match self.torn {
            // The caller has its answer; the image is the owner's trouble.
            Some(reason) => Err(Error::new(reason, "a change could not be made durable")),
            None => Ok(left),
        }
    }

    /// The answer of an earlier call with this key.
    async fn known<T: DeserializeOwned>(&self, key: &Option<Key>) -> Result<Option<T>> {
        match key {
            Some(key) => Ok(self.manager.store().answer_of(key).await?),
            None => Ok(None),
        }
    }

    async fn send_input(
        &mut self,
        key: Option<Key>,
        content: Vec<ContentPart>,
        runtime: Option<&StartedRuntime>,
    ) -> Result<(InputId, u64)> {
        if let Some(known) = self.known(&key).await? {
            return Ok(known);
        }
        self.check_takes_input()?;
        validate::content(&self.adapter()?.capabilities(), &content)?;
        let most = self.manager.parts.settings.max_queued_inputs;
        if self.queue.len() >= most {
            return Err(Error::new(
                ErrorReason::InputQueueFull,
                format!("{most} inputs wait already; retry when a turn has ended"),
            ));
        }
        let id = InputId::new();
        let mut draft = Draft::default();
        draft.input(InputChange::Queue(id, content.clone()));
        draft.event(
            None,
            EventPayload::InputAccepted {
                input_id: id,
                content: content.clone(),
            },
        );
        let seq = self.row.session.last_seq + 1;
        draft.answer(key, &(id, seq));
        self.queue.push_back(InputRow {
            id,
            content,
            state: InputState::Queued,
            turn_id: None,
        });
        // When nothing runs, its turn begins in the same transaction.
        let begun = match runtime {
            Some(runtime) => self
                .begin_turn(&mut draft)
                .await?
                .map(|input| (runtime, input)),
            None => None,
        };
        self.commit(draft).await?;
        if let Some((runtime, input)) = begun {
            self.to_engine(runtime.client.deliver(input).await);
        }
        Ok((id, seq))
    }

    fn check_takes_input(&self) -> Result<()> {
        let session = &self.row.session;
        if session.archived {
            return Err(Error::new(
                ErrorReason::SessionArchived,
                "the session is archived and takes no input",
            ));
        }
        match session.state {
            SessionState::RecoveryRequired => Err(Error::new(
                ErrorReason::RecoveryRequired,
                format!(
                    "the session needs recovery ({}); call RecoverSession",
                    session
                        .state_reason
                        .as_deref()
                        .unwrap_or("the reason is not known")
                ),
            )),
            state if !state.takes_input() => Err(wrong_state(state, "takes no input")),
            _ => Ok(()),
        }
    }

    async fn interrupt(
        &mut self,
        key: Option<Key>,
        runtime: Option<&StartedRuntime>,
    ) -> Result<Option<TurnId>> {
        if let Some(known) = self.known(&key).await? {
            return Ok(known);
        }
        let turn = self.row.session.current_turn;
        let mut draft = Draft::default();
        draft.answer(key, &turn);
        // Without a runtime the state says it: the stop begins when the engine is reached.
        let stopping = turn.is_some() && self.row.session.state != SessionState::Interrupting;
        if stopping {
            self.expire_turns_interactions(&mut draft, "the turn was interrupted");
            self.set_state(&mut draft, SessionState::Interrupting, None);
        }
        if stopping || draft.commit.answer.is_some() {
            self.commit(draft).await?;
        }
        if let Some(runtime) = runtime.filter(|_| stopping) {
            self.begin_stop(runtime, Cause::Asked).await;
        }
        Ok(turn)
    }

    async fn respond(
        &mut self,
        key: Option<Key>,
        actor: String,
        id: InteractionId,
        given: InteractionAnswer,
        runtime: Option<&StartedRuntime>,
    ) -> Result<u64> {
        if let Some(known) = self.known(&key).await? {
            return Ok(known);
        }
        let closed = |text: &str| Error::new(ErrorReason::InteractionClosed, text.to_owned());
        let Some(row) = self
            .interactions
            .iter()
            .find(|row| row.interaction.id == id)
        else {
            let all = self.manager.store().interactions(self.id, true).await?;
            return Err(if all.iter().any(|row| row.interaction.id == id) {
                closed("the interaction was answered or has expired")
            } else {
                Error::new(
                    ErrorReason::InteractionNotFound,
                    "no interaction of this session has this id",
                )
            });
        };
        if row.state != InteractionState::Active {
            return Err(closed(
                "the interaction waits behind another one; answer that one first",
            ));
        }
        check_answer(&row.interaction.presentation, &given)?;
        let native_id = row.native_id.clone();
        let turn = row.turn_id;
        let interactions = runtime.and_then(|runtime| runtime.client.interactions());
        let Some(interactions) = interactions else {
            return Err(closed(
                "the engine that asked is not running now; retry when it is reached again",
            ));
        };
        let mut draft = Draft::default();
        self.interactions.pop_front();
        draft.interaction(InteractionChange::Resolve {
            id,
            answer: given.clone(),
            actor: actor.clone(),
        });
        draft.event(
            turn,
            EventPayload::InteractionResolved {
                interaction_id: id,
                answer: given.clone(),
                actor,
            },
        );
        let seq = self.row.session.last_seq + 1;
        draft.answer(key, &seq);
        self.next_interaction(&mut draft);
        self.commit(draft).await?;
        // The time that the engine waited for a person is not its silence.
        self.progress = Instant::now();
        self.to_engine(interactions.answer(&native_id, &given).await);
        Ok(seq)
    }

    /// Answers approvals for which the agent has a rule, in order, until one waits for a person. A rule is applied to
    /// an open interaction whenever the engine is served, so a server that died in between applies it when it is back.
    pub(super) async fn apply_rules(&mut self, runtime: &StartedRuntime) -> Result<()> {
        while let Some(row) = self.active_interaction() {
            let id = row.interaction.id;
            let rules = &self.agent.spec.approval_rules;
            let Some(answer) = answer_by_rule(rules, &row.interaction.presentation) else {
                return Ok(());
            };
            if runtime.client.interactions().is_none() {
                return Ok(());
            }
            let actor = BY_RULE.to_owned();
            self.respond(None, actor, id, answer, Some(runtime)).await?;
        }
        Ok(())
    }

    async fn set_mode(
        &mut self,
        key: Option<Key>,
        mode: String,
        runtime: Option<&StartedRuntime>,
    ) -> Result<Option<String>> {
        if let Some(known) = self.known(&key).await? {
            return Ok(known);
        }
        let before = self.row.session.permission_mode.replace(mode.clone());
        let mut draft = Draft::default();
        draft.commit.session.permission_mode = Some(Some(mode.clone()));
        draft.answer(key, &before);
        self.commit(draft).await?;
        if let Some(modes) = runtime.and_then(|runtime| runtime.client.permission_modes()) {
            self.to_engine(modes.set_mode(&mode).await);
        }
        Ok(before)
    }

    async fn stop_child(
        &mut self,
        key: Option<Key>,
        run: &ChildRunId,
        runtime: Option<&StartedRuntime>,
    ) -> Result<ChildRunState> {
        if let Some(known) = self.known(&key).await? {
            return Ok(known);
        }
        let runs = self.manager.store().child_runs(self.id).await?;
        let Some(found) = runs.iter().find(|found| found.id == *run) else {
            let text = format!("the session has no child run `{}`", run.0);
            return Err(Error::new(ErrorReason::ChildRunNotFound, text));
        };
        let state = found.state;
        let mut draft = Draft::default();
        draft.answer(key, &state);
        if state != ChildRunState::Running {
            self.commit(draft).await?;
            return Ok(state);
        }
        let control = runtime.and_then(|runtime| runtime.client.child_run_control());
        let Some(control) = control else {
            return Err(wrong_state(
                self.row.session.state,
                "has no engine that runs children",
            ));
        };
        self.commit(draft).await?;
        self.to_engine(control.stop(run).await);
        Ok(state)
    }

    async fn recover(&mut self, key: Option<Key>) -> Result<()> {
        if let Some(known) = self.known(&key).await? {
            return Ok(known);
        }
        let state = self.row.session.state;
        let may = matches!(
            state,
            SessionState::RecoveryRequired | SessionState::Terminated | SessionState::Hibernated
        );
        if !may || self.row.session.archived {
            return Err(wrong_state(state, "needs no recovery"));
        }
        let mut draft = Draft::default();
        draft.answer(key, &());
        self.set_state(
            &mut draft,
            SessionState::Creating,
            Some("recovery".to_owned()),
        );
        self.commit(draft).await.map(drop)
    }

    async fn release(
        &mut self,
        key: Option<Key>,
        runtime: Option<&StartedRuntime>,
    ) -> Result<Option<SandboxId>> {
        if let Some(known) = self.known(&key).await? {
            return Ok(known);
        }
        if self.row.session.current_turn.is_some() {
            return Err(wrong_state(
                self.row.session.state,
                "has a running turn; interrupt it first",
            ));
        }
        self.put_away(runtime, key).await
    }
}

pub(super) fn wrong_state(state: SessionState, text: &str) -> Error {
    Error::new(
        ErrorReason::SessionStateWrong,
        format!("the session is {} and {text}", state.as_str()),
    )
    .with("state", state.as_str())
}

/// Another input fits a tool call that is allowed.
fn check_input(presentation: &Presentation, choice: &Choice, input: &str) -> Result<()> {
    let invalid = |text: &str| Err(Error::new(ErrorReason::InteractionAnswerInvalid, text));
    if !matches!(presentation, Presentation::ToolApproval { .. }) || !choice.allows {
        return invalid("an input is given with a choice that allows a tool call only");
    }
    match Json::parse(input).map(|input| input.value()) {
        Ok(serde_json::Value::Object(_)) => Ok(()),
        _ => invalid("the input is not a JSON object"),
    }
}

/// What the agent's rules answer; `None` when a person is to be asked.
fn answer_by_rule(
    rules: &[ApprovalRule],
    presentation: &Presentation,
) -> Option<InteractionAnswer> {
    let Presentation::ToolApproval { tool, choices, .. } = presentation else {
        return None;
    };
    let rule = rules.iter().find(|rule| rule.names(tool))?;
    match rule.decision {
        ApprovalDecision::Ask => None,
        // Engines offer the plain yes first, and those that last longer after it.
        ApprovalDecision::Allow => {
            let choice = choices.iter().find(|choice| choice.allows)?;
            Some(InteractionAnswer::Choose {
                choice_id: choice.id.clone(),
                comment: None,
                input: None,
            })
        }
        ApprovalDecision::Deny => Some(InteractionAnswer::Decline {
            comment: Some(format!("the agent's rules do not allow the tool `{tool}`")),
        }),
    }
}

/// An answer must fit what was asked.
fn check_answer(presentation: &Presentation, answer: &InteractionAnswer) -> Result<()> {
    let invalid = |text: String| Err(Error::new(ErrorReason::InteractionAnswerInvalid, text));
    match (presentation, answer) {
        (_, InteractionAnswer::Decline { .. }) => Ok(()),
        (
            Presentation::ToolApproval { choices, .. } | Presentation::Decision { choices, .. },
            InteractionAnswer::Choose {
                choice_id, input, ..
            },
        ) => {
            if let Some(choice) = choices.iter().find(|choice| choice.id == *choice_id) {
                return match input {
                    Some(input) => check_input(presentation, choice, input),
                    None => Ok(()),
                };
            }
            let known: Vec<_> = choices.iter().map(|choice| choice.id.as_str()).collect();
            invalid(format!(
                "`{choice_id}` is not one of the choices: {}",
                known.join(", ")
            ))
        }
        (Presentation::Question { questions }, InteractionAnswer::Reply { answers }) => {
            for (id, values) in answers {
                let Some(question) = questions.iter().find(|question| question.id == *id) else {
                    return invalid(format!("there is no question `{id}`"));
                };
                if values.len() > 1 && !question.multi_select {
                    return invalid(format!("question `{id}` takes one answer"));
                }
                let known =
                    |value: &String| question.allow_free_text || question.options.contains(value);
                if !values.iter().all(known) {
                    return invalid(format!("question `{id}` takes one of its options only"));
                }
            }
            match questions
                .iter()
                .find(|question| !answers.contains_key(&question.id))
            {
                Some(question) => invalid(format!("question `{}` has no answer", question.id)),
                None => Ok(()),
            }
        }
        (Presentation::Question { .. }, InteractionAnswer::Choose { .. }) => {
            invalid("a question is answered by a reply or declined".to_owned())
        }
        (_, InteractionAnswer::Reply { .. }) => {
            invalid("it is answered by choosing or declined".to_owned())
        }
    }
}
