//! The program of `talk`, which does what prompts say.

use serde::Deserialize;
use serde_json::json;

use super::{Program, ProgramIo, program};
use crate::engine::{Deed, EngineFixture, Quirk};

/// What the host says to the program.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Heard {
    Open { conversation: Option<String> },
    Say { input: String, text: String },
    Stop,
    Answer { ask: String, choice: String },
    Response { request: String },
    Mode {},
    StopChild {},
}

/// How a wait for the host went.
enum Waited {
    /// What was waited for came.
    Came(String),
    /// The host wants the turn to stop.
    Stopped,
    /// The input ended.
    Ended,
}

/// The program of `talk`.
#[must_use]
pub fn talk_program(quirk: Quirk) -> Program {
    program(move |io| run(io, quirk))
}

async fn run(mut io: ProgramIo, quirk: Quirk) -> i32 {
    let mut turn = 0;
    while let Some(line) = io.line().await {
        match serde_json::from_str(&line) {
            Ok(Heard::Open { conversation }) => {
                let key = match (conversation, quirk) {
                    (None, _) => "talk-1".to_owned(),
                    (Some(_), Quirk::OtherConversation) => "talk-other".to_owned(),
                    (Some(key), Quirk::Faithful) => key,
                };
                say(
                    &io,
                    &json!({"type": "hello", "conversation": key, "program": "talk 1.0.0", "tools": ["note"]}),
                );
            }
            Ok(Heard::Say { input, text }) => {
                turn += 1;
                say(&io, &json!({"type": "took", "input": input}));
                let (deed, word) = text.split_once(' ').unwrap_or((&text, ""));
                if let Some(code) = act(&mut io, turn, deed, word).await {
                    return code;
                }
            }
            Ok(_) => {}
            Err(error) => io.eprint(format!("not understood: {error}\n")),
        }
    }
    0
}

fn say(io: &ProgramIo, line: &serde_json::Value) {
    io.print(format!("{line}\n"));
}

fn message(io: &ProgramIo, id: &str, text: &str, child: Option<&str>) {
    let half = text.floor_char_boundary(text.len() / 2);
    for piece in [&text[..half], &text[half..]] {
        say(
            io,
            &json!({"type": "piece", "message": id, "text": piece, "child": child}),
        );
    }
    say(
        io,
        &json!({"type": "message", "message": id, "text": text, "child": child}),
    );
}

/// Does what a prompt says; an exit code when the program ends with it.
async fn act(io: &mut ProgramIo, turn: u32, deed: &str, word: &str) -> Option<i32> {
    let id = format!("message-{turn}");
    match deed {
        "hold" => {
            message(io, &id, &format!("holding {word}"), None);
            let waited = wait(io, |_| None).await;
            return finish(io, waited);
        }
        "die" => {
            message(io, &id, &format!("dying {word}"), None);
            io.eprint("a fault that is on purpose\n");
            return Some(3);
        }
        "ask" => {
            let ask = format!("ask-{turn}");
            say(
                io,
                &json!({"type": "ask", "ask": ask, "text": word, "choices": ["yes", "no"]}),
            );
            let waited = wait(io, |heard| match heard {
                Heard::Answer { ask: which, choice } if which == ask => Some(choice),
                _ => None,
            })
            .await;
            if let Waited::Came(choice) = &waited {
                message(io, &id, &format!("{word}: {choice}"), None);
            }
            return finish(io, waited);
        }
        "child" => {
            let child = format!("child-{turn}");
            say(
                io,
                &json!({"type": "child", "child": child, "state": "running"}),
            );
            let inner = format!("{id}-{child}");
            message(io, &inner, &format!("the child says {word}"), Some(&child));
            say(
                io,
                &json!({"type": "child", "child": child, "state": "completed"}),
            );
            message(io, &id, "the child is done", None);
        }
        "strange" => say(io, &json!({"type": "weather", "text": word})),
        "request" => {
            let request = format!("request-{turn}");
            say(
                io,
                &json!({"type": "request", "request": request, "method": word}),
            );
            let waited = wait(io, |heard| match heard {
                Heard::Response { request: which } if which == request => Some(which),
                _ => None,
            })
            .await;
            return finish(io, waited);
        }
        _ => message(io, &id, &format!("you said {word} \u{1f600}\u{fc}"), None),
    }
    say(io, &json!({"type": "done"}));
    None
}

/// Listens until what is wanted is heard.
async fn wait(io: &mut ProgramIo, wanted: impl Fn(Heard) -> Option<String>) -> Waited {
    while let Some(line) = io.line().await {
        match serde_json::from_str(&line) {
            Ok(Heard::Stop) => return Waited::Stopped,
            Ok(heard) => {
                if let Some(found) = wanted(heard) {
                    return Waited::Came(found);
                }
            }
            Err(_) => {}
        }
    }
    Waited::Ended
}

fn finish(io: &ProgramIo, waited: Waited) -> Option<i32> {
    match waited {
        Waited::Came(_) => say(io, &json!({"type": "done"})),
        Waited::Stopped => say(io, &json!({"type": "stopped"})),
        Waited::Ended => return Some(0),
    }
    None
}

/// The fixture of `talk`.
#[derive(Debug, Clone, Copy, Default)]
pub struct TalkFixture;

impl EngineFixture for TalkFixture {
    fn program(&self, quirk: Quirk) -> Option<Program> {
        Some(talk_program(quirk))
    }

    fn prompt(&self, deed: Deed, word: &str) -> Option<String> {
        let deed = match deed {
            Deed::Answer => "answer",
            Deed::Hold => "hold",
            Deed::Die => "die",
            Deed::Ask => "ask",
            Deed::Child => "child",
            Deed::Strange => "strange",
            Deed::Request => "request",
        };
        Some(format!("{deed} {word}"))
    }
}
