//! A program that does whatever it likes, within what was seen of the real one: whatever the order, each turn has
//! one end, and each input is taken once and before anything that it caused.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use astrabox_engine::EmissionKind;
use astrabox_engine::line::LineProtocol;
use astrabox_engine::sandbox::ExitReason;
use astrabox_types::EventPayload;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::harness::{Driver, THREAD, choose, exit, told};

/// A turn in the program.
#[derive(Debug, Clone)]
struct Turn {
    id: String,
    input: Option<String>,
    started: bool,
    stopping: bool,
    message: Option<String>,
    command: Option<String>,
}

/// The program, as far as turns go.
struct Program {
    driver: Driver,
    /// Our requests that it has not answered.
    asked: VecDeque<Value>,
    seen: usize,
    turn: Option<Turn>,
    last: Option<(String, &'static str)>,
    /// The turns that it made of inputs.
    taken: BTreeMap<String, String>,
    turns: usize,
    inputs: u64,
    requests: u64,
    made: usize,
    exited: bool,
}

impl Program {
    fn new(restart: bool) -> Self {
        let mut driver = Driver::bound();
        driver.restart = restart;
        Self {
            driver,
            asked: VecDeque::new(),
            seen: 0,
            turn: None,
            last: None,
            taken: BTreeMap::new(),
            turns: 0,
            inputs: 0,
            requests: 0,
            made: 0,
            exited: false,
        }
    }

    fn name(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{what}-{}", self.made)
    }

    fn collect(&mut self) {
        let new = self.driver.wrote[self.seen..].iter();
        self.asked
            .extend(new.filter(|sent| sent.get("method").is_some()).cloned());
        self.seen = self.driver.wrote.len();
    }

    fn is_asked(&self, method: &str) -> bool {
        self.asked.iter().any(|sent| sent["method"] == method)
    }

    fn begin(&mut self, input: Option<String>) -> &mut Turn {
        self.turns += 1;
        let id = self.name("turn");
        self.turn.insert(Turn {
            id,
            input,
            started: false,
            stopping: false,
            message: None,
            command: None,
        })
    }

    /// Takes the input that was sent, without an answer yet.
    fn accept(&mut self) {
        if self.turn.is_some() {
            return;
        }
        let starts = self
            .asked
            .iter()
            .filter(|sent| sent["method"] == "turn/start");
        let inputs = starts.filter_map(|sent| sent["params"]["clientUserMessageId"].as_str());
        let new = inputs
            .map(str::to_owned)
            .find(|input| !self.taken.contains_key(input));
        if let Some(input) = new {
            let turn = self.begin(Some(input.clone())).id.clone();
            self.taken.insert(input, turn);
        }
    }

    fn answer_oldest(&mut self) {
        let Some(sent) = self.asked.front().cloned() else {
            return;
        };
        if sent["method"] == "turn/start" {
            self.accept();
        }
        self.asked.pop_front();
        let answer = match sent["method"].as_str().expect("it is a request") {
            "turn/start" => {
                let input = sent["params"]["clientUserMessageId"].as_str();
                let turn = self.taken.get(input.expect("it is ours"));
                Ok(json!({"turn": {"id": turn.expect("it was accepted")}}))
            }
            "turn/interrupt" => match &mut self.turn {
                Some(turn) if turn.started && sent["params"]["turnId"] == json!(turn.id) => {
                    turn.stopping = true;
                    Ok(json!({}))
                }
                _ => Err("no active turn to interrupt"),
            },
            "thread/turns/list" => {
                let open = self.turn.as_ref();
                let data = match (open, &self.last) {
                    (Some(turn), _) => {
                        json!([{"id": turn.id, "status": "inProgress", "completedAt": null}])
                    }
                    (None, Some((id, status))) => {
                        json!([{"id": id, "status": status, "completedAt": 1}])
                    }
                    (None, None) => json!([]),
                };
                Ok(json!({"data": data, "nextCursor": null}))
            }
            _ => Ok(json!({"data": [], "nextCursor": null})),
        };
        let line = match answer {
            Ok(result) => json!({"id": sent["id"], "result": result}),
            Err(message) => {
                json!({"id": sent["id"], "error": {"code": -32600, "message": message}})
            }
        };
        self.driver.value(&line);
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.driver.own(method, params);
    }

