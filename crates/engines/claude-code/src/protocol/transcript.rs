//! What the end of a transcript tells of the process that wrote it.

use super::wire::Fields;

/// The tool calls of the conversation itself that have no result, as `name (id)`. Lines that are not whole are
/// passed over.
pub(crate) fn calls_without_result(end: &str) -> Vec<String> {
    let mut open: Vec<(String, String)> = Vec::new();
    for line in end.lines() {
        // Most lines hold no call.
        if !line.contains("tool_use") {
            continue;
        }
        let entry = Fields::of(line);
        if entry.flag("isSidechain") == Some(true) {
            continue;
        }
        let message = entry.fields("message");
        for block in message.list("content").into_iter().map(Fields::of) {
            match block.text("type").as_deref() {
                Some("tool_use") => {
                    let id = block.text("id").unwrap_or_default();
                    open.push((id, block.text("name").unwrap_or_default()));
                }
                Some("tool_result") => {
                    let answered = block.text("tool_use_id").unwrap_or_default();
                    open.retain(|(id, _)| *id != answered);
                }
                _ => {}
            }
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
        let call = |id: &str| {
            format!(
                r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"{id}","name":"Bash","input":{{}}}}]}}}}"#
            )
        };
        let result = |id: &str| {
            format!(
                r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}"}}]}}}}"#
            )
        };
        let side = call("c").replacen('{', r#"{"isSidechain":true,"#, 1);
        for (lines, expected) in [
            (vec![], vec![]),
            (vec![call("a"), result("a")], vec![]),
            (vec![call("a"), result("a"), call("b")], vec!["Bash (b)"]),
            (
                vec![r#"use","id":"x"}]}}"#.to_owned(), call("b")],
                vec!["Bash (b)"],
            ),
            (vec![side], vec![]),
        ] {
            assert_eq!(calls_without_result(&lines.join("\n")), expected);
        }
    }
}
