//! One scenario: come to the step, kill, bring back what can be brought back, see how the turn ends.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use astrabox_client::{Client, text_part, v1};
use astrabox_testkit::server::ServerOptions;
use astrabox_tests::{Conversation, Program, Stage, comparable};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;
use v1::event::Payload;

use crate::left;
use crate::processes::{Pids, Process};
use crate::step::{Reach, Step};

/// How long a step may take to be reached, and a turn to be settled after a kill.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often something that has no event is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs the scenario and tells its outcome in the words of the table.
pub(crate) async fn run(
    program: &'static Program,
    step: Step,
    killed: &[Process],
) -> Result<String> {
    let expected = undisturbed(program, step).await?;
    let mut scene = Scene::new(program, step).await?;
    scene.come_to_the_step().await?;
    let pids = Pids::find(&scene.stage, program).await?;
    pids.kill(killed, &mut scene.stage).await?;
    scene.go_on(killed.contains(&Process::Server)).await?;
    let journal = scene.settle().await?;
    let outcome = outcome_of(&journal, expected);
    scene
        .take_another_turn()
        .await
        .with_context(|| format!("after `{outcome}`"))?;
    scene.clear().await?;
    Ok(outcome)
}

/// The journal of the step's prompt when nothing is killed, up to the turn's end and rest.
async fn undisturbed(program: &'static Program, step: Step) -> Result<&'static [String]> {
    static KNOWN: [OnceCell<Vec<String>>; 26] = [const { OnceCell::const_new() }; 26];
    let prompts = [
        Step::BeforeTurn,
        Step::FirstByte,
        Step::MidDelta,
        Step::MidTool,
        Step::Asked,
    ];
    let at = prompts
        .iter()
        .position(|one| one.prompt() == step.prompt())
        .context("a prompt of the list")?;
    let engine = usize::from(program.engine == "claude_code");
    let cell = &KNOWN[engine * 13 + at];
    let journal = cell
        .get_or_try_init(|| async {
            let mut scene = Scene::new(program, prompts[at]).await?;
            scene.arm(false)?;
            scene.send();
            if prompts[at].prompt().contains("HOLD") {
                scene.stage.model.wait_until_held("gate", DEADLINE).await?;
                scene.stage.model.release("gate");
            }
            let journal = scene.settle().await?;
            scene.clear().await?;
            anyhow::Ok(comparable(first_turn(&journal)))
        })
        .await?;
    Ok(journal)
}

/// The journal up to the first turn's end and the state that follows.
fn first_turn(journal: &[v1::Event]) -> &[v1::Event] {
    let after = |from: usize, wanted: fn(&Payload) -> bool| {
        let found = journal[from..]
            .iter()
            .position(|event| event.payload.as_ref().is_some_and(wanted));
        found.map_or(journal.len(), |at| from + at + 1)
    };
    let end = after(0, |payload| matches!(payload, Payload::TurnEnded(_)));
    let rest = after(end, |payload| matches!(payload, Payload::SessionStatus(_)));
    &journal[..rest]
}

fn outcome_of(journal: &[v1::Event], expected: &[String]) -> String {
    let found = comparable(first_turn(journal));
    if found == expected {
        return "same".to_owned();
    }
    tell_difference(expected, &found);
    let ended = journal.iter().find_map(|event| match &event.payload {
        Some(Payload::TurnEnded(ended)) => Some(ended),
        _ => None,
    });
    match ended {
        Some(ended) if ended.outcome() == v1::TurnOutcome::Completed => "completed".to_owned(),
        Some(ended) if ended.outcome() == v1::TurnOutcome::Failed => {
            format!("failed: {}", ended.failure_reason)
        }
        Some(_) => "interrupted".to_owned(),
        None => "not ended".to_owned(),
    }
}

struct Scene {
    stage: Stage,
    step: Step,
    program: &'static Program,
    session: String,
    fault: PathBuf,
    /// A call that may stand still together with the server.
    call: JoinSet<Result<()>>,
}

impl Scene {
    async fn new(program: &'static Program, step: Step) -> Result<Self> {
        let places = tempfile::tempdir()?.keep();
        let fault = places.join("fault");
        let environment = step.fault().map(|write| {
            [
                ("ASTRABOX_FAULT".to_owned(), write.to_owned()),
                (
                    "ASTRABOX_FAULT_FILE".to_owned(),
                    fault.display().to_string(),
                ),
            ]
        });
        let change = |options: &mut ServerOptions| {
            options
                .environment
                .extend(environment.into_iter().flatten());
        };
        let stage = Stage::build(program, v1::AgentSpec::default(), change).await?;
        let mode = if step.asks() {
            program.asking
        } else {
            program.unasked
        };
        let talk: Conversation = stage.conversation(mode).await?;
        Ok(Self {
            session: talk.id.clone(),
            stage,
            step,
            program,
            fault,
            call: JoinSet::new(),
        })
    }

    fn arm(&self, armed: bool) -> Result<()> {
        let file = self.fault.with_extension("arm");
        match armed {
            true => std::fs::write(file, b"")?,
            false => drop(std::fs::remove_file(file)),
        }
        Ok(())
    }

    async fn come_to_the_step(&mut self) -> Result<()> {
        match self.step.reach() {
            Reach::Fault(_) => {
                self.arm(true)?;
                self.send();
                self.until_it_stands_still().await
            }
            Reach::Held => {
                self.send();
                self.stage.model.wait_until_held("gate", DEADLINE).await?;
                if self.step == Step::MidDelta {
                    self.until_a_delta().await?;
                }
                Ok(())
            }
            Reach::Tool => {
                self.send();
                self.until(|payload| matches!(payload, Payload::ToolCall(_)))
                    .await
            }
            Reach::Asked => {
                self.send();
                self.until(|payload| matches!(payload, Payload::InteractionRequested(_)))
                    .await
            }
            Reach::Answer(_) => {
                self.send();
                self.until(|payload| matches!(payload, Payload::InteractionRequested(_)))
                    .await?;
                self.arm(true)?;
                self.answer().await?;
                self.until_it_stands_still().await
            }
        }
    }

    /// Lets go of what was held, after the server was started again if it was killed; callers whose call was lost
    /// repeat it with the same key, as clients do.
    async fn go_on(&mut self, server_was_killed: bool) -> Result<()> {
        self.arm(false)?;
        if server_was_killed {
            drop(std::fs::remove_file(&self.fault));
            self.stage.server.start_again().await?;
            self.stage.client = self.stage.server.client().await?;
            self.call.shutdown().await;
            match self.step {
                Step::BeforeAnswer | Step::AfterAnswer => {
                    // It may have been expired meanwhile, because the program that asked is gone.
                    if let Err(error) = self.answer_now().await {
                        tracing_note(&error);
                    }
                }
                _ => self.send(),
            }
        } else {
            drop(std::fs::remove_file(&self.fault));
        }
        self.stage.model.release("gate");
        Ok(())
    }

    /// Waits until the turn has an outcome and the session rests; answers an approval that is still open.
    async fn settle(&mut self) -> Result<Vec<v1::Event>> {
        let settled = tokio::time::timeout(DEADLINE, async {
            let mut answered = false;
            loop {
                let journal = self.stage.client.all_events(&self.session, 0).await?;
                if rests(&journal) {
                    return anyhow::Ok(journal);
                }
                if !answered && is_asked(&journal) && !matches!(self.step.reach(), Reach::Answer(_))
                {
                    answered = self.answer_now().await.is_ok();
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        let journal = match settled.await {
            Ok(journal) => journal?,
            Err(_) => bail!("the turn is not settled; {}", self.story().await),
        };
        // Its answer may be an error, as when the interaction was expired first; it is an answer.
        let answered = tokio::time::timeout(DEADLINE, self.call.join_next()).await;
        drop(answered.context("a call without an answer")?.transpose()?);
        Ok(journal)
    }

    /// Says something else. An input that comes between the death of an idle program and the news of it fails with
    /// its reason; the one after it is answered.
    async fn take_another_turn(&mut self) -> Result<()> {
        for _ in 0..2 {
            let before = ends(&self.stage.client.all_events(&self.session, 0).await?);
            let request = v1::SendInputRequest {
                session_id: self.session.clone(),
                content: vec![text_part("SAY: usable")],
                ..Default::default()
            };
            self.stage.client.send_input(request).await?;
            let ended = tokio::time::timeout(DEADLINE, async {
                loop {
                    let journal = self.stage.client.all_events(&self.session, 0).await?;
                    if ends(&journal) > before && rests(&journal) {
                        return anyhow::Ok(journal);
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            });
            let Ok(journal) = ended.await else {
                break;
            };
            let said = |event: &v1::Event| matches!(&event.payload, Some(Payload::MessageCompleted(said)) if said.text.contains("usable"));
            if journal?.iter().any(said) {
                return Ok(());
            }
        }
        bail!("no other turn is taken; {}", self.story().await)
    }

    async fn clear(self) -> Result<()> {
        let folder = self.stage.server.folder().to_path_buf();
        let kept = self.fault.parent().map(PathBuf::from);
        let mut stage = self.stage;
        stage.remove_all().await?;
        stage.server.stop().await?;
        left::nothing_of(&folder).await?;
        stage.model.shutdown().await;
        if let Some(kept) = kept {
            std::fs::remove_dir_all(kept)?;
        }
        Ok(())
    }

    /// Sends the prompt, in a task: the server may stand still in it.
    fn send(&mut self) {
        let client = self.stage.client.clone();
        let request = v1::SendInputRequest {
            session_id: self.session.clone(),
            content: vec![text_part(self.step.prompt())],
            idempotency_key: "the-prompt".to_owned(),
        };
        self.call.spawn(async move {
            client.send_input(request).await?;
            Ok(())
        });
    }

    async fn answer(&mut self) -> Result<()> {
        let (client, request) = self.answer_request().await?;
        if let Some(sent) = self.call.join_next().await {
            sent??;
        }
        self.call.spawn(async move {
            client.respond_interaction(request).await?;
            Ok(())
        });
        Ok(())
    }

    async fn answer_now(&self) -> Result<()> {
        let (client, request) = self.answer_request().await?;
        client.respond_interaction(request).await?;
        Ok(())
    }

    async fn answer_request(&self) -> Result<(Client, v1::RespondInteractionRequest)> {
        let client = self.stage.client.clone();
        let journal = client.all_events(&self.session, 0).await?;
        let asked = journal.iter().rev().find_map(|event| match &event.payload {
            Some(Payload::InteractionRequested(requested)) => requested.interaction.clone(),
            _ => None,
        });
        let choose = v1::Choose {
            choice_id: self.program.allow.to_owned(),
            ..Default::default()
        };
        let request = v1::RespondInteractionRequest {
            session_id: self.session.clone(),
            interaction_id: asked.context("an interaction")?.id,
            answer: Some(v1::InteractionAnswer {
                answer: Some(v1::interaction_answer::Answer::Choose(choose)),
            }),
            idempotency_key: "the-answer".to_owned(),
        };
        Ok((client, request))
    }

    async fn until(&self, wanted: impl Fn(&Payload) -> bool) -> Result<()> {
        let reached = tokio::time::timeout(DEADLINE, async {
            loop {
                let journal = self.stage.client.all_events(&self.session, 0).await?;
                if journal
                    .iter()
                    .filter_map(|event| event.payload.as_ref())
                    .any(&wanted)
                {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        reached.await.context("the step is not reached")?
    }

    /// Waits until a subscriber has been told a part of the message.
    async fn until_a_delta(&self) -> Result<()> {
        let mut watch = self
            .stage
            .client
            .watch(&self.session, Default::default())
            .await?;
        let told = tokio::time::timeout(DEADLINE, async {
            while let Some(item) = watch.next().await? {
                if matches!(item, astrabox_client::WatchItem::Delta(_)) {
                    return anyhow::Ok(());
                }
            }
            bail!("the watch ended")
        });
        told.await.context("no delta came")?
    }

    async fn until_it_stands_still(&self) -> Result<()> {
        let reached = tokio::time::timeout(DEADLINE, async {
            while !self.fault.exists() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        reached.await.context(
            "the server does not stand still: build it with `cargo build -p astraboxd --features fault-points`",
        )
    }

    async fn story(&self) -> String {
        let journal = self.stage.client.all_events(&self.session, 0).await;
        let journal = journal.map(|events| comparable(&events).join("\n"));
        format!(
            "its journal: {journal:?}\nthe server's log:\n{}",
            self.stage.server.log()
        )
    }
}

/// Whether a turn has ended and none runs.
fn rests(journal: &[v1::Event]) -> bool {
    let ended = journal
        .iter()
        .any(|event| matches!(event.payload, Some(Payload::TurnEnded(_))));
    let state = journal.iter().rev().find_map(|event| match &event.payload {
        Some(Payload::SessionStatus(status)) => Some(status.state()),
        _ => None,
    });
    ended
        && matches!(
            state,
            Some(v1::SessionState::Ready | v1::SessionState::Hibernated)
        )
}

fn ends(journal: &[v1::Event]) -> usize {
    let ended = |event: &&v1::Event| matches!(event.payload, Some(Payload::TurnEnded(_)));
    journal.iter().filter(ended).count()
}

/// Whether an interaction is open.
fn is_asked(journal: &[v1::Event]) -> bool {
    let mut open = false;
    for event in journal {
        match event.payload {
            Some(Payload::InteractionRequested(_)) => open = true,
            Some(Payload::InteractionResolved(_) | Payload::InteractionExpired(_)) => open = false,
            _ => {}
        }
    }
    open
}

/// Says in what two journals differ, where a failed test's output is.
#[expect(
    clippy::print_stderr,
    reason = "for the person who reads a failed test"
)]
fn tell_difference(expected: &[String], found: &[String]) {
    for line in expected.iter().filter(|line| !found.contains(line)) {
        eprintln!("undisturbed only: {line}");
    }
    for line in found.iter().filter(|line| !expected.contains(line)) {
        eprintln!("here only: {line}");
    }
}

/// Says what went on, where a failed test's output is.
#[expect(
    clippy::print_stderr,
    reason = "for the person who reads a failed test"
)]
fn tracing_note(error: &anyhow::Error) {
    eprintln!("the answer was not taken: {error:#}");
}
