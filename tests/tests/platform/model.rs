//! Random commands against a model of what must hold, whatever their order.

use astrabox_types::{ErrorReason, SessionId, SessionState};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::fault::Faults;
use crate::interactions::choose;
use crate::server::PATIENCE;
use crate::stage::Stage;
use crate::told::{check, inputs, show, turns};
use crate::world::World;

#[derive(Debug, Clone, Copy)]
enum Do {
    Send(&'static str),
    Interrupt,
    Answer,
    Go,
    Kill,
    Release,
    Restart,
    Drain,
    LoseBox,
    Cut,
    Recover,
    Mode,
    Breathe,
}

const PROMPTS: &[&str] = &[
    "SAY: x",
    "STREAM: 4 go",
    "HOLD: go",
    "ASKS: 2",
    "ASK: decision way\nSAY: y",
    "SILENT",
    "EXIT: 3",
    "BACKGROUND: go later",
    "LINGER: go slow",
    "PRELUDE: before\nSAY: z",
    "RUN: echo x > f\nCHILD: c",
    "FAIL: broken",
    "NOEND",
];

fn one() -> impl Strategy<Value = Do> {
    prop_oneof![
        6 => prop::sample::select(PROMPTS).prop_map(Do::Send),
        2 => Just(Do::Interrupt),
        2 => Just(Do::Answer),
        3 => Just(Do::Go),
        1 => Just(Do::Kill),
        1 => Just(Do::Release),
        1 => Just(Do::Restart),
        1 => Just(Do::Drain),
        1 => Just(Do::LoseBox),
        1 => Just(Do::Cut),
        1 => Just(Do::Recover),
        1 => Just(Do::Mode),
        4 => Just(Do::Breathe),
    ]
}

async fn act(stage: &mut Stage, id: SessionId, what: Do) {
    match what {
        Do::Send(prompt) => match stage.try_send(id, prompt).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.reason(), ErrorReason::InputQueueFull, "{error}"),
        },
        Do::Interrupt => drop(stage.interrupt(id).await),
        Do::Answer => {
            if let Some(open) = stage.open_interactions(id).await.first() {
                let interaction = open.interaction.id;
                let answer = match open.interaction.presentation {
                    astrabox_types::Presentation::Decision { .. } => "left",
                    _ => "yes",
                };
                // It may have been closed meanwhile.
                let _ = stage.try_respond(id, interaction, choose(answer)).await;
            }
        }
        Do::Go => drop(stage.world.try_release(id, "go").await),
        Do::Kill => drop(stage.world.try_kill_engine(id).await),
        Do::LoseBox => drop(stage.world.try_destroy_box(id).await),
        Do::Release => drop(stage.release_sandbox(id).await),
        Do::Restart => stage.restart().await,
        Do::Drain => stage.drain_and_restart().await,
        Do::Cut => {
            stage.world.wire.cut();
            crate::server::pass_ms(20).await;
            stage.world.wire.mend();
        }
        Do::Recover => drop(stage.recover(id).await),
        Do::Mode => drop(stage.set_mode(id, "bold").await),
        // So that turns come to their middles and ends.
        Do::Breathe => crate::server::pass_ms(15).await,
    }
}

/// Lets everything end: what waits goes on, what asks or is silent is stopped.
async fn settle(stage: &mut Stage, id: SessionId) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        stage.world.try_release(id, "go").await;
        // In this order: what had begun by then and is not running now has ended.
        let events = stage.journal(id).await;
        let view = stage.view(id).await.expect("it is there");
        let waits = inputs(&events).len() > begun(&events);
        let rests = matches!(
            view.session.state,
            SessionState::Ready | SessionState::Hibernated
        );
        if rests && !waits && view.session.current_turn.is_none() {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "it does not come to rest: {:?} {}",
            view.session,
            show(&events)
        );
        if view.session.state.has_turn() {
            stage.interrupt(id).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn begun(events: &[astrabox_types::JournalEvent]) -> usize {
    let of_input = |origin| matches!(origin, astrabox_types::TurnOrigin::Input { .. });
    turns(events)
        .into_iter()
        .filter(|(_, origin, _)| of_input(*origin))
        .count()
}

/// Plays these steps; the first server is stopped at a point, the next one goes on.
async fn play(stop_at: Option<usize>, steps: Vec<Do>) {
    let mut stage = Stage::of(World::new(), Faults::at(stop_at)).await;
    let id = stage.create("SAY: begin").await;
    for step in &steps {
        act(&mut stage, id, *step).await;
    }
    settle(&mut stage, id).await;
    // Whatever happened, the session works.
    let before = stage.journal(id).await;
    let input = stage.send(id, "SAY: at last").await;
    stage
        .until(id, "the last answer", |events| {
            let last = events.iter().any(|event| {
                event.seq > before.len() as u64
                    && matches!(
                        &event.payload,
                        astrabox_types::EventPayload::TurnEnded {
                            outcome: astrabox_types::TurnOutcome::Completed,
                            ..
                        }
                    )
            });
            last.then_some(())
        })
        .await;
    let events = stage.journal(id).await;
    check(&events);
    assert_eq!(inputs(&events).last(), Some(&input));
    assert_eq!(
        begun(&events),
        inputs(&events).len(),
        "every input has a turn: {}",
        show(&events)
    );
    let each_ends = turns(&events).iter().all(|(_, _, ends)| *ends == 1);
    assert!(each_ends, "every turn has one end: {}", show(&events));
    assert!(stage.open_interactions(id).await.is_empty());
    assert_eq!(stage.world.running(id).await, 1, "one runtime");
    stage.delete(id).await.expect("it is legal in every state");
    assert!(stage.world.boxes(id).await.is_empty());
}

/// `PROPTEST_CASES` asks for more than the everyday few.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(24)
}

#[test]
fn any_order_of_commands_and_faults_leaves_a_session_that_works() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let config = Config {
        cases: cases(),
        max_shrink_iters: 40,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = prop::collection::vec(one(), 1..16);
    let input = (prop::option::of(0..300_usize), steps);
    let played = TestRunner::new(config).run(&input, |(stop_at, steps)| {
        let shown = format!("{stop_at:?} {steps:?}");
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(play(stop_at, steps));
        }));
        played.map_err(|_| TestCaseError::fail(shown))
    });
    if let Err(error) = played {
        panic!("{error}");
    }
}
