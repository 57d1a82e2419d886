//! The protocol of Pi: commands and events of its RPC mode, and dialogs of extensions.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::native::{End, Heard, Native, Quirk, Tell, Word};

/// The state of a conversation.
pub(super) struct Pi {
    quirk: Quirk,
    nonce: String,
    /// The session's file and id, by the command line.
    file: String,
    session: String,
    opened: bool,
    made: u64,
    /// The host's ids of the prompts whose turns have not begun.
    prompts: VecDeque<String>,
    stop: Option<String>,
    /// The tool call that is open: id and command.
    call: Option<(String, String)>,
    /// The dialog whose answer is the reply to a request.
    request: Option<String>,
}

impl Pi {
    /// Reads the command line, as the program does before it says anything.
    pub(super) fn new(quirk: Quirk, nonce: String, arguments: &[String]) -> Result<Self, String> {
        if quirk == Quirk::StillBorn {
            return Err("it cannot open a conversation".to_owned());
        }
        let at = arguments.iter().position(|it| it == "--session");
        let file = at.and_then(|at| arguments.get(at + 1)).cloned();
        let file = file.ok_or("it is started for one session")?;
        let name = file.rsplit('/').next().unwrap_or_default();
        let session = match quirk {
            // Both come up with a conversation of their own.
            Quirk::OtherConversation | Quirk::Forgetful => format!("other-{nonce}"),
            _ => name.trim_end_matches(".jsonl").to_owned(),
        };
        Ok(Self {
            quirk,
            nonce,
            file,
            session,
            opened: false,
            made: 0,
            prompts: VecDeque::new(),
            stop: None,
            call: None,
            request: None,
        })
    }

    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}_{}{:04}", self.nonce, self.made)
    }

    /// A message of the model in pieces and, if `whole`, to its end.
    fn message(text: &str, whole: bool) -> Vec<String> {
        let half = text.floor_char_boundary(text.len() / 2);
        let piece = |part: &str| json!({"type": "text_delta", "contentIndex": 0, "delta": part});
        let events = [
            json!({"type": "text_start", "contentIndex": 0}),
            piece(&text[..half]),
            piece(&text[half..]),
        ];
        let mut lines = vec![said("message_start", &json!([]), "pending")];
        lines.extend(
            events
                .iter()
                .map(|event| typed("message_update", &json!({"assistantMessageEvent": event}))),
        );
        if whole {
            let content = json!([{"type": "text", "text": text}]);
            lines.push(said("message_end", &content, "stop"));
        }
        lines
    }

    fn call(&mut self, command: &str) -> Vec<String> {
        let id = self.id("call");
        let args = json!({"command": command});
        let block = json!({"type": "toolCall", "id": id, "name": "bash", "arguments": args});
        let began = json!({"toolCallId": id, "toolName": "bash", "args": args});
        self.call = Some((id, command.to_owned()));
        vec![
            said("message_start", &json!([]), "pending"),
            said("message_end", &json!([block]), "toolUse"),
            typed("tool_execution_start", &began),
        ]
    }

    /// Begins a tool call if none is open.
    fn any_call(&mut self) -> Vec<String> {
        match self.call {
            Some(_) => Vec::new(),
            None => self.call("work"),
        }
    }

    fn call_ended(&mut self, output: &str) -> Vec<String> {
        let mut lines = self.any_call();
        if let Some((id, _)) = self.call.take() {
            let content = json!([{"type": "text", "text": output}]);
            // In the program's order: of a long line only the beginning is kept.
            lines.push(format!(
                r#"{{"type":"tool_execution_end","toolCallId":"{id}","toolName":"bash","result":{{"content":{content},"details":{{}}}},"isError":false}}"#
            ));
        }
        lines
    }

    fn ask(&mut self) -> Vec<String> {
        let mut lines = self.any_call();
        let (call, command) = self.call.clone().unwrap_or_default();
        let told = json!({"call": call, "tool": "bash", "input": {"command": command}});
        let dialog = json!({"title": "astrabox:approval", "placeholder": told.to_string()});
        let id = self.id("dialog");
        lines.push(asked(&id, "input", dialog));
        lines
    }

    fn end(&mut self, end: End) -> Vec<String> {
        let aborted = end == End::Interrupted;
        let mut lines = Vec::new();
        if aborted {
            lines.push(said("message_end", &json!([]), "aborted"));
        }
        lines.push(ran());
        lines.push(typed("agent_settled", &json!({"aborted": aborted})));
        if let Some(id) = self.stop.take() {
            lines.push(response(&id, "abort", &json!({})));
        }
        lines
    }

    fn answered(&mut self, message: &Value) -> Word {
        let id = message["id"].as_str().unwrap_or_default();
        if self.request.as_deref() == Some(id) {
            self.request = None;
            return Word::Reply("cancelled".to_owned());
        }
        let value = message["value"].as_str().unwrap_or_default();
        let verdict: Value = serde_json::from_str(value).unwrap_or_default();
        let choice = verdict["choice"].as_str().unwrap_or("nothing");
        Word::Answer(choice.to_owned())
    }
}

