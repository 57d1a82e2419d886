//! Finds the program's own tool for what the model wants to do.
//!
//! Tool names and argument shapes are those that the programs were seen to offer: Codex 0.169.0,
//! Claude Code 2.1.328, Hermes 0.19.0, DeepSeek Harness 0.2.1rc2, Pi 1.6.0.

use serde_json::{Map, Value, json};

use super::conversation::{Conversation, ToolKind, ToolOffer};
use super::reply::Step;

/// A call in the program's own terms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) input: Input,
}

/// The input of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Json(Value),
    Text(String),
    Shell(Vec<String>),
}

/// Shell tools, the most direct first.
const SHELLS: [&str; 9] = [
    "exec_command",
    "shell",
    "shell_command",
    "local_shell",
    "Bash",
    "bash",
    "terminal",
    "execute_command",
    "run_shell_command",
];
const COMMAND_KEYS: [&str; 3] = ["cmd", "command", "script"];
const WRITERS: [&str; 3] = ["Write", "write", "write_file"];
const PATH_KEYS: [&str; 3] = ["file_path", "path", "filename"];
const CONTENT_KEYS: [&str; 3] = ["content", "contents", "text"];
const SPAWNERS: [&str; 5] = ["spawn_agent", "Agent", "Task", "subagent", "delegate_task"];
const PROMPT_KEYS: [&str; 4] = ["message", "prompt", "goal", "task"];
const WAITERS: [&str; 1] = ["wait_agent"];

/// The call for a step, or what to say instead.
pub(crate) fn resolve(step: &Step, conversation: &Conversation) -> Result<Call, String> {
    let offers = &conversation.tools;
    match step {
        Step::Run(command) => run(command, offers),
        Step::Write { path, content } => write(path, content, offers),
        Step::Tool { name, input } => tool(name, input, offers),
        Step::Spawn(prompt) => spawn(prompt, conversation),
        Step::Wait(ids) => wait(ids, offers),
        _ => Err("this step calls no tool".to_owned()),
    }
}

fn run(command: &str, offers: &[ToolOffer]) -> Result<Call, String> {
    if let Some(offer) = first(&SHELLS, offers) {
        return Ok(shell(offer, command));
    }
    let source = format!(
        "const r = await tools.exec_command({}); text(r.output);",
        json!({ "cmd": command })
    );
    code_cell("exec_command", source, offers).ok_or_else(|| missing("shell tool", offers))
}

fn shell(offer: &ToolOffer, command: &str) -> Call {
    let argv = || ["bash", "-lc", command].map(str::to_owned).to_vec();
    let input = match offer.kind {
        ToolKind::LocalShell => Input::Shell(argv()),
        ToolKind::Custom => Input::Text(command.to_owned()),
        ToolKind::Function => {
            let key = key(offer, &COMMAND_KEYS);
            let value = match offer.schema["properties"][key]["type"].as_str() {
                Some("array") => json!(argv()),
                _ => json!(command),
            };
            Input::Json(object(offer, [(key, value)]))
        }
    };
    call(offer, input)
}

fn write(path: &str, content: &str, offers: &[ToolOffer]) -> Result<Call, String> {
    let patch = add_file_patch(path, content);
    if let Some(offer) = first(&["apply_patch"], offers) {
        let input = match offer.kind {
            ToolKind::Function => Input::Json(json!({ "input": patch })),
            _ => Input::Text(patch),
        };
        return Ok(call(offer, input));
    }
    if let Some(offer) = first(&WRITERS, offers) {
        let fields = [
            (key(offer, &PATH_KEYS), json!(path)),
            (key(offer, &CONTENT_KEYS), json!(content)),
        ];
        return Ok(call(offer, Input::Json(object(offer, fields))));
    }
    let source = format!("text(await tools.apply_patch({}));", json!(patch));
    if let Some(call) = code_cell("apply_patch", source, offers) {
        return Ok(call);
    }
    // Codex takes this very command for a patch, also where it offers no patch tool.
    run(&format!("apply_patch <<'EOF'\n{patch}EOF"), offers)
        .map_err(|_| missing("file tool", offers))
}

