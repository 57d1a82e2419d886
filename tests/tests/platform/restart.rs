//! Servers that end and begin again, and connections that break.

use std::time::Duration;

use astrabox_platform::PlatformSettings;
use astrabox_types::SessionState;

use crate::fault::Faults;
use crate::stage::Stage;
use crate::told::{check, comparable, ended, ends, is_now, names, rests, said, texts};
use crate::world::{World, settings};

#[tokio::test]
async fn a_turn_goes_on_while_no_server_runs_and_nothing_is_lost() {
    for in_order in [true, false] {
        let mut stage = Stage::new().await;
        let id = stage
            .create("SAY: before\nSTREAM: 6 go\nRUN: echo after")
            .await;
        stage.until(id, "the words", said("before")).await;
        if in_order {
            stage.drain().await;
        } else {
            stage.kill().await;
        }
        // The program finishes by itself.
        stage.world.release(id, "go").await;
        stage.start().await;
        stage.until(id, "the end", rests(1)).await;
        stage.send(id, "RECALL").await;
        stage.until(id, "the second end", rests(2)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(ends(&events), ["completed", "completed"]);
        assert_eq!(texts(&events)[..2], ["before", "d1 d2 d3 d4 d5 d6"]);
        assert_eq!(stage.world.log.processes().len(), 1, "the engine lived on");
    }
}

#[tokio::test]
async fn the_journal_after_many_restarts_is_that_of_an_undisturbed_run() {
    let prompt =
        "THINK: hm\nSTREAM: 8 a\nRUN: echo x > f\nSTREAM: 8 b\nCHILD: below\nSAY: done\nHOLD: c";
    let mut journals = Vec::new();
    for restarts in [false, true] {
        let mut stage = Stage::new().await;
        let id = stage.create(prompt).await;
        stage.send(id, "SAY: second").await;
        let begun = |events: &[_]| names(events).contains(&"input.consumed").then_some(());
        stage.until(id, "the turn", begun).await;
        for name in ["a", "b", "c"] {
            if restarts {
                stage.restart().await;
                stage.drain_and_restart().await;
            }
            stage.world.release(id, name).await;
        }
        stage.until(id, "both ends", rests(2)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(stage.world.log.processes().len(), 1);
        journals.push(comparable(&events));
    }
    assert_eq!(journals[0], journals[1]);
}

#[tokio::test]
async fn an_input_that_waited_is_delivered_after_a_restart() {
    let mut stage = Stage::new().await;
    let id = stage.create("HOLD: go").await;
    stage.send(id, "SAY: two").await;
    stage.send(id, "SAY: three").await;
    stage
        .until(id, "the turn", is_now(SessionState::Busy))
        .await;
    stage.restart().await;
    stage.world.release(id, "go").await;
    stage.until(id, "all ends", rests(3)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["two", "three"]);
}

#[tokio::test]
async fn a_message_right_after_a_restart_meets_one_runtime() {
    for _ in 0..5 {
        let mut stage = Stage::new().await;
        let id = stage.create("SAY: one").await;
        stage.until(id, "the end", rests(1)).await;
        stage.restart().await;
        stage.send(id, "RECALL").await;
        stage.until(id, "the second end", rests(2)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(stage.world.log.processes().len(), 1);
        assert_eq!(stage.world.boxes(id).await.len(), 1);
    }
}

#[tokio::test]
async fn a_turn_that_was_being_stopped_is_stopped_after_a_restart() {
    for prompt in ["SILENT", "HOLD: never"] {
        let mut stage = Stage::new().await;
        let id = stage.create(prompt).await;
        let begun = |events: &[_]| names(events).contains(&"input.consumed").then_some(());
        stage.until(id, "the turn", begun).await;
        stage.interrupt(id).await;
        stage.restart().await;
        stage.until(id, "the end", ended(1)).await;
        stage.send(id, "SAY: on").await;
        stage.until(id, "the second end", ended(2)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(ends(&events), ["interrupted", "completed"], "{prompt}");
    }
}

#[tokio::test]
async fn the_cause_of_a_stop_is_known_after_a_restart() {
    let cases = [
        (
            "SILENT",
            "engine_stalled",
            Duration::from_millis(200),
            Duration::from_secs(600),
        ),
        (
            "ASK: decision way\nDEAF\nHOLD: never",
            "interaction_expired",
            Duration::from_secs(600),
            Duration::from_millis(200),
        ),
    ];
    for (prompt, expected, stall_timeout, interaction_timeout) in cases {
        let world = World::with(PlatformSettings {
            stall_timeout,
            interaction_timeout,
            // The first server does not come to the end of it.
            interrupt_timeout: Duration::from_secs(2),
            ..settings()
        });
        let mut stage = Stage::of(world, Faults::none()).await;
        let id = stage.create(prompt).await;
        stage
            .until(id, "the stop", is_now(SessionState::Interrupting))
            .await;
        stage.restart().await;
        stage.until(id, "the end", ended(1)).await;
        let events = stage.journal(id).await;
        check(&events);
        assert_eq!(ends(&events), [expected], "{prompt}");
    }
}

#[tokio::test]
async fn an_engine_that_ended_while_no_server_ran_fails_its_turn_and_keeps_its_words() {
    let mut stage = Stage::new().await;
    let id = stage
        .create("SAY: so far\nHOLD: go\nSAY: last words\nEXIT: 5")
        .await;
    stage.until(id, "the words", said("so far")).await;
    stage.kill().await;
    stage.world.release(id, "go").await;
    let workload = stage.world.inside(id).await.1;
    let process = stage.world.log.processes()[0].1.clone();
    crate::server::eventually("the program ends", || async {
        let status = workload.status(&process).await.expect("memory answers");
        status.is_some_and(|status| status.exit.is_some())
    })
    .await;
    stage.start().await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "SAY: on").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["engine_exited", "completed"]);
    assert_eq!(texts(&events), ["so far", "last words", "on"]);
}

#[tokio::test]
async fn a_sandbox_that_ended_while_no_server_ran_fails_its_turn_and_the_session_works_on() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: so far\nHOLD: never").await;
    stage.until(id, "the words", said("so far")).await;
    stage.kill().await;
    stage.world.destroy_box(id).await;
    stage.start().await;
    stage.until(id, "the end", ended(1)).await;
    stage.send(id, "RECALL").await;
    stage.until(id, "the second end", ended(2)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["sandbox_gone", "completed"]);
}

#[tokio::test]
async fn a_lost_connection_is_not_a_dead_sandbox() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: before\nSTREAM: 6 go\nSAY: after").await;
    stage.until(id, "the words", said("before")).await;
    for _ in 0..3 {
        stage.world.wire.cut();
        // Long enough to be noticed.
        crate::server::pass_ms(150).await;
        stage.world.wire.mend();
    }
    stage.world.wire.cut();
    stage.world.release(id, "go").await;
    crate::server::pass_ms(150).await;
    stage.world.wire.mend();
    stage.until(id, "the end", rests(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed"]);
    assert_eq!(texts(&events), ["before", "d1 d2 d3 d4 d5 d6", "after"]);
    assert_eq!(stage.world.log.processes().len(), 1);
}

#[tokio::test]
async fn a_connection_that_breaks_right_behind_output_loses_none_of_it() {
    let rounds: Vec<_> = (0..5).map(|n| format!("HOLD: go{n}\nSAY: {n}")).collect();
    let mut stage = Stage::new().await;
    let id = stage.create(&rounds.join("\n")).await;
    let begun = |events: &[_]| names(events).contains(&"input.consumed").then_some(());
    stage.until(id, "the turn", begun).await;
    for n in 0..5 {
        stage.world.wire.break_behind_output();
        stage.world.release(id, &format!("go{n}")).await;
        stage.until(id, "the words", said(&n.to_string())).await;
    }
    stage.until(id, "the end", rests(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(ends(&events), ["completed"]);
    assert_eq!(stage.world.log.processes().len(), 1);
}

#[tokio::test]
async fn an_answer_given_while_the_connection_is_lost_arrives() {
    let mut stage = Stage::new().await;
    let id = stage.create("ASK: decision way").await;
    let interaction = stage
        .until(id, "a question", |events| crate::told::asked(events).pop())
        .await;
    stage.world.wire.cut();
    crate::server::pass_ms(100).await;
    let wire = stage.world.wire.clone();
    let answer = crate::interactions::choose("left");
    let (answered, ()) = tokio::join!(stage.try_respond(id, interaction.id, answer), async {
        crate::server::pass_ms(200).await;
        wire.mend();
    });
    answered.expect("it waits until the engine is reached");
    stage.until(id, "the end", rests(1)).await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(texts(&events), ["answer: left"]);
}
