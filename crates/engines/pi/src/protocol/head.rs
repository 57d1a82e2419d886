//! What the beginning of an overlong line tells.

use super::LEFT_OUT;

/// What can be done about a message of which only the beginning is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head<'a> {
    /// A dialog: its id.
    Dialog(&'a str),
    /// A tool call: its id and the tool.
    ToolCall(&'a str, &'a str),
    /// A tool call's result: the call's id.
    ToolResult(&'a str),
    /// What the model said.
    MessageEnd,
    /// An answer to a command of ours.
    Response(&'a str),
    /// What is left out at any length.
    LeftOut,
    /// Anything else.
    Other,
}

/// Reads what there is to read. Pi 1.6.0 writes `type` first, but for a response, where the id comes first.
pub(super) fn read(head: &str) -> Head<'_> {
    if head.starts_with("{\"id\":\"") && head.contains("\"type\":\"response\"") {
        return member(head, "id").map_or(Head::Other, Head::Response);
    }
    let kind = head.strip_prefix("{\"type\":\"");
    let Some((kind, _)) = kind.and_then(|rest| rest.split_once('"')) else {
        return Head::Other;
    };
    match kind {
        "extension_ui_request" => member(head, "id").map_or(Head::Other, Head::Dialog),
        "tool_execution_end" => member(head, "toolCallId").map_or(Head::Other, Head::ToolResult),
        "tool_execution_start" => match (member(head, "toolCallId"), member(head, "toolName")) {
            (Some(id), Some(name)) => Head::ToolCall(id, name),
            _ => Head::Other,
        },
        "message_end" if head.contains("\"role\":\"assistant\"") => Head::MessageEnd,
        // Results and prompts are told by other messages.
        "message_start" | "message_end" | "tool_execution_update" => Head::LeftOut,
        kind if LEFT_OUT.contains(&kind) => Head::LeftOut,
        _ => Head::Other,
    }
}

fn member<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("\"{key}\":\""))?;
    let (value, _) = after.split_once('"')?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_id_are_read_as_far_as_they_go() {
        for (text, expected) in [
            (
                r#"{"type":"tool_execution_end","toolCallId":"call_1","toolName":"bash","result":{"content":[{"text":"xx"#,
                Head::ToolResult("call_1"),
            ),
            (
                r#"{"type":"tool_execution_start","toolCallId":"call_1","toolName":"write","args":{"content":"xx"#,
                Head::ToolCall("call_1", "write"),
            ),
            (
                r#"{"type":"extension_ui_request","id":"d-1","method":"input","title":"xx"#,
                Head::Dialog("d-1"),
            ),
            (
                r#"{"id":"1-1","type":"response","command":"get_state","data":{"xx"#,
                Head::Response("1-1"),
            ),
            (
                r#"{"type":"message_end","message":{"role":"assistant","content":[{"text":"xx"#,
                Head::MessageEnd,
            ),
            (
                r#"{"type":"message_end","message":{"role":"toolResult","content":[{"text":"xx"#,
                Head::LeftOut,
            ),
            (r#"{"type":"agent_end","messages":[{"xx"#, Head::LeftOut),
            (r#"{"type":"weather","text":"xx"#, Head::Other),
            (r#"{"typ"#, Head::Other),
            ("xxxx", Head::Other),
            ("", Head::Other),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