/// The patch format of Codex.
fn add_file_patch(path: &str, content: &str) -> String {
    let lines: String = content.lines().map(|line| format!("+{line}\n")).collect();
    format!("*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n")
}

fn tool(name: &str, input: &Value, offers: &[ToolOffer]) -> Result<Call, String> {
    let offer = offers
        .iter()
        .find(|offer| offer.name == name)
        .or_else(|| offers.iter().find(|offer| qualified(offer) == name));
    if let Some(offer) = offer {
        let input = match (offer.kind, input) {
            (ToolKind::Function, input) => Input::Json(input.clone()),
            (_, Value::String(text)) => Input::Text(text.clone()),
            (_, input) => Input::Text(
                input["input"]
                    .as_str()
                    .map_or_else(|| input.to_string(), str::to_owned),
            ),
        };
        return Ok(call(offer, input));
    }
    let nested = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let source = format!(
        "const r = await tools.{nested}({input}); text(typeof r === 'string' ? r : JSON.stringify(r));"
    );
    code_cell(&nested, source, offers).ok_or_else(|| missing(&format!("tool `{name}`"), offers))
}

fn spawn(prompt: &str, conversation: &Conversation) -> Result<Call, String> {
    let offers = &conversation.tools;
    let offer = first(&SPAWNERS, offers).ok_or_else(|| missing("sub-agent tool", offers))?;
    let mut fields = vec![(key(offer, &PROMPT_KEYS), json!(prompt))];
    if offer.schema["properties"]["task_name"].is_object() {
        // Codex refuses a name that it has seen in the conversation.
        let (turns, calls) = (conversation.prompts().len(), conversation.results().len());
        fields.push(("task_name", json!(format!("task_{turns}_{calls}"))));
    }
    Ok(call(offer, Input::Json(object(offer, fields))))
}

fn wait(ids: &[String], offers: &[ToolOffer]) -> Result<Call, String> {
    let offer = first(&WAITERS, offers).ok_or_else(|| missing("waiting tool", offers))?;
    let by_id = offer.schema["properties"]["targets"].is_object();
    let fields = by_id.then(|| ("targets", json!(ids)));
    Ok(call(offer, Input::Json(object(offer, fields))))
}

/// A call of Codex's code cell, where the other tools are functions of a script.
fn code_cell(nested: &str, source: String, offers: &[ToolOffer]) -> Option<Call> {
    let offer = offers.iter().find(|offer| {
        offer.name == "exec"
            && offer.kind == ToolKind::Custom
            && offer.description.contains(&format!("### `{nested}`"))
    })?;
    Some(call(offer, Input::Text(source)))
}

fn call(offer: &ToolOffer, input: Input) -> Call {
    Call {
        name: offer.name.clone(),
        namespace: offer.namespace.clone(),
        input,
    }
}

fn first<'a>(names: &[&str], offers: &'a [ToolOffer]) -> Option<&'a ToolOffer> {
    names
        .iter()
        .find_map(|name| offers.iter().find(|offer| offer.name == *name))
}

/// The first of the keys that the tool's schema knows.
fn key<'a>(offer: &ToolOffer, keys: &[&'a str]) -> &'a str {
    let properties = &offer.schema["properties"];
    keys.iter()
        .find(|key| properties[**key].is_object())
        .unwrap_or(&keys[0])
}

/// An input object with the given fields, and a filler for each other text that is required.
fn object<'a>(offer: &ToolOffer, fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let mut input: Map<String, Value> = fields
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let required = offer.schema["required"].as_array();
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        let text = offer.schema["properties"][name]["type"] == "string";
        if text && !input.contains_key(name) {
            input.insert(name.to_owned(), json!("scripted"));
        }
    }
    Value::Object(input)
}

fn qualified(offer: &ToolOffer) -> String {
    match &offer.namespace {
        Some(namespace) => format!("{namespace}.{}", offer.name),
        None => offer.name.clone(),
    }
}

fn missing(what: &str, offers: &[ToolOffer]) -> String {
    let names: Vec<String> = offers.iter().map(qualified).collect();
    format!(
        "the request offers no {what}; offered: {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
