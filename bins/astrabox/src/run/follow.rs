//! Follows one session: shows what happens, has questions answered, and obeys Ctrl-C.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use astrabox_client::v1::event::Payload;
use astrabox_client::{Client, Link, Watch, WatchItem, new_key, text_part, v1};
use tokio::signal::unix::Signal;
use tokio::sync::watch::Receiver;

use super::ask::{Asking, Begun, Question, Taken};
use crate::again::again;
use crate::exit::{Failure, INTERRUPTED, NOT_FOUND, REFUSED};
use crate::view::{Outcome, Screen};

const PROMPT: &str = "> ";

/// A session that is followed.
pub(super) struct Follow {
    client: Client,
    session_id: String,
    pub(super) screen: Screen,
    watch: Watch,
    link: Receiver<Link>,
    asking: Asking,
    /// SIGINT, heard from the begin, so that none is missed between two waits.
    presses: Signal,
    reconnect: Duration,
    /// What waits for an answer; the first one is asked.
    open: VecDeque<Question>,
    /// Inputs of this program whose turns have not ended.
    pending: HashSet<String>,
    /// Turns that run, and their inputs.
    running: HashMap<String, String>,
    interrupting: bool,
    /// Whether what happened before is shown. Nobody is asked before that: it may be answered further on.
    caught_up: bool,
}

/// What a session is followed with.
pub(super) struct Means {
    pub(super) client: Client,
    pub(super) session_id: String,
    pub(super) watch: Watch,
    pub(super) screen: Screen,
    pub(super) asking: Asking,
    pub(super) presses: Signal,
    pub(super) reconnect: Duration,
    /// A turn that ran before.
    pub(super) running: Option<String>,
}

/// What came next.
enum Next {
    Pressed,
    Link,
    Item(Option<WatchItem>),
    Line(Option<String>),
}

impl Follow {
    pub(super) fn new(means: Means) -> Self {
        let Means {
            client,
            session_id,
            watch,
            screen,
            asking,
            presses,
            reconnect,
            running,
        } = means;
        Self {
            client,
            session_id,
            screen,
            link: watch.link(),
            watch,
            asking,
            presses,
            reconnect,
            open: VecDeque::new(),
            pending: HashSet::new(),
            running: running
                .into_iter()
                .map(|turn| (turn, String::new()))
                .collect(),
            interrupting: false,
            caught_up: false,
        }
    }

    /// What is asked when everything that happened before is shown.
    async fn take_open_interactions(&mut self) -> anyhow::Result<()> {
        let request = v1::ListInteractionsRequest {
            session_id: self.session_id.clone(),
            include_closed: false,
        };
        let call = again(self.reconnect, || {
            self.client.list_interactions(request.clone())
        });
        let listed = Self::made(&mut self.presses, call).await??;
        for record in listed.interactions {
            if let Some(asked) = record.interaction {
                self.asked(asked).await?;
            }
        }
        Ok(())
    }

    /// One input, until its turn has ended. Ctrl-C stops the turn; a second one leaves.
    pub(super) async fn say(&mut self, text: String) -> anyhow::Result<Outcome> {
        let input = self.send(text).await?;
        loop {
            match self.next(!self.open.is_empty()).await? {
                Next::Pressed => self.interrupt().await?,
                Next::Link => self.tell_link()?,
                Next::Line(line) => self.answered(line).await?,
                Next::Item(item) => {
                    if let Some((of, outcome)) = self.seen(item).await?
                        && of == input
                    {
                        return Ok(outcome);
                    }
                }
            }
        }
    }

    /// Lines from the terminal, each an input, until its end or Ctrl-C while nothing runs.
    pub(super) async fn talk(&mut self) -> anyhow::Result<()> {
        // A line that ends in a backslash goes on in the next one.
        let mut begun = String::new();
        self.prompt_if_idle()?;
        loop {
            let idle = self.is_idle();
            match self.next(idle || !self.open.is_empty()).await? {
                Next::Pressed if idle => return Ok(()),
                Next::Pressed => self.interrupt().await?,
                Next::Link => self.tell_link()?,
                Next::Item(item) => {
                    if let Some((_, outcome)) = self.seen(item).await? {
                        self.screen.outcome(&outcome)?;
                    }
                    // Whatever was shown has taken the prompt away.
                    if self.screen.take_news() || !idle {
                        self.prompt_if_idle()?;
                    }
                }
                Next::Line(line) if !self.open.is_empty() => self.answered(line).await?,
                Next::Line(None) => return Ok(()),
                Next::Line(Some(line)) => {
                    self.screen.prompt_taken();
                    if let Some(part) = line.strip_suffix('\\') {
                        begun.push_str(part);
                        begun.push('\n');
                    } else {
                        begun.push_str(&line);
                        let text = std::mem::take(&mut begun);
                        if !text.trim().is_empty() {
                            self.send(text).await?;
                        }
                    }
                    self.prompt_if_idle()?;
                }
            }
        }
    }