    fn start(&mut self) {
        self.accept();
        if let Some(turn) = &mut self.turn
            && !turn.started
        {
            turn.started = true;
            let id = turn.id.clone();
            self.tell(
                "thread/status/changed",
                json!({"status": {"type": "active"}}),
            );
            self.tell("turn/started", json!({"turn": {"id": id}}));
        }
    }

    fn running(&self) -> Option<Turn> {
        self.turn.clone().filter(|turn| turn.started)
    }

    fn message(&mut self, end: bool) {
        let Some(turn) = self.running() else {
            return;
        };
        let id = match turn.message {
            Some(id) => id,
            None => self.name("message"),
        };
        let item = json!({"type": "agentMessage", "id": id, "text": "xx"});
        if end {
            self.tell("item/completed", json!({"turnId": turn.id, "item": item}));
        } else {
            let delta = json!({"turnId": turn.id, "itemId": id, "delta": "x"});
            self.tell("item/agentMessage/delta", delta);
        }
        if let Some(turn) = &mut self.turn {
            turn.message = (!end).then_some(id);
        }
    }

    fn command(&mut self, ask: bool) {
        let Some(turn) = self.running() else {
            return;
        };
        let Some(id) = turn.command else {
            let id = self.name("call");
            let item = json!({"type": "commandExecution", "id": id, "command": "x"});
            self.tell("item/started", json!({"turnId": turn.id, "item": item}));
            if let Some(turn) = &mut self.turn {
                turn.command = Some(id);
            }
            return;
        };
        if ask {
            self.requests += 1;
            let params =
                json!({"threadId": THREAD, "turnId": turn.id, "itemId": id, "command": "x"});
            let method = "item/commandExecution/requestApproval";
            self.driver.request(self.requests, method, &params);
            return;
        }
        let item = json!({"type": "commandExecution", "id": id, "status": "completed"});
        self.tell("item/completed", json!({"turnId": turn.id, "item": item}));
        if let Some(turn) = &mut self.turn {
            turn.command = None;
        }
    }

    fn end(&mut self, word: bool) {
        let Some(turn) = self.running() else {
            return;
        };
        let status = if turn.stopping {
            "interrupted"
        } else {
            "completed"
        };
        self.turn = None;
        self.last = Some((turn.id.clone(), status));
        self.tell("thread/status/changed", json!({"status": {"type": "idle"}}));
        if word {
            self.tell(
                "turn/completed",
                json!({"turn": {"id": turn.id, "status": status}}),
            );
        }
    }

    /// Something of the turn before.
    fn late(&mut self) {
        if let Some((id, status)) = self.last.clone()
            && self.turn.is_none()
        {
            self.tell(
                "turn/completed",
                json!({"turn": {"id": id, "status": status}}),
            );
            self.tell(
                "item/agentMessage/delta",
                json!({"turnId": id, "itemId": "late", "delta": "x"}),
            );
        }
    }

    fn child(&mut self, end: bool) {
        let method = if end {
            "turn/completed"
        } else {
            "turn/started"
        };
        let turn =
            json!({"id": "child-turn", "status": if end { "completed" } else { "inProgress" }});
        self.driver.notify("child", method, json!({"turn": turn}));
        let delta = json!({"turnId": "child-turn", "itemId": "c", "delta": "x"});
        self.driver
            .notify("child", "item/agentMessage/delta", delta);
    }

    fn answer_person(&mut self) {
        let open = self.driver.protocol.requests.keys().next().cloned();
        if let Some(id) = open {
            self.driver
                .answer(&id, &choose("accept"))
                .expect("it is open");
        }
    }

    fn retry(&mut self) {
        if let Some(turn) = self.running() {
            let error =
                json!({"turnId": turn.id, "willRetry": true, "error": {"message": "again"}});
            self.tell("error", error);
        }
    }

    fn exit(&mut self) {
        // A turn that was asked for and not taken ends too.
        let untaken = self.asked.iter().any(|sent| {
            let input = sent["params"]["clientUserMessageId"].as_str();
            sent["method"] == "turn/start"
                && input.is_some_and(|input| !self.taken.contains_key(input))
        });
        self.turns += usize::from(untaken);
        self.exited = true;
        self.driver
            .exit(&exit(ExitReason::Exited, Some(1), None), "");
    }

