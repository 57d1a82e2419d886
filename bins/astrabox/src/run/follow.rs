//! Follows one session until an input is answered.

use std::collections::VecDeque;

use anyhow::bail;
use astrabox_client::v1::event::Payload;
use astrabox_client::{Client, Watch, WatchItem, v1};

use super::ask::{Asking, Question};
use super::screen::Screen;
use crate::exit::{Failure, INTERRUPTED, NOT_FOUND, REFUSED};
use crate::out::note;

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Completed,
    Interrupted,
    Failed { reason: String, message: String },
}

/// A session that is followed.
pub(super) struct Follow {
    pub(super) client: Client,
    pub(super) session_id: String,
    pub(super) screen: Screen,
    watch: Watch,
    asking: Asking,
    /// What waits for an answer, the first one is asked.
    open: VecDeque<Question>,
    interrupting: bool,
}

impl Follow {
    pub(super) fn new(
        client: Client,
        session_id: String,
        watch: Watch,
        screen: Screen,
        asking: Asking,
    ) -> Self {
        Self {
            client,
            session_id,
            screen,
            watch,
            asking,
            open: VecDeque::new(),
            interrupting: false,
        }
    }

    /// What was asked before this command came.
    pub(super) async fn take_open_interactions(&mut self) -> anyhow::Result<()> {
        let request = v1::ListInteractionsRequest {
            session_id: self.session_id.clone(),
            include_closed: false,
        };
        for record in self.client.list_interactions(request).await?.interactions {
            if let Some(asked) = record.interaction {
                self.asked(asked).await?;
            }
        }
        Ok(())
    }

    /// The next line from the terminal; `None` at its end.
    pub(super) async fn next_line(&mut self, prompt: &str) -> anyhow::Result<Option<String>> {
        match &mut self.asking {
            Asking::Person(terminal) => terminal.line(prompt).await,
            Asking::Approve | Asking::Decline | Asking::Elsewhere => Ok(None),
        }
    }

