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
            Deed::Child => "child",
            Deed::Strange => "strange",
            Deed::Request => "request",
        };
        Some(format!("{deed} {word}"))
    }

    fn native_state(&self, native_key: &str) -> Vec<(BoxPath, Bytes)> {
        let path = format!("/home/agent/.claude/projects/-workspace/{native_key}.jsonl");
        let path = BoxPath::new(path).expect("it is a path");
        vec![(path, Bytes::from_static(b"{\"type\":\"user\"}\n"))]
    }
}

async fn live(mut io: ProgramIo, quirk: Quirk) -> i32 {
    let after = |flag: &str| {
        let at = io.argv.iter().position(|part| part == flag)?;
        io.argv.get(at + 1).cloned()
    };
    let key = match (after("--session-id"), after("--resume"), quirk) {
        (Some(key), _, _) | (None, Some(key), Quirk::Faithful) => key,
        (None, _, _) => "another-conversation".to_owned(),
    };
    let mut turn = 0;
    while let Some(line) = io.line().await {
        let heard: Value = serde_json::from_str(&line).expect("it is JSON");
        if heard["type"] == "user" {
            turn += 1;
            let text = heard["message"]["content"][0]["text"].as_str();
            let text = text.unwrap_or_default().to_owned();
            say(
                &io,
                &json!({"type": "system", "subtype": "session_state_changed", "state": "running"}),
            );
            say(
                &io,
                &json!({"type": "command_lifecycle", "command_uuid": heard["uuid"], "state": "started"}),
            );
            say(
                &io,
                &json!({"type": "system", "subtype": "init", "session_id": key, "tools": ["Bash"]}),
            );
            let (deed, word) = text.split_once(' ').unwrap_or((&text, ""));
            if let Some(code) = act(&mut io, turn, deed, word).await {
                return code;
            }
        } else {
            control(&io, &heard, &key);
        }
    }
    0
}

fn say(io: &ProgramIo, line: &Value) {
    io.print(format!("{line}\n"));
}

fn respond(io: &ProgramIo, heard: &Value, response: &Value) {
    let response =
        json!({"subtype": "success", "request_id": heard["request_id"], "response": response});
    say(
        io,
        &json!({"type": "control_response", "response": response}),
    );
}

/// A request of the host.
fn control(io: &ProgramIo, heard: &Value, key: &str) {
    match heard["request"]["subtype"].as_str() {
        Some("initialize") => respond(io, heard, &json!({"claude_code_version": "2.1.328"})),
        Some("set_permission_mode") => {
            let mode = &heard["request"]["mode"];
            respond(io, heard, &json!({"mode": mode}));
            say(
                io,
                &json!({"type": "system", "subtype": "status", "permissionMode": mode, "session_id": key}),
            );
        }
        Some(_) => respond(io, heard, &json!({})),
        None => {}
    }
}

/// A message in two pieces, and whole.
fn message(io: &ProgramIo, text: &str) {
    let piece =
        |event: Value| json!({"type": "stream_event", "event": event, "parent_tool_use_id": null});
    say(io, &piece(json!({"type": "message_start"})));
    let block = json!({"type": "text", "text": ""});
    say(
        io,
        &piece(json!({"type": "content_block_start", "index": 0, "content_block": block})),
    );
    let half = text.floor_char_boundary(text.len() / 2);
    for part in [&text[..half], &text[half..]] {
        let delta = json!({"type": "text_delta", "text": part});
        say(
            io,
            &piece(json!({"type": "content_block_delta", "index": 0, "delta": delta})),
        );
    }
    let content = json!([{"type": "text", "text": text}]);
    say(
        io,
        &json!({"type": "assistant", "message": {"content": content}, "parent_tool_use_id": null}),
    );
    say(
        io,
        &piece(json!({"type": "content_block_stop", "index": 0})),
    );
}

/// Does what a prompt says; an exit code when the program ends with it.
async fn act(io: &mut ProgramIo, turn: u32, deed: &str, word: &str) -> Option<i32> {
    match deed {
        "hold" => {
            message(io, &format!("holding {word}"));
            return wait(io, None).await;
        }
        "die" => {
            message(io, &format!("dying {word}"));
            io.eprint("a fault that is on purpose\n");
            return Some(3);
        }
        "ask" => {
            let id = format!("ask-{turn}");
            let request =
                json!({"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": word}});
            say(
                io,
                &json!({"type": "control_request", "request_id": id, "request": request}),
            );
            return wait(io, Some((&id, word))).await;
        }
        "request" => {
            let id = format!("request-{turn}");
            let request = json!({"subtype": word});
            say(
                io,
                &json!({"type": "control_request", "request_id": id, "request": request}),
            );
            return wait(io, Some((&id, word))).await;
        }
        "child" => child(io, turn, word),
        "strange" => say(io, &json!({"type": "weather", "text": word})),
        _ => message(io, &format!("you said {word} \u{1f600}\u{fc}")),
    }
    done(io, &json!({"subtype": "success", "is_error": false}));
    None
}

fn child(io: &ProgramIo, turn: u32, word: &str) {
    let (call, task) = (format!("toolu-{turn}"), format!("task-{turn}"));
    let block = json!({"type": "tool_use", "id": call, "name": "Agent", "input": {"prompt": word}});
    say(
        io,
        &json!({"type": "assistant", "message": {"content": [block]}, "parent_tool_use_id": null}),
    );
    say(
        io,
        &json!({"type": "system", "subtype": "task_started", "task_id": task, "tool_use_id": call, "description": "a task"}),
    );
    let block = json!({"type": "text", "text": format!("the child says {word}")});
    say(
        io,
        &json!({"type": "assistant", "message": {"content": [block]}, "parent_tool_use_id": call, "agent_id": task}),
    );
    say(
        io,
        &json!({"type": "system", "subtype": "task_notification", "task_id": task, "status": "completed"}),
    );
    let block = json!({"type": "tool_result", "tool_use_id": call, "content": "done"});
    say(
        io,
        &json!({"type": "user", "message": {"content": [block]}, "parent_tool_use_id": null}),
    );
    message(io, "the child is done");
}

fn done(io: &ProgramIo, result: &Value) {
    let mut result = result.clone();
    result["type"] = json!("result");
    say(io, &result);
    say(
        io,
        &json!({"type": "system", "subtype": "session_state_changed", "state": "idle"}),
    );
}

/// Listens until the answer to this request comes, or an interrupt.
async fn wait(io: &mut ProgramIo, asked: Option<(&str, &str)>) -> Option<i32> {
    loop {
        let Some(line) = io.line().await else {
            return Some(0);
        };
        let heard: Value = serde_json::from_str(&line).expect("it is JSON");
        if heard["request"]["subtype"] == "interrupt" {
            if let Some((id, _)) = asked {
                say(
                    io,
                    &json!({"type": "control_cancel_request", "request_id": id}),
                );
            }
            respond(io, &heard, &json!({"still_queued": []}));
            let aborted = json!({"subtype": "error_during_execution", "is_error": true, "terminal_reason": "aborted_streaming"});
            done(io, &aborted);
            return None;
        }
        if let Some((id, word)) = asked
            && heard["response"]["request_id"] == id
        {
            message(io, &format!("{word} is answered"));
            done(io, &json!({"subtype": "success", "is_error": false}));
            return None;
        }
        control(io, &heard, "");
    }
}