    fn step(&mut self, op: u8) {
        match op {
            0 if self.inputs < 5 => {
                self.inputs += 1;
                self.driver.deliver(self.inputs).expect("it is taken");
            }
            1 => self.driver.interrupt(),
            2..=4 => self.answer_oldest(),
            5 | 6 => self.start(),
            7 => self.message(false),
            8 => self.message(true),
            9 => self.command(false),
            10 => self.command(true),
            11 => self.answer_person(),
            12 => self.end(true),
            13 => self.end(false),
            // With an input on the way, the program would join it with this turn.
            14 if self.turn.is_none() && !self.is_asked("turn/start") => {
                self.begin(None);
                self.start();
            }
            15 => self.late(),
            16 => self.child(self.made.is_multiple_of(2)),
            17 => self.retry(),
            18 => self.driver.text("garbage"),
            19 => {
                if let Some(turn) = self.running() {
                    self.tell("thread/status/changed", json!({"status": {"type": "idle"}}));
                    self.tell(
                        "thread/status/changed",
                        json!({"status": {"type": "active"}}),
                    );
                    drop(turn);
                }
            }
            20 => {
                let seen = self
                    .turn
                    .as_ref()
                    .and_then(|turn| Some((turn.id.clone(), turn.input.clone()?)));
                if let Some((turn, input)) = seen {
                    let item = json!({"type": "userMessage", "id": "u", "clientId": input});
                    self.tell("item/started", json!({"turnId": turn, "item": item}));
                    self.turn.as_mut().expect("it runs").started = true;
                }
            }
            21 => self.exit(),
            _ => {}
        }
        self.collect();
    }

    /// Ends everything that is open, as the real program would.
    fn finish(&mut self) {
        for _ in 0..100 {
            if self.exited || (self.turn.is_none() && self.asked.is_empty()) {
                return;
            }
            for op in [2, 5, 12] {
                self.step(op);
            }
        }
        panic!("it does not come to rest: {:?}", self.asked);
    }
}

fn check(program: &Program) {
    let said = &program.driver.said;
    let lines = || said.iter().map(told).collect::<Vec<_>>().join("\n");
    let (mut ends, mut output) = (0, false);
    let mut taken = BTreeSet::new();
    let mut keys = BTreeSet::new();
    let mut open = BTreeSet::new();
    let mut background = false;
    for kind in said {
        match kind {
            EmissionKind::Terminal(_) => {
                ends += 1;
                output = false;
            }
            EmissionKind::InputConsumed(id) => {
                assert!(taken.insert(*id), "taken twice:\n{}", lines());
                assert!(!output, "output before its input was taken:\n{}", lines());
            }
            EmissionKind::Delta(delta) => output |= delta.child_run.is_none(),
            EmissionKind::PublicEvent(draft) => {
                assert!(keys.insert(draft.key.clone()), "{} twice", draft.key);
                let late = matches!(draft.payload, EventPayload::ToolResult { .. });
                output |= draft.child_run.is_none() && !late;
            }
            EmissionKind::InteractionRequested(draft) => {
                assert!(
                    open.insert(draft.native_id.clone()),
                    "{} twice",
                    draft.native_id
                );
            }
            EmissionKind::InteractionWithdrawn { native_id, .. } => {
                assert!(open.contains(native_id), "{native_id} was not asked");
            }
            EmissionKind::BackgroundOpened => assert!(!std::mem::replace(&mut background, true)),
            EmissionKind::BackgroundClosed => assert!(std::mem::replace(&mut background, false)),
            _ => {}
        }
    }
    assert_eq!(ends, program.turns, "one end a turn:\n{}", lines());
    if program.exited {
        assert!(
            !background,
            "nothing goes on after the program:\n{}",
            lines()
        );
    } else {
        assert_eq!(
            taken.len() as u64,
            program.inputs,
            "all are taken:\n{}",
            lines()
        );
        assert!(program.driver.protocol.turn.is_none());
    }
    assert!(matches!(
        program.driver.protocol.handshake(),
        astrabox_engine::line::Handshake::Bound(_) | astrabox_engine::line::Handshake::Pending
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn each_turn_has_one_end_whatever_the_order(
        ops in proptest::collection::vec(0u8..22, 1..80),
        exits in any::<bool>(),
        restart in any::<bool>(),
    ) {
        let mut program = Program::new(restart);
        for op in ops {
            if !program.exited && (op != 21 || exits) {
                program.step(op);
            }
        }
        program.finish();
        check(&program);
    }
}
