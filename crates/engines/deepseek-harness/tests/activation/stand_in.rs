//! A stand-in for the program and its plugin, which speaks their protocol and does what prompts say.

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
        let path = format!("/home/agent/.dsh/sessions/--workspace--/{native_key}/session.v4.jsonl");
        let path = BoxPath::new(path).expect("it is a path");
        vec![(path, Bytes::from_static(b"{\"type\":\"session\"}\n"))]
    }
}

/// What the stand-in remembers.
struct Session {
    key: String,
    turn: u32,
}

async fn live(mut io: ProgramIo, quirk: Quirk) -> i32 {
    let mut session = Session {
        key: String::new(),
        turn: 0,
    };
    while let Some(line) = io.line().await {
        let heard: Value = serde_json::from_str(&line).expect("it is JSON");
        let id = &heard["id"];
        match heard["method"].as_str() {
            Some("initialize") => respond(&io, id, &initialized()),
            Some("session/new") => {
                session.key = match quirk {
                    Quirk::Faithful => "session-1".to_owned(),
                    _ => "another-conversation".to_owned(),
                };
                let opened =
                    json!({"sessionId": session.key, "configOptions": [], "modes": modes()});
                respond(&io, id, &opened);
            }
            Some("session/resume") => {
                let key = heard["params"]["sessionId"].as_str();
                session.key = match quirk {
                    Quirk::Faithful => key.unwrap_or_default().to_owned(),
                    _ => "another-conversation".to_owned(),
                };
                let opened =
                    json!({"sessionId": session.key, "configOptions": [], "modes": modes()});
                respond(&io, id, &opened);
            }
            Some("session/prompt") => {
                session.turn += 1;
                let text = heard["params"]["prompt"][0]["text"].as_str();
                let text = text.unwrap_or_default().to_owned();
                let (deed, word) = text.split_once(' ').unwrap_or((&text, ""));
                if let Some(code) = act(&mut io, &session, id, deed, word).await {
                    return code;
                }
            }
            Some(_) if !id.is_null() => respond(&io, id, &json!({})),
            _ => {}
        }
    }
    0
}

fn initialized() -> Value {
    json!({
        "protocolVersion": 1,
        "agentInfo": {"name": "deepseek-harness-acp", "version": "0.0.1"},
        "agentCapabilities": {
            "mcpCapabilities": {"http": true},
            "sessionCapabilities": {"close": {}, "list": {}, "resume": {}},
        },
    })
}

fn modes() -> Value {
    let known = ["read-only", "workspace-write", "danger-full-access", "ask"];
    let known = known.map(|id| json!({"id": id, "name": id}));
    json!({"currentModeId": "workspace-write", "availableModes": known})
}

fn say(io: &ProgramIo, mut line: Value) {
    line["jsonrpc"] = json!("2.0");
    io.print(format!("{line}\n"));
}

fn respond(io: &ProgramIo, id: &Value, result: &Value) {
    say(io, json!({"id": id, "result": result}));
}

fn update(io: &ProgramIo, session: &str, update: &Value) {
    let params = json!({"sessionId": session, "update": update});
    say(io, json!({"method": "session/update", "params": params}));
}

fn tell(io: &ProgramIo, what: &str, params: &Value) {
    say(
        io,
        json!({"method": format!("_astrabox/{what}"), "params": params}),
    );
}

/// A message in two pieces, and whole.
fn message(io: &ProgramIo, session: &str, id: &str, text: &str) {
    let half = text.floor_char_boundary(text.len() / 2);
    for part in [&text[..half], &text[half..]] {
        let content = json!({"type": "text", "text": part});
        let piece =
            json!({"sessionUpdate": "agent_message_chunk", "messageId": id, "content": content});
        update(io, session, &piece);
    }
    let whole = json!({"sessionId": session, "messageId": id, "kind": "text", "text": text});
    tell(io, "message", &whole);
}

/// Does what a prompt says; an exit code when the program ends with it.
async fn act(
    io: &mut ProgramIo,
    session: &Session,
    prompt: &Value,
    deed: &str,
    word: &str,
) -> Option<i32> {
    let key = &session.key;
    let of = |at: u32| format!("{key}:{}/{at}", session.turn);
    match deed {
        "hold" => {
            message(io, key, &of(0), &format!("holding {word}"));
            return wait(io, session, prompt, None).await;
        }
        "die" => {
            message(io, key, &of(0), &format!("dying {word}"));
            io.eprint("a fault that is on purpose\n");
            return Some(3);
        }
        "ask" => {
            let call = format!("call-{}", session.turn);
            let begun = json!({
                "sessionUpdate": "tool_call", "toolCallId": call, "title": "bash", "kind": "other",
                "status": "in_progress", "rawInput": {"command": word},
            });
            update(io, key, &begun);
            let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
            let options = [
                option("allow-once", "allow_once"),
                option("reject-once", "reject_once"),
            ];
            let params =
                json!({"sessionId": key, "toolCall": {"toolCallId": call}, "options": options});
            let request = json!({"id": session.turn, "method": "session/request_permission", "params": params});
            say(io, request);
            return wait(io, session, prompt, Some(word)).await;
        }
        "request" => {
            let params = json!({"sessionId": key});
            say(
                io,
                json!({"id": session.turn, "method": format!("_astrabox/{word}"), "params": params}),
            );
            return wait(io, session, prompt, Some(word)).await;
        }
        "child" => child(io, session, word),
        "strange" => tell(io, "weather", &json!({"sessionId": key, "text": word})),
        _ => message(io, key, &of(0), &format!("you said {word} \u{1f600}\u{fc}")),
    }
    respond(io, prompt, &json!({"stopReason": "end_turn"}));
    None
}

fn child(io: &ProgramIo, session: &Session, word: &str) {
    let key = &session.key;
    let (call, kid) = (
        format!("call-{}", session.turn),
        format!("kid-{}", session.turn),
    );
    let begun = json!({
        "sessionUpdate": "tool_call", "toolCallId": call, "title": "subagent", "kind": "other",
        "status": "in_progress", "rawInput": {"description": "a task", "prompt": word},
    });
    update(io, key, &begun);
    let state = |state: &str| json!({"id": kid, "parent": key, "state": state, "title": "a task", "callId": call});
    tell(io, "child", &state("running"));
    let content =
        json!([{"type": "content", "content": {"type": "text", "text": "started subagent"}}]);
    let done = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed", "content": content,
    });
    update(io, key, &done);
    message(
        io,
        &kid,
        &format!("{kid}:1/0"),
        &format!("the child says {word}"),
    );
    tell(io, "child", &state("completed"));
    message(
        io,
        key,
        &format!("{key}:{}/1", session.turn),
        "the child is done",
    );
}

/// Listens until the answer to what was asked comes, or an interrupt.
async fn wait(
    io: &mut ProgramIo,
    session: &Session,
    prompt: &Value,
    asked: Option<&str>,
) -> Option<i32> {
    loop {
        let Some(line) = io.line().await else {
            return Some(0);
        };
        let heard: Value = serde_json::from_str(&line).expect("it is JSON");
        if heard["method"] == "session/cancel" {
            respond(io, prompt, &json!({"stopReason": "cancelled"}));
            return None;
        }
        if let Some(word) = asked
            && heard.get("method").is_none()
            && heard["id"] == session.turn
        {
            let id = format!("{}:{}/0", session.key, session.turn);
            message(io, &session.key, &id, &format!("{word} is answered"));
            respond(io, prompt, &json!({"stopReason": "end_turn"}));
            return None;
        }
    }
}
