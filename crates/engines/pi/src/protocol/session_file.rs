//! What the end of a session file tells of the process that wrote it.

use super::wire::Fields;

/// The tool calls of the conversation that have no result, as `name (id)`. Lines that are not whole are passed over.
pub(crate) fn calls_without_result(end: &str) -> Vec<String> {
    let mut open: Vec<(String, String)> = Vec::new();
    for line in end.lines() {
        // Most lines hold no call.
        if !line.contains("oolCall") && !line.contains("oolResult") {
            continue;
        }
        let message = Fields::of(line).fields("message");
        match message.text("role").as_deref() {
            // A message that was broken off has calls that never began.
            Some("assistant")
                if !matches!(
                    message.text("stopReason").as_deref(),
                    Some("aborted" | "error")
                ) =>
            {
                let blocks = message.list("content").into_iter().map(Fields::of);
                let calls =
                    blocks.filter(|block| block.text("type").as_deref() == Some("toolCall"));
                open.extend(calls.map(|call| {
                    let id = call.text("id").unwrap_or_default();
                    (id, call.text("name").unwrap_or_default())
                }));
            }
            Some("toolResult") => {
                let answered = message.text("toolCallId").unwrap_or_default();
                open.retain(|(id, _)| *id != answered);
            }
            _ => {}
        }
    }
    open.into_iter()
        .map(|(id, name)| format!("{name} ({id})"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_open_until_its_result() {
        let call = |id: &str, stop: &str| {
            format!(
                r#"{{"type":"message","message":{{"role":"assistant","content":[{{"type":"toolCall","id":"{id}","name":"bash","arguments":{{}}}}],"stopReason":"{stop}"}}}}"#
            )
        };
        let result = |id: &str| {
            format!(
                r#"{{"type":"message","message":{{"role":"toolResult","toolCallId":"{id}","content":[]}}}}"#
            )
        };
        for (lines, expected) in [
            (vec![], vec![]),
            (
                vec![call("a", "toolUse"), result("a"), call("b", "toolUse")],
                vec!["bash (b)"],
            ),
            (
                vec![r#"olCall","id":"x"}]}}"#.to_owned(), call("b", "toolUse")],
                vec!["bash (b)"],
            ),
            (vec![call("a", "aborted")], vec![]),
        ] {
            assert_eq!(calls_without_result(&lines.join("\n")), expected);
        }
    }
}
