//! The crash matrix: a server is killed at every point of a scenario, before and after each write and each call to a
//! sandbox, and the next server goes on. What is told and what is done equals an undisturbed run.

use astrabox_types::{InteractionAnswer, SessionId};

use crate::fault::Faults;
use crate::interactions::choose;
use crate::stage::Stage;
use crate::told::{asked, check, comparable, rests, show};
use crate::world::World;

/// One thing that a client or a person does.
enum Act {
    Create(&'static str),
    Send(&'static str),
    /// Waits until the session has its lines and rests after so many turns.
    Rests(usize),
    /// Waits until this event was told so often.
    Told(&'static str, usize),
    /// Lets what waits for this name go on.
    Go(&'static str),
    /// Answers the question with this number, from 1.
    Answer(usize, &'static str),
    Interrupt,
    Mode(&'static str),
    Release,
    Delete,
}

struct Outcome {
    journal: Vec<String>,
    told: Vec<Vec<String>>,
    points: Vec<String>,
    stopped_at: Option<String>,
    text: String,
}

/// Plays a scenario; the first server is stopped at a point.
async fn play(acts: &[Act], stop_at: Option<usize>) -> Outcome {
    let faults = Faults::at(stop_at);
    let mut stage = Stage::of(World::new(), faults.clone()).await;
    let mut id: Option<SessionId> = None;
    let mut deleted = false;
    for act in acts {
        if let Act::Create(prompt) = act {
            id = Some(stage.create(prompt).await);
            continue;
        }
        let id = id.expect("it is created first");
        match act {
            Act::Create(_) => {}
            Act::Send(text) => drop(stage.send(id, text).await),
            Act::Rests(turns) => stage.until(id, "rest", rests(*turns)).await,
            Act::Told(name, count) => {
                let enough = |events: &[astrabox_types::JournalEvent]| {
                    let told = events.iter().filter(|event| event.payload.name() == *name);
                    (told.count() >= *count).then_some(())
                };
                stage.until(id, name, enough).await;
            }
            Act::Go(name) => stage.world.release(id, name).await,
            Act::Answer(number, choice) => {
                let find = |events: &[_]| asked(events).get(number - 1).map(|one| one.id);
                let interaction = stage.until(id, "a question", find).await;
                let answer: InteractionAnswer = choose(choice);
                let answered = stage.try_respond(id, interaction, answer).await;
                answered.unwrap_or_else(|error| panic!("stopped at {stop_at:?}: {error}"));
            }
            Act::Interrupt => drop(stage.interrupt(id).await),
            Act::Mode(mode) => drop(stage.set_mode(id, mode).await.expect("it is known")),
            Act::Release => {
                let released = stage.release_sandbox(id).await;
                released.unwrap_or_else(|error| panic!("stopped at {stop_at:?}: {error}"));
            }
            Act::Delete => {
                stage.delete(id).await.expect("it is legal");
                deleted = true;
            }
        }
    }
    let id = id.expect("there is a session");
    let events = if deleted {
        assert!(stage.world.boxes(id).await.is_empty());
        assert_eq!(stage.world.words_left(id).await, 0);
        Vec::new()
    } else {
        let events = stage.journal(id).await;
        check(&events);
        assert!(stage.world.running(id).await <= 1, "stopped at {stop_at:?}");
        events
    };
    Outcome {
        journal: comparable(&events),
        told: told(stage.world.log.stdin_lines()),
        points: faults.passed(),
        stopped_at: stage.stopped_at.clone(),
        text: show(&events),
    }
}

/// What the programs were told, without ids. A program that was opened and told nothing belongs to a start that was
/// interrupted; the word at the end is a courtesy.
fn told(processes: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let plain = |line: &String| {
        let mut value: serde_json::Value = serde_json::from_str(line).expect("whole lines");
        for key in ["input", "session"] {
            if let Some(id) = value.get_mut(key).filter(|id| id.is_string()) {
                *id = "an id".into();
            }
        }
        (value["type"] != "bye").then(|| value.to_string())
    };
    let lines = processes
        .iter()
        .map(|lines| lines.iter().filter_map(plain).collect::<Vec<_>>());
    lines.filter(|lines| lines.len() > 1).collect()
}

/// A release that is cut off is seen as an engine or a sandbox that ended: the reason of the rest tells that.
fn without_reasons_of_rest(journal: Vec<String>) -> Vec<String> {
    let plain = |line: String| match line.split_once(r#"{"session.status":{"reason":"#) {
        Some((before, after)) if after.contains("HIBERNATED") => {
            format!("{before} a reason and {}", r#""state":"HIBERNATED"}}"#)
        }
        _ => line,
    };
    journal.into_iter().map(plain).collect()
}

async fn matrix(acts: &[Act]) {
    let whole = play(acts, None).await;
    let again = play(acts, None).await;
    assert_eq!(
        whole.journal, again.journal,
        "the scenario itself is always the same"
    );
    let count = whole.points.len();
    assert!(count > 10, "it has points");
    for at in 0..count {
        let cut = play(acts, Some(at)).await;
        let Some(place) = &cut.stopped_at else {
            // Group commits and merged steps make some runs shorter.
            continue;
        };
        let name = format!("stopped at point {at} of {count}, {place}");
        if acts.iter().any(|act| matches!(act, Act::Release)) {
            let whole = without_reasons_of_rest(whole.journal.clone());
            let cut_off = without_reasons_of_rest(cut.journal);
            assert_eq!(cut_off, whole, "{name}: {}", cut.text);
        } else {
            assert_eq!(cut.journal, whole.journal, "{name}: {}", cut.text);
        }
        assert_eq!(cut.told, whole.told, "{name}: every line is delivered once");
    }
}

#[tokio::test]
async fn a_turn_with_every_kind_of_output() {
    matrix(&[
        Act::Create(
            "THINK: hm\nDELTAS: 4\nRUN: echo x\nCHILD: below\nFILE: f x\nWEATHER\nUSAGE: 1 2",
        ),
        Act::Rests(1),
    ])
    .await;
}

#[tokio::test]
async fn a_streaming_turn_and_the_one_behind_it() {
    matrix(&[
        Act::Create("STREAM: 4 go\nSAY: one"),
        Act::Told("input.consumed", 1),
        Act::Send("RECALL"),
        Act::Go("go"),
        Act::Rests(2),
    ])
    .await;
}

#[tokio::test]
async fn questions_and_their_answers() {
    matrix(&[
        Act::Create("ASKS: 2\nASK: decision way"),
        Act::Answer(1, "yes"),
        Act::Answer(2, "no"),
        Act::Answer(3, "left"),
        Act::Rests(1),
    ])
    .await;
}

#[tokio::test]
async fn an_interrupt_and_a_turn_after_it() {
    matrix(&[
        Act::Create("SAY: so far\nHOLD: never"),
        Act::Told("message.completed", 1),
        Act::Interrupt,
        Act::Rests(1),
        Act::Send("SAY: on"),
        Act::Rests(2),
    ])
    .await;
}

#[tokio::test]
async fn work_in_the_background() {
    matrix(&[
        Act::Create("BACKGROUND: go later\nSAY: now"),
        Act::Told("turn.ended", 1),
        Act::Go("go"),
        Act::Rests(2),
        Act::Send("SAY: on"),
        Act::Rests(3),
    ])
    .await;
}

#[tokio::test]
async fn a_turn_that_the_engine_begins() {
    matrix(&[
        Act::Create("LINGER: go report"),
        Act::Told("turn.ended", 1),
        Act::Go("go"),
        Act::Told("turn.started", 2),
        Act::Send("SAY: on"),
        Act::Go("go-end"),
        Act::Rests(3),
    ])
    .await;
}

#[tokio::test]
async fn an_engine_that_exits_in_its_turn() {
    matrix(&[
        Act::Create("SAY: so far\nEXIT: 3"),
        // CREATING, READY, BUSY, READY, HIBERNATED
        Act::Told("session.status", 5),
        Act::Send("NOTICE"),
        Act::Rests(2),
    ])
    .await;
}

#[tokio::test]
async fn a_mode_a_release_and_a_resume() {
    matrix(&[
        Act::Create("MODE"),
        Act::Rests(1),
        Act::Mode("bold"),
        Act::Send("MODE"),
        Act::Rests(2),
        Act::Release,
        Act::Send("MODE\nRECALL"),
        Act::Rests(3),
    ])
    .await;
}

#[tokio::test]
async fn a_deletion_in_the_middle_of_a_turn() {
    matrix(&[
        Act::Create("SAY: so far\nASKS: 2"),
        Act::Told("interaction.requested", 1),
        Act::Delete,
    ])
    .await;
}
