//! Random steps against a model in memory.

use astrabox_store::{InputChange, InputState, InteractionChange, NativeFile, NewEvent, Store};
use astrabox_types::{
    ContentPart, EventId, EventPayload, InputId, Interaction, InteractionAnswer, InteractionId,
    InteractionState, MessageKind, Presentation, SessionId, SessionState,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{Place, step};

/// Ids come from small sets, so that they repeat.
#[derive(Debug, Clone)]
enum Do {
    Claim,
    Say { stale: bool, events: Vec<u8> },
    State(bool),
    Queue(u8),
    Move(u8, bool),
    Ask(u8),
    Answer(u8),
    Expire(u8),
    Save(Vec<u8>),
    Reopen,
}

fn one() -> impl Strategy<Value = Do> {
    prop_oneof![
        1 => Just(Do::Claim),
        6 => (any::<bool>(), prop::collection::vec(0..30_u8, 0..5))
            .prop_map(|(stale, events)| Do::Say { stale, events }),
        2 => any::<bool>().prop_map(Do::State),
        2 => (0..5_u8).prop_map(Do::Queue),
        2 => (0..5_u8, any::<bool>()).prop_map(|(n, settled)| Do::Move(n, settled)),
        2 => (0..4_u8).prop_map(Do::Ask),
        1 => (0..4_u8).prop_map(Do::Answer),
        1 => (0..4_u8).prop_map(Do::Expire),
        1 => prop::collection::vec(any::<u8>(), 0..50).prop_map(Do::Save),
        1 => Just(Do::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    epoch: u64,
    events: Vec<u8>,
    ready: bool,
    inputs: Vec<(u8, bool)>,
    asked: Vec<(u8, InteractionState)>,
    saved: Vec<u8>,
}

/// The id with this number in this session.
fn event_id(id: SessionId, n: u8) -> EventId {
    EventId::derived(id.uuid(), &["event", &n.to_string()])
}

fn input_id(id: SessionId, n: u8) -> InputId {
    InputId::derived(id.uuid(), &["input", &n.to_string()])
}

fn ask_id(id: SessionId, n: u8) -> InteractionId {
    InteractionId::derived(id.uuid(), &["ask", &n.to_string()])
}

fn event(id: SessionId, n: u8) -> NewEvent {
    NewEvent {
        id: event_id(id, n),
        turn_id: None,
        child_run: None,
        payload: EventPayload::MessageCompleted {
            kind: MessageKind::Text,
            text: n.to_string(),
            truncated: false,
        },
        native: None,
    }
}

async fn act(place: &mut Place, id: SessionId, model: &mut Model, what: Do) {
    let mut commit = step(model.epoch, vec![]);
    match what {
        Do::Claim => {
            model.epoch += 1;
            assert_eq!(place.store.claim(id).await.expect("claimed"), model.epoch);
            return;
        }
        Do::Reopen => return place.reopen().await,
        Do::Say { stale, events } => {
            commit.events = events.iter().map(|n| event(id, *n)).collect();
            if stale {
                commit.epoch = model.epoch.wrapping_sub(1);
                assert!(place.store.commit(id, commit).await.is_err());
                return;
            }
            let mut fresh = Vec::new();
            for n in events {
                if !model.events.contains(&n) {
                    model.events.push(n);
                    fresh.push((event_id(id, n), model.events.len() as u64 + 1));
                }
            }
            let told = place.store.commit(id, commit).await.expect("committed");
            let told: Vec<_> = told.iter().map(|event| (event.id, event.seq)).collect();
            assert_eq!(told, fresh);
            return;
        }
        Do::State(ready) => {
            model.ready = ready;
            let state = if ready {
                SessionState::Ready
            } else {
                SessionState::Busy
            };
            commit.session.state = Some((state, None));
        }
        Do::Queue(n) => {
            let content = vec![ContentPart::text(n.to_string())];
            commit.inputs = vec![InputChange::Queue(input_id(id, n), content)];
            if model.inputs.iter().any(|(known, _)| *known == n) {
                assert!(
                    place.store.commit(id, commit).await.is_err(),
                    "an id is used once"
                );
                return;
            }
            model.inputs.push((n, true));
        }
        Do::Move(n, settled) => {
            let state = if settled {
                InputState::Settled
            } else {
                InputState::Consumed
            };
            commit.inputs = vec![InputChange::Move(input_id(id, n), state, None)];
            for input in model.inputs.iter_mut().filter(|(known, _)| *known == n) {
                input.1 = !settled;
            }
        }
        Do::Ask(n) => {
            commit.interactions = vec![InteractionChange::Open {
                interaction: Interaction {
                    id: ask_id(id, n),
                    presentation: Presentation::Question { questions: vec![] },
                },
                native_id: n.to_string(),
                turn_id: None,
                child_run: None,
                state: InteractionState::Active,
            }];
            model.asked.retain(|(known, _)| *known != n);
            model.asked.push((n, InteractionState::Active));
        }
        Do::Answer(n) => {
            commit.interactions = vec![InteractionChange::Resolve {
                id: ask_id(id, n),
                answer: InteractionAnswer::Decline { comment: None },
                actor: "test:one".into(),
            }];
            close(model, n, InteractionState::Resolved);
        }
        Do::Expire(n) => {
            commit.interactions = vec![InteractionChange::Expire {
                id: ask_id(id, n),
                reason: "late".into(),
            }];
            close(model, n, InteractionState::Expired);
        }
        Do::Save(content) => {
            model.saved.clone_from(&content);
            commit.native_state = Some(vec![NativeFile {
                path: "a".into(),
                content,
            }]);
        }
    }
    place.store.commit(id, commit).await.expect("committed");
}

fn close(model: &mut Model, n: u8, state: InteractionState) {
    for asked in model.asked.iter_mut().filter(|(known, _)| *known == n) {
        asked.1 = state;
    }
}

async fn compare(store: &Store, id: SessionId, model: &Model) {
    let events = store.events(id, 1, 1000).await.expect("read");
    let stored: Vec<_> = events.iter().map(|event| (event.seq, event.id)).collect();
    let expected: Vec<_> = model
        .events
        .iter()
        .zip(2..)
        .map(|(n, seq)| (seq, event_id(id, *n)))
        .collect();
    assert_eq!(stored, expected);
    let row = store.session(id).await.expect("there");
    assert_eq!(row.epoch, model.epoch);
    assert_eq!(row.session.last_seq, model.events.len() as u64 + 1);
    assert_eq!(row.session.state == SessionState::Ready, model.ready);
    let open = store.open_inputs(id).await.expect("read");
    let open: Vec<_> = open.iter().map(|input| input.id).collect();
    let expected = model.inputs.iter().filter(|(_, open)| *open);
    assert_eq!(
        open,
        expected.map(|(n, _)| input_id(id, *n)).collect::<Vec<_>>()
    );
    let asked = store.interactions(id, true).await.expect("read");
    let asked: Vec<_> = asked
        .iter()
        .map(|row| (row.interaction.id, row.state))
        .collect();
    let expected = model
        .asked
        .iter()
        .map(|(n, state)| (ask_id(id, *n), *state));
    assert_eq!(asked, expected.collect::<Vec<_>>());
    let saved = store.native_state(id).await.expect("read");
    assert_eq!(
        saved.first().map_or(&[][..], |file| &file.content),
        model.saved
    );
}

#[test]
fn any_order_of_steps_gives_what_the_model_gives() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = prop::collection::vec(one(), 0..30);
    let played = TestRunner::new(config).run(&steps, |steps| {
        let shown = format!("{steps:?}");
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(async {
                let mut place = Place::new().await;
                let (id, epoch) = place.owned().await;
                let mut model = Model {
                    epoch,
                    ..Model::default()
                };
                for step in steps {
                    act(&mut place, id, &mut model, step).await;
                }
                compare(&place.store, id, &model).await;
                place.reopen().await;
                compare(&place.store, id, &model).await;
            });
        }));
        played.map_err(|_| TestCaseError::fail(shown))
    });
    if let Err(error) = played {
        panic!("{error}");
    }
}