impl Native for Pi {
    fn hear(&mut self, line: &str, _exists: &dyn Fn(&str) -> bool) -> Heard {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        match message["type"].as_str().unwrap_or_default() {
            "get_state" if self.quirk == Quirk::Mute => Word::Other.into(),
            "get_state" => {
                let word = if self.opened {
                    Word::Other
                } else {
                    self.opened = true;
                    Word::Opened(self.session.clone())
                };
                let state = json!({
                    "isStreaming": false, "sessionFile": self.file, "sessionId": self.session,
                    "messageCount": 0,
                });
                Heard {
                    word,
                    replies: vec![response(&id, "get_state", &state)],
                }
            }
            "prompt" => {
                self.prompts.push_back(id);
                let text = message["message"].as_str().unwrap_or_default();
                // A word of the platform stands before what was said.
                let said = text.rsplit("\n\n").next().unwrap_or_default();
                Word::Prompt(said.to_owned()).into()
            }
            "abort" => {
                self.stop = Some(id);
                Word::Stop.into()
            }
            "extension_ui_response" => self.answered(&message).into(),
            kind => {
                let error = format!("Unknown command: {kind}");
                Heard {
                    word: Word::Other,
                    replies: vec![refused(&id, kind, &error)],
                }
            }
        }
    }

    fn tell(&mut self, what: Tell<'_>) -> Vec<String> {
        match what {
            Tell::Begin => {
                self.call = None;
                let id = self.prompts.pop_front().unwrap_or_default();
                vec![
                    response(&id, "prompt", &json!({"disposition": "started"})),
                    typed("agent_start", &json!({})),
                    typed("turn_start", &json!({})),
                ]
            }
            Tell::Refuse => {
                let id = self.prompts.pop_front().unwrap_or_default();
                vec![refused(&id, "prompt", "the prompt is refused")]
            }
            Tell::NothingToStop => {
                let id = self.stop.take().unwrap_or_default();
                vec![response(&id, "abort", &json!({}))]
            }
            Tell::Message(text) => Self::message(text, true),
            Tell::Half(text) => Self::message(text, false),
            Tell::Call(command) => self.call(command),
            Tell::Result(output) => self.call_ended(output),
            Tell::Ask => self.ask(),
            // It has no child runs; the conversation itself says it.
            Tell::Child(text) => Self::message(text, true),
            Tell::Strange(word) => vec![typed("weather_changed", &json!({"text": word}))],
            Tell::Request(method) => {
                let id = self.id("dialog");
                self.request = Some(id.clone());
                vec![asked(&id, method, json!({}))]
            }
            // The end of a run that may go on, which is no end of the turn.
            Tell::Rest(_) => vec![ran()],
            Tell::End(end) => self.end(end),
            // It has told so by the end of the turn.
            Tell::Idle => Vec::new(),
        }
    }
}

/// A message of the model.
fn said(kind: &str, content: &Value, stop: &str) -> String {
    let usage = json!({"input": 7, "output": 3, "cacheRead": 0, "cacheWrite": 0});
    let message =
        json!({"role": "assistant", "content": content, "usage": usage, "stopReason": stop});
    typed(kind, &json!({"message": message}))
}

fn ran() -> String {
    typed("agent_end", &json!({"messages": [], "willRetry": false}))
}

fn asked(id: &str, method: &str, mut dialog: Value) -> String {
    dialog["method"] = json!(method);
    let dialog = dialog.to_string();
    let rest = dialog.trim_start_matches('{');
    format!(r#"{{"type":"extension_ui_request","id":"{id}",{rest}"#)
}

fn response(id: &str, command: &str, data: &Value) -> String {
    format!(
        r#"{{"id":"{id}","type":"response","command":"{command}","success":true,"data":{data}}}"#
    )
}

fn refused(id: &str, command: &str, error: &str) -> String {
    let error = json!(error);
    format!(
        r#"{{"id":"{id}","type":"response","command":"{command}","success":false,"error":{error}}}"#
    )
}

/// An object with its type in front.
fn typed(kind: &str, rest: &Value) -> String {
    let rest = rest.to_string();
    match rest.as_str() {
        "{}" => format!(r#"{{"type":"{kind}"}}"#),
        rest => format!(r#"{{"type":"{kind}",{}"#, rest.trim_start_matches('{')),
    }
}
