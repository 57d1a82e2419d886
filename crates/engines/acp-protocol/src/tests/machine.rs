//! A program that does whatever it likes: whatever the order, each turn has one end, each input is taken once and
//! before anything that it caused, and a restart at any point changes nothing.

use std::collections::BTreeSet;

use astrabox_engine::EmissionKind;
use astrabox_engine::sandbox::ExitReason;
use astrabox_types::EventPayload;
use proptest::prelude::*;
use serde_json::json;

use super::{Plain, bound};
use crate::harness::{Driver, choose, exit, told};

struct Program {
    driver: Driver<Plain>,
    /// The prompt that it works on.
    prompt: Option<String>,
    inputs: u64,
    ended: usize,
    requests: u64,
    made: u64,
    exited: bool,
}

impl Program {
    fn new(restart: bool) -> Self {
        let mut driver = bound();
        driver.restart = restart;
        Self {
            driver,
            prompt: None,
            inputs: 0,
            ended: 0,
            requests: 0,
            made: 0,
            exited: false,
        }
    }

    /// Takes a prompt that was sent.
    fn take(&mut self) {
        if self.prompt.is_none() {
            let wrote = self.driver.wrote.iter();
            let next = wrote
                .filter(|sent| sent["method"] == "session/prompt")
                .nth(self.ended);
            self.prompt = next.and_then(|sent| sent["id"].as_str().map(str::to_owned));
        }
    }

    fn end(&mut self, reason: Option<&str>) {
        let Some(id) = self.prompt.take() else {
            return;
        };
        self.ended += 1;
        self.driver.value(&match reason {
            Some(reason) => json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": reason}}),
            None => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": "x"}}),
        });
    }

    fn call(&mut self, status: &str) {
        let id = format!("c{}", self.made / 3);
        self.made += 1;
        let update = json!({"toolCallId": id, "title": "x", "status": status});
        let kind = if status == "pending" {
            "tool_call"
        } else {
            "tool_call_update"
        };
        self.driver.update(kind, update);
    }

    fn answer_person(&mut self) {
        if let Some(id) = self.driver.open_questions().first() {
            self.driver.answer(id, &choose("yes")).expect("it is open");
        }
    }

    fn step(&mut self, op: u8) {
        match op {
            0 | 1 if self.inputs < 5 => {
                self.inputs += 1;
                self.driver.deliver(self.inputs).expect("it is taken");
            }
            2 => self.driver.interrupt(),
            3 | 4 => self.take(),
            5 => self.driver.says("x"),
            6 => {
                let text = json!({"type": "text", "text": "y"});
                let update = json!({"messageId": format!("m{}", self.made / 2), "content": text});
                self.made += 1;
                self.driver.update("agent_message_chunk", update);
            }
            7 => self.call("pending"),
            8 => self.call("in_progress"),
            9 => self.call("completed"),
            10 => {
                self.requests += 1;
                let call = json!({"toolCallId": format!("c{}", self.made / 3), "title": "x"});
                self.driver.asks_permission(self.requests, call);
            }
            11 => self.answer_person(),
            12 => self.end(Some("end_turn")),
            13 => self.end(Some("cancelled")),
            14 => self.end(None),
            15 => self.driver.update("usage_update", json!({"used": 1})),
            16 => self.driver.text("garbage"),
            17 => {
                let text = json!({"content": {"type": "text", "text": "c"}});
                self.driver.update_of("child", "agent_message_chunk", text);
            }
            18 => {
                self.requests += 1;
                self.driver.asks(self.requests, "brand/new", &json!({}));
            }
            _ => {}
        }
    }

    fn finish(&mut self) {
        for _ in 0..6 {
            self.take();
            self.end(Some("end_turn"));
        }
    }
}

/// What must hold of everything that was said.
fn check(program: &Program) -> Result<(), TestCaseError> {
    let (mut consumed, mut keys) = (BTreeSet::new(), BTreeSet::new());
    let (mut ends, mut open_questions) = (0u64, 0i64);
    // Whether something of the conversation itself was said since the last end, or an input taken.
    let (mut taken, mut spoke) = (false, false);
    for kind in &program.driver.said {
        match kind {
            EmissionKind::InputConsumed(id) => {
                prop_assert!(consumed.insert(*id), "taken twice");
                prop_assert!(!spoke, "taken after its output: {}", told(kind));
                taken = true;
            }
            EmissionKind::Terminal(_) => {
                ends += 1;
                (taken, spoke) = (false, false);
            }
            EmissionKind::Delta(delta) if delta.child_run.is_none() => {
                prop_assert!(taken, "said without a turn: {}", told(kind));
                spoke = true;
            }
            EmissionKind::PublicEvent(event) => {
                prop_assert!(
                    keys.insert(event.key.clone()),
                    "the same key: {}",
                    event.key
                );
                let opens = matches!(
                    event.payload,
                    EventPayload::MessageCompleted { .. } | EventPayload::ToolCall { .. }
                );
                if event.child_run.is_none() && opens {
                    prop_assert!(taken, "said without a turn: {}", told(kind));
                    spoke = true;
                }
            }
            EmissionKind::InteractionRequested(_) => {
                prop_assert!(taken, "asked without a turn");
                open_questions += 1;
            }
            EmissionKind::InteractionWithdrawn { .. } => open_questions -= 1,
            _ => {}
        }
    }
    prop_assert!(open_questions >= 0);
    if program.exited {
        prop_assert!(ends <= program.inputs);
    } else {
        prop_assert_eq!(ends, program.inputs, "each input has one end");
        prop_assert!(program.driver.open_questions().is_empty());
    }
    // Every request of the program has an answer, but for those that nobody answered when it ended.
    let answers = program.driver.wrote.iter();
    let answers = answers.filter(|sent| sent.get("method").is_none()).count() as u64;
    prop_assert!(program.exited || answers == program.requests);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_turn_has_one_end(ops in proptest::collection::vec(0u8..19, 0..60), dies in any::<bool>()) {
        let mut program = Program::new(false);
        let mut restarted = Program::new(true);
        for program in [&mut program, &mut restarted] {
            for op in &ops {
                program.step(*op);
            }
            if dies {
                program.exited = true;
                program.driver.exit(&exit(ExitReason::Exited, Some(1), None), "");
            } else {
                program.finish();
            }
        }
        check(&program)?;
        prop_assert_eq!(&program.driver.said, &restarted.driver.said);
        prop_assert_eq!(&program.driver.wrote, &restarted.driver.wrote);
    }
}
