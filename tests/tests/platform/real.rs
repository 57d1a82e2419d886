//! The same rules with real sandboxes on this machine and the fake engine as a real program in them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use astrabox_types::{EventPayload, JournalEvent, SessionState};

use crate::fault::Faults;
use crate::interactions::choose;
use crate::stage::Stage;
use crate::told::{asked, check, ended, ends, is_now, names, rests, said, show, texts};
use crate::world::{Real, World};

// Links the local provider.
use astrabox_builtin as _;

/// The folder of the programs: as the test run says, else they are built here.
fn programs() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("ASTRABOX_BIN_DIR") {
            return folder.into();
        }
        let test = std::env::current_exe().expect("this is a program");
        let folder = test.ancestors().nth(2).expect("target/PROFILE/deps");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--target-dir"]);
        build.arg(folder.parent().expect("target/PROFILE is in target"));
        build.args(["-p", "astrabox-testkit", "-p", "astrabox-runner", "--bins"]);
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(built.expect("cargo runs").success(), "they are built");
        folder.to_owned()
    })
}

async fn stage() -> Stage {
    let folder = programs();
    let runner = std::env::var_os("ASTRABOX_RUNNER").map(PathBuf::from);
    let real = Real {
        engine: folder.join("fake-engine"),
        runner: runner.unwrap_or_else(|| folder.join("astrabox-runner")),
    };
    Stage::of(World::real(real).await, Faults::none()).await
}

/// What the tools gave, in order.
fn outputs(events: &[JournalEvent]) -> Vec<String> {
    let output = |event: &JournalEvent| match &event.payload {
        EventPayload::ToolResult { output, .. } => Some(output.text().to_owned()),
        _ => None,
    };
    events.iter().filter_map(output).collect()
}

#[tokio::test]
async fn a_session_works_is_released_and_resumes_where_it_was() {
    let mut stage = stage().await;
    let id = stage
        .create(
            "DELTAS: 5\nRUN: echo kept > note; pwd; cat note\nASK: decision way\nSPLIT: \u{fc}ber",
        )
        .await;
    let interaction = stage
        .until(id, "a question", |events| asked(events).pop())
        .await;
    let answered = stage.try_respond(id, interaction.id, choose("left")).await;
    answered.expect("it is active");
    stage.until(id, "the end", rests(1)).await;
    stage.release_sandbox(id).await.expect("it is released");
    assert!(stage.world.boxes(id).await.is_empty());
    stage.send(id, "RECALL\nRUN: cat note").await;
    stage.until(id, "the second end", rests(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(
        texts(&events)[..3],
        ["d1 d2 d3 d4 d5", "answer: left", "\u{fc}ber"]
    );
    assert!(
        texts(&events)[3].starts_with("you said: [\"DELTAS: 5"),
        "{}",
        show(&events)
    );
    assert_eq!(
        outputs(&events),
        [
            r#"{"code":0,"output":"/workspace\nkept\n"}"#,
            r#"{"code":0,"output":"kept\n"}"#
        ]
    );
    stage.delete(id).await.expect("it is deleted");
    assert!(stage.world.boxes(id).await.is_empty());
}

#[tokio::test]
async fn a_turn_goes_on_over_the_death_of_the_server() {
    let mut stage = stage().await;
    let id = stage
        .create("SAY: before\nSTREAM: 6 go\nRUN: echo after\nHOLD: end")
        .await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the words", said("before")).await;
    stage.restart().await;
    stage.world.release(id, "go").await;
    let ran = |events: &[JournalEvent]| (!outputs(events).is_empty()).then_some(());
    stage.until(id, "the tool", ran).await;
    stage.drain_and_restart().await;
    stage.world.release(id, "end").await;
    stage.until(id, "both ends", rests(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events)[..2], ["before", "d1 d2 d3 d4 d5 d6"]);
    assert_eq!(stage.world.log.processes().len(), 1, "the engine lived on");
    stage.delete(id).await.expect("it is deleted");
}

#[tokio::test]
async fn turns_are_stopped_however_deep_they_are_in_it() {
    let mut stage = stage().await;
    let id = stage.create("SAY: begin").await;
    let prompts = ["RUN: sleep 1000", "HOLD: never", "SILENT"];
    for (n, prompt) in prompts.into_iter().enumerate() {
        stage.send(id, prompt).await;
        stage
            .until(id, "the turn", |events| {
                let consumed = names(events)
                    .into_iter()
                    .filter(|name| *name == "input.consumed");
                (consumed.count() == n + 2).then_some(())
            })
            .await;
        assert!(stage.interrupt(id).await.is_some());
        stage.until(id, "the end", ended(n + 2)).await;
    }
    stage.send(id, "RECALL").await;
    stage.until(id, "the last end", ended(5)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(
        ends(&events),
        [
            "completed",
            "interrupted",
            "interrupted",
            "interrupted",
            "completed"
        ]
    );
    stage.delete(id).await.expect("it is deleted");
}

#[tokio::test]
async fn an_engine_that_dies_fails_its_turn_and_leaves_no_process_behind_the_session() {
    let mut stage = stage().await;
    let id = stage
        .create("RUN: (trap '' TERM; exec sleep 1000) > /dev/null 2>&1 & echo forked\nSTDERR: ouch\nEXIT: 7")
        .await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "SAY: on").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["engine_exited", "completed"]);
    assert!(show(&events).contains("ouch"), "{}", show(&events));
    stage
        .delete(id)
        .await
        .expect("a child that ignores signals does not matter");
    assert!(stage.world.boxes(id).await.is_empty());
}

#[tokio::test]
async fn a_sandbox_that_ends_under_a_turn_fails_it() {
    let mut stage = stage().await;
    let id = stage.create("SAY: so far\nHOLD: never").await;
    stage.until(id, "the words", said("so far")).await;
    stage.world.destroy_box(id).await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    let first = &ends(&events)[0];
    assert!(
        ["sandbox_died", "sandbox_gone"].contains(&first.as_str()),
        "{first}"
    );
    assert!(texts(&events)[1].contains("so far"), "{}", show(&events));
    stage.until(id, "rest", is_now(SessionState::Ready)).await;
    stage.delete(id).await.expect("it is deleted");
}