    /// Whether no turn runs, none of ours is to come, and nothing is asked.
    fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.running.is_empty() && self.open.is_empty()
    }

    fn prompt_if_idle(&mut self) -> anyhow::Result<()> {
        if !self.is_idle() {
            return Ok(());
        }
        self.interrupting = false;
        self.screen.prompt(PROMPT)
    }

    async fn next(&mut self, lines: bool) -> anyhow::Result<Next> {
        Ok(tokio::select! {
            biased;
            _ = self.presses.recv() => Next::Pressed,
            Ok(()) = self.link.changed() => Next::Link,
            item = self.watch.next() => Next::Item(item?),
            line = self.asking.line(), if lines => Next::Line(line),
        })
    }

    /// Waits for a call; Ctrl-C leaves, when it waits for a server that is away.
    async fn made<T>(
        presses: &mut Signal,
        call: impl Future<Output = Result<T, astrabox_client::ClientError>>,
    ) -> anyhow::Result<Result<T, astrabox_client::ClientError>> {
        tokio::select! {
            answer = call => Ok(answer),
            _ = presses.recv() => Err(left()),
        }
    }

    async fn send(&mut self, text: String) -> anyhow::Result<String> {
        let request = v1::SendInputRequest {
            session_id: self.session_id.clone(),
            content: vec![text_part(text)],
            idempotency_key: new_key(),
        };
        let call = again(self.reconnect, || self.client.send_input(request.clone()));
        let sent = Self::made(&mut self.presses, call).await??;
        self.screen.own(&sent.input_id);
        self.pending.insert(sent.input_id.clone());
        self.interrupting = false;
        Ok(sent.input_id)
    }

    async fn interrupt(&mut self) -> anyhow::Result<()> {
        if self.interrupting {
            return Err(left());
        }
        self.interrupting = true;
        self.screen.say("stopping the turn; Ctrl-C again leaves")?;
        let request = v1::InterruptSessionRequest {
            session_id: self.session_id.clone(),
            idempotency_key: new_key(),
        };
        let call = again(self.reconnect, || {
            self.client.interrupt_session(request.clone())
        });
        Self::made(&mut self.presses, call).await??;
        Ok(())
    }

    fn tell_link(&mut self) -> anyhow::Result<()> {
        let link = *self.link.borrow_and_update();
        match link {
            Link::Up => self.screen.say("the server is back")?,
            Link::Down => {
                let seconds = self.reconnect.as_secs();
                self.screen.say(&format!(
                    "the server is away; trying again for {seconds} s, Ctrl-C leaves"
                ))?;
                // Nothing can be stopped while nobody is there to stop it.
                self.interrupting = true;
                return Ok(());
            }
        }
        self.interrupting = false;
        match self.open.front() {
            Some(question) => question.show(&mut self.screen),
            None => self.prompt_if_idle(),
        }
    }

    /// Shows one thing; the input and the outcome when it was the end of a turn.
    async fn seen(&mut self, item: Option<WatchItem>) -> anyhow::Result<Option<(String, Outcome)>> {
        let event = match item {
            Some(WatchItem::Event(event)) => *event,
            Some(WatchItem::Delta(delta)) => {
                self.screen.delta(&delta)?;
                return Ok(None);
            }
            Some(WatchItem::CaughtUp { .. }) => {
                self.caught_up = true;
                self.take_open_interactions().await?;
                return Ok(None);
            }
            None => return Err(Failure::with_code(NOT_FOUND, "the session was deleted")),
        };
        self.screen.event(&event)?;
        match event.payload {
            Some(Payload::TurnStarted(started)) => {
                self.running.insert(event.turn_id, started.input_id);
            }
            Some(Payload::TurnEnded(ended)) => {
                let input = self.running.remove(&event.turn_id).unwrap_or_default();
                self.pending.remove(&input);
                return Ok(Some((input, Outcome::of(&ended))));
            }
            Some(Payload::InteractionRequested(asked)) if self.caught_up => {
                if let Some(asked) = asked.interaction {
                    self.asked(asked).await?;
                }
            }
            Some(Payload::InteractionResolved(resolved)) => {
                self.closed(&resolved.interaction_id)?
            }
            Some(Payload::InteractionExpired(expired)) => self.closed(&expired.interaction_id)?,
            Some(Payload::SessionStatus(status)) => self.stuck(&status)?,
            _ => {}
        }
        Ok(None)
    }

    async fn asked(&mut self, asked: v1::Interaction) -> anyhow::Result<()> {
        if self.open.iter().any(|question| question.id() == asked.id) {
            return Ok(());
        }
        match self.asking.begin(asked) {
            Begun::Ask(question) => {
                self.open.push_back(question);
                if self.open.len() == 1 {
                    self.show_first()?;
                }
            }
            Begun::Answer((id, answer)) => self.respond(&id, answer).await?,
            Begun::Wait(asked) => {
                let text = crate::session::question_text(&asked);
                self.screen.ask(&format!("? The agent asks: {text}"))?;
                self.screen.say(&format!(
                    "  answer with: astrabox session respond {} {} --approve (or --decline, --choose, --answer)",
                    self.session_id, asked.id
                ))?;
            }
        }
        Ok(())
    }

    /// Asks the first question. What was typed before cannot have been meant for it.
    fn show_first(&mut self) -> anyhow::Result<()> {
        let Some(question) = self.open.front() else {
            return Ok(());
        };
        for line in self.asking.forget() {
            let line = crate::out::one_line(&line, 60);
            self.screen.say(&format!(
                "not taken, because it was typed before the question: {line}"
            ))?;
        }
        question.show(&mut self.screen)
    }

    /// A line of the terminal, for the question that is shown.
    async fn answered(&mut self, line: Option<String>) -> anyhow::Result<()> {
        self.screen.prompt_taken();
        let Some(line) = line else {
            self.screen
                .say("\nthe terminal is closed; answer with: astrabox session respond")?;
            self.asking = Asking::Elsewhere;
            self.open.clear();
            return Ok(());
        };
        let Some(question) = self.open.front_mut() else {
            return Ok(());
        };
        match question.take(&line) {
            Taken::Whole(answer) => {
                let id = question.id().to_owned();
                self.respond(&id, answer).await
            }
            Taken::More => question.show(&mut self.screen),
            Taken::Unclear(offered) => self.screen.prompt(offered),
        }
    }

    async fn respond(&mut self, id: &str, answer: v1::InteractionAnswer) -> anyhow::Result<()> {
        let request = v1::RespondInteractionRequest {
            session_id: self.session_id.clone(),
            interaction_id: id.to_owned(),
            answer: Some(answer),
            idempotency_key: new_key(),
        };
        let call = again(self.reconnect, || {
            self.client.respond_interaction(request.clone())
        });
        match Self::made(&mut self.presses, call).await? {
            Ok(_) => {
                self.screen.own(id);
                self.closed(id)
            }
            // Somebody else was quicker, or it expired; the event that comes says which.
            Err(error) if error.reason == "INTERACTION_CLOSED" => {
                self.screen.say("your answer came too late")?;
                self.closed(id)
            }
            // It waits behind one that this program does not know yet, or the answer is refused: the person may
            // answer again, a program may not.
            Err(error) if matches!(self.asking, Asking::Person(_)) && !error.is_unreachable() => {
                self.screen
                    .say(&format!("the answer was not taken: {error}"))?;
                self.show_first()
            }
            Err(error) => Err(error.into()),
        }
    }

    fn closed(&mut self, id: &str) -> anyhow::Result<()> {
        let shown = self
            .open
            .front()
            .is_some_and(|question| question.id() == id);
        self.open.retain(|question| question.id() != id);
        if shown { self.show_first() } else { Ok(()) }
    }

    /// An error when the session cannot go on by itself, so that nobody waits for what does not come.
    fn stuck(&self, status: &v1::SessionStatus) -> anyhow::Result<()> {
        let id = &self.session_id;
        let text = match status.state() {
            v1::SessionState::RecoveryRequired => {
                format!("the session needs recovery; try: astrabox session recover {id}")
            }
            v1::SessionState::Terminated => {
                format!("the session has ended; begin again with: astrabox session recover {id}")
            }
            v1::SessionState::Deleted => "the session is deleted".to_owned(),
            v1::SessionState::Unspecified
            | v1::SessionState::Creating
            | v1::SessionState::Ready
            | v1::SessionState::Busy
            | v1::SessionState::Interrupting
            | v1::SessionState::WaitingInput
            | v1::SessionState::BackgroundRunning
            | v1::SessionState::Hibernated => return Ok(()),
        };
        let reason = match status.reason.as_str() {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        Err(Failure::with_code(REFUSED, format!("{text}{reason}")))
    }
}

fn left() -> anyhow::Error {
    Failure::with_code(INTERRUPTED, "left; the session goes on")
}
