use serde_json::json;

use super::super::conversation::{ToolKind, user_entry};
use super::*;

fn context(text: &str) -> Entry {
    Entry::Context(text.to_owned())
}

fn assistant(text: &str) -> Entry {
    Entry::Assistant(text.to_owned())
}

fn call(id: &str, name: &str) -> Entry {
    Entry::Call {
        id: id.to_owned(),
        name: name.to_owned(),
    }
}

fn result(id: &str, text: &str) -> Entry {
    Entry::Result {
        id: id.to_owned(),
        text: text.to_owned(),
    }
}

fn check(wire: Wire, body: Value, expected: &[Entry]) {
    let conversation = decode(wire, &body).expect("a request");
    assert_eq!(conversation.wire(), wire);
    assert_eq!(conversation.entries(), expected);
}

#[test]
fn a_messages_history_is_read() {
    check(
        Wire::Messages,
        json!({
            "model": "m",
            "system": [{"type": "text", "text": "be good"}],
            "messages": [
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "two"},
                    {"type": "tool_use", "id": "t", "name": "Bash", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": [
                        {"type": "text", "text": "three"},
                        {"type": "image", "source": {}},
                    ]},
                    {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "u", "content": "four"},
                ]},
            ],
        }),
        &[
            context("be good"),
            user_entry("one"),
            assistant("two"),
            call("t", "Bash"),
            result("t", "three"),
            context("<system-reminder>x</system-reminder>"),
            result("u", "four"),
        ],
    );
}

#[test]
fn a_responses_history_is_read() {
    check(
        Wire::Responses,
        json!({
            "model": "m",
            "instructions": "be good",
            "input": [
                {"type": "message", "role": "developer", "content": [
                    {"type": "input_text", "text": "rules"},
                ]},
                {"role": "user", "content": "one"},
                {"type": "reasoning", "summary": []},
                {"type": "message", "role": "assistant", "content": [
                    {"type": "output_text", "text": "two"},
                ]},
                {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "three"},
                {"type": "custom_tool_call", "call_id": "b", "name": "exec", "input": ""},
                {"type": "custom_tool_call_output", "call_id": "b", "output": [
                    {"type": "input_text", "text": "Output:\n"},
                    {"type": "input_text", "text": "four"},
                ]},
                {"type": "local_shell_call", "call_id": "c", "action": {}},
            ],
        }),
        &[
            context("be good"),
            context("rules"),
            user_entry("one"),
            assistant("two"),
            call("a", "shell"),
            result("a", "three"),
            call("b", "exec"),
            result("b", "Output:\nfour"),
            call("c", "local_shell_call"),
        ],
    );
    check(
        Wire::Responses,
        json!({"model": "m", "input": "just this"}),
        &[user_entry("just this")],
    );
}

#[test]
fn a_task_from_another_agent_is_a_prompt_and_its_other_messages_are_not() {
    let message = |head: &str, payload: &str| {
        json!({"type": "agent_message", "content": [
            {"type": "input_text", "text": head},
            {"type": "encrypted_content", "encrypted_content": payload},
        ]})
    };
    check(
        Wire::Responses,
        json!({
            "model": "m",
            "input": [
                message("Message Type: NEW_TASK\nPayload:\n", "SAY: hi"),
                message("Message Type: FINAL_ANSWER\nPayload:\n", "SAY: no"),
            ],
        }),
        &[
            user_entry("SAY: hi"),
            context("Message Type: FINAL_ANSWER\nPayload:\nSAY: no"),
        ],
    );
}

#[test]
fn a_chat_history_is_read() {
    check(
        Wire::Chat,
        json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "be good"},
                {"role": "user", "content": [{"type": "text", "text": "one"}]},
                {"role": "user", "content": [
                    {"type": "text", "text": "Operator note (not from the user): it was a system message."},
                    {"type": "text", "text": "be brief"},
                ]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "a", "content": "two"},
            ],
        }),
        &[
            context("be good"),
            user_entry("one"),
            context("Operator note (not from the user): it was a system message."),
            context("be brief"),
            call("a", "bash"),
            result("a", "two"),
        ],
    );
}

#[test]
fn tools_are_read_with_their_kind_and_namespace() {
    let body = json!({
        "model": "m",
        "input": [{"type": "additional_tools", "tools": [
            {"type": "namespace", "name": "functions", "tools": [
                {"type": "custom", "name": "exec", "description": "code"},
            ]},
        ]}],
        "tools": [
            {"type": "function", "name": "shell", "parameters": {"type": "object"}},
            {"type": "local_shell"},
            {"type": "web_search"},
        ],
    });
    let conversation = decode(Wire::Responses, &body).expect("a request");
    let tools: Vec<_> = conversation
        .tools()
        .iter()
        .map(|tool| (tool.namespace.as_deref(), tool.name.as_str(), tool.kind))
        .collect();
    assert_eq!(
        tools,
        [
            (Some("functions"), "exec", ToolKind::Custom),
            (None, "shell", ToolKind::Function),
            (None, "local_shell", ToolKind::LocalShell),
        ]
    );
}