    /// Shows what happens until the turn of this input has ended. Ctrl-C stops the turn; a second one leaves.
    pub(super) async fn until_answered(&mut self, input_id: &str) -> anyhow::Result<Outcome> {
        let mut turn = String::new();
        self.interrupting = false;
        loop {
            tokio::select! {
                biased;
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    self.interrupt().await?;
                }
                item = self.watch.next() => {
                    let Some(item) = item? else {
                        return Err(Failure::with_code(NOT_FOUND, "the session was deleted"));
                    };
                    if let Some(outcome) = self.seen(item, input_id, &mut turn).await? {
                        return Ok(outcome);
                    }
                }
                line = self.asking.line(), if !self.open.is_empty() => {
                    self.answered(line?).await?;
                }
            }
        }
    }

    async fn interrupt(&mut self) -> anyhow::Result<()> {
        if self.interrupting {
            return Err(Failure::with_code(INTERRUPTED, "left; the session goes on"));
        }
        self.interrupting = true;
        note("stopping the turn; Ctrl-C again leaves");
        let request = v1::InterruptSessionRequest {
            session_id: self.session_id.clone(),
            idempotency_key: String::new(),
        };
        self.client.interrupt_session(request).await?;
        Ok(())
    }

    /// Shows one thing; the outcome when it was the end of the turn.
    async fn seen(
        &mut self,
        item: WatchItem,
        input_id: &str,
        turn: &mut String,
    ) -> anyhow::Result<Option<Outcome>> {
        let event = match item {
            WatchItem::Event(event) => *event,
            WatchItem::Delta(delta) => {
                self.screen.delta(&delta)?;
                return Ok(None);
            }
            WatchItem::CaughtUp { .. } => return Ok(None),
        };
        self.screen.event(&event)?;
        match event.payload {
            Some(Payload::TurnStarted(started)) if started.input_id == input_id => {
                *turn = event.turn_id
            }
            Some(Payload::TurnEnded(ended)) if !turn.is_empty() && *turn == event.turn_id => {
                return outcome(ended).map(Some);
            }
            Some(Payload::InteractionRequested(asked)) => {
                if let Some(asked) = asked.interaction {
                    self.asked(asked).await?;
                }
            }
            Some(Payload::InteractionResolved(resolved)) => self.closed(&resolved.interaction_id),
            Some(Payload::InteractionExpired(expired)) => self.closed(&expired.interaction_id),
            Some(Payload::SessionStatus(status)) => stuck(&status)?,
            _ => {}
        }
        Ok(None)
    }

    async fn asked(&mut self, asked: v1::Interaction) -> anyhow::Result<()> {
        if self.open.iter().any(|question| question.id() == asked.id) {
            return Ok(());
        }
        let id = asked.id.clone();
        match self.asking.begin(asked, &self.session_id) {
            Some(Ok(question)) => {
                self.open.push_back(question);
                if self.open.len() == 1 {
                    self.open[0].show();
                }
            }
            Some(Err(answer)) => self.respond(&id, answer).await?,
            None => {}
        }
        Ok(())
    }

    /// A line of the terminal, for the question that is shown.
    async fn answered(&mut self, line: Option<String>) -> anyhow::Result<()> {
        let Some(line) = line else {
            note("the terminal is closed; answer with: astrabox session respond");
            self.asking = Asking::Elsewhere;
            self.open.clear();
            return Ok(());
        };
        let Some(question) = self.open.front_mut() else {
            return Ok(());
        };
        if let Some(answer) = question.take(&line) {
            let id = question.id().to_owned();
            self.respond(&id, answer).await?;
        }
        Ok(())
    }

    async fn respond(&mut self, id: &str, answer: v1::InteractionAnswer) -> anyhow::Result<()> {
        let request = v1::RespondInteractionRequest {
            session_id: self.session_id.clone(),
            interaction_id: id.to_owned(),
            answer: Some(answer),
            idempotency_key: String::new(),
        };
        match self.client.respond_interaction(request).await {
            Ok(_) => Ok(()),
            // Somebody else was quicker, or it expired.
            Err(error) if error.reason == "INTERACTION_CLOSED" => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn closed(&mut self, id: &str) {
        let shown = self
            .open
            .front()
            .is_some_and(|question| question.id() == id);
        self.open.retain(|question| question.id() != id);
        if shown && let Some(next) = self.open.front() {
            next.show();
        }
    }
}

fn outcome(ended: v1::TurnEnded) -> anyhow::Result<Outcome> {
    Ok(match ended.outcome() {
        v1::TurnOutcome::Completed => Outcome::Completed,
        v1::TurnOutcome::Interrupted => Outcome::Interrupted,
        v1::TurnOutcome::Failed => Outcome::Failed {
            reason: ended.failure_reason,
            message: ended.failure_message,
        },
        v1::TurnOutcome::Unspecified => bail!("the server does not say how the turn ended"),
    })
}

/// An error when the session cannot go on by itself, so that nobody waits for what does not come.
fn stuck(status: &v1::SessionStatus) -> anyhow::Result<()> {
    let remedy = match status.state() {
        v1::SessionState::RecoveryRequired => "needs recovery: astrabox session recover",
        v1::SessionState::Terminated => "has ended",
        v1::SessionState::Deleted => "is deleted",
        v1::SessionState::Unspecified
        | v1::SessionState::Creating
        | v1::SessionState::Ready
        | v1::SessionState::Busy
        | v1::SessionState::Interrupting
        | v1::SessionState::WaitingInput
        | v1::SessionState::BackgroundRunning
        | v1::SessionState::Hibernated => return Ok(()),
    };
    let reason = if status.reason.is_empty() {
        String::new()
    } else {
        format!(" ({})", status.reason)
    };
    Err(Failure::with_code(
        REFUSED,
        format!("the session {remedy}{reason}"),
    ))
}
