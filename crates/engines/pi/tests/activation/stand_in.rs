//! A stand-in for the program, which speaks its protocol and does what prompts say.

use astrabox_conformance::doubles::{Program, ProgramIo, program};
use astrabox_conformance::engine::{Deed, EngineFixture, Quirk};
use astrabox_engine::sandbox::BoxPath;
use bytes::Bytes;
use serde_json::{Value, json};

/// The stand-in.
pub(crate) struct StandIn;

impl EngineFixture for StandIn {
    fn program(&self, quirk: Quirk) -> Option<Program> {
        Some(program(move |io| live(io, quirk)))
    }

    fn prompt(&self, deed: Deed, word: &str) -> Option<String> {
        let deed = match deed {
            Deed::Answer => "answer",
            Deed::Hold => "hold",
            Deed::Die => "die",
            Deed::Ask => "ask",
            // The program has none.
            Deed::Child => return None,
            Deed::Strange => "strange",
            Deed::Request => "request",
        };
        Some(format!("{deed} {word}"))
    }

    fn native_state(&self, native_key: &str) -> Vec<(BoxPath, Bytes)> {
        let path = format!("/home/agent/.pi/agent/sessions/--workspace--/{native_key}.jsonl");
        let path = BoxPath::new(path).expect("it is a path");
        let header = json!({"type": "session", "id": native_key});
        vec![(path, Bytes::from(format!("{header}\n")))]
    }
}

async fn live(mut io: ProgramIo, quirk: Quirk) -> i32 {
    let at = io.argv.iter().position(|part| part == "--session");
    let file = at
        .and_then(|at| io.argv.get(at + 1))
        .cloned()
        .unwrap_or_default();
    let name = file.rsplit('/').next().unwrap_or_default();
    let key = match quirk {
        Quirk::Faithful => name.trim_end_matches(".jsonl").to_owned(),
        _ => "another-conversation".to_owned(),
    };
    let mut turn = 0;
    while let Some(line) = io.line().await {
        let heard: Value = serde_json::from_str(&line).expect("it is JSON");
        match heard["type"].as_str() {
            Some("get_state") => {
                respond(&io, &heard, &json!({"sessionId": key, "sessionFile": file}));
            }
            Some("prompt") => {
                turn += 1;
                respond(&io, &heard, &json!({"disposition": "started"}));
                say(&io, &json!({"type": "agent_start"}));
                let text = heard["message"].as_str().unwrap_or_default();
                let (deed, word) = text.split_once(' ').unwrap_or((text, ""));
                if let Some(code) = act(&mut io, turn, deed, word).await {
                    return code;
                }
            }
            _ => respond(&io, &heard, &json!({})),
        }
    }
    0
}

fn say(io: &ProgramIo, line: &Value) {
    io.print(format!("{line}\n"));
}

fn respond(io: &ProgramIo, heard: &Value, data: &Value) {
    say(
        io,
        &json!({"id": heard["id"], "type": "response", "command": heard["type"], "success": true, "data": data}),
    );
}

/// A message in two pieces, and whole.
fn message(io: &ProgramIo, text: &str, stop: &str) {
    say(
        io,
        &json!({"type": "message_start", "message": {"role": "assistant"}}),
    );
    let half = text.floor_char_boundary(text.len() / 2);
    let piece = |part: &str| json!({"type": "text_delta", "contentIndex": 0, "delta": part});
    for event in [
        json!({"type": "text_start", "contentIndex": 0}),
        piece(&text[..half]),
        piece(&text[half..]),
    ] {
        say(
            io,
            &json!({"type": "message_update", "assistantMessageEvent": event}),
        );
    }
    let content = json!([{"type": "text", "text": text}]);
    say(
        io,
        &json!({"type": "message_end", "message": {"role": "assistant", "content": content, "stopReason": stop}}),
    );
}

fn settle(io: &ProgramIo, aborted: bool) {
    say(io, &json!({"type": "agent_settled", "aborted": aborted}));
}

/// Does what a prompt says; an exit code when the program ends with it.
async fn act(io: &mut ProgramIo, turn: u32, deed: &str, word: &str) -> Option<i32> {
    let id = format!("dialog-{turn}");
    match deed {
        "hold" => {
            message(io, &format!("holding {word}"), "toolUse");
            return wait(io, None).await;
        }
        "die" => {
            message(io, &format!("dying {word}"), "toolUse");
            io.eprint("a fault that is on purpose\n");
            return Some(3);
        }
        "ask" => {
            let told = json!({"call": "c", "tool": "bash", "input": {"command": word}});
            say(
                io,
                &json!({"type": "extension_ui_request", "id": id, "method": "input",
                    "title": "astrabox:approval", "placeholder": told.to_string()}),
            );
            return wait(io, Some((&id, word))).await;
        }
        "request" => {
            say(
                io,
                &json!({"type": "extension_ui_request", "id": id, "method": word}),
            );
            return wait(io, Some((&id, word))).await;
        }
        "strange" => {
            say(io, &json!({"type": "weather", "text": word}));
            message(io, "strange", "stop");
        }
        _ => message(io, &format!("you said {word} \u{1f600}\u{fc}"), "stop"),
    }
    settle(io, false);
    None
}

/// Listens until the answer to this dialog comes, or an abort.
async fn wait(io: &mut ProgramIo, asked: Option<(&str, &str)>) -> Option<i32> {
    loop {
        let Some(line) = io.line().await else {
            return Some(0);
        };
        let heard: Value = serde_json::from_str(&line).expect("it is JSON");
        if heard["type"] == "abort" {
            message(io, "", "aborted");
            settle(io, true);
            respond(io, &heard, &json!({}));
            return None;
        }
        if let Some((id, word)) = asked
            && heard["id"] == id
        {
            message(io, &format!("{word} is answered"), "stop");
            settle(io, false);
            return None;
        }
    }
}
