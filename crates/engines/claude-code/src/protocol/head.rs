//! What the beginning of an overlong line tells.

/// What can be done about a message of which only the beginning is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head<'a> {
    /// The program asks: its id of the request.
    Request(&'a str),
    /// A tool call's result: the call's id.
    ToolResult(&'a str),
    /// What the model said.
    Assistant,
    /// The end of a turn; whether it is one with an error.
    Result { is_error: bool },
    /// An answer to a request of ours.
    Response(&'a str),
    /// Anything else.
    Other,
}

/// Reads what there is to read. Claude Code 2.1.328 writes `type` first, but for a `result`, where the figures come
/// first and the text last.
pub(super) fn read(head: &str) -> Head<'_> {
    if head.starts_with("{\"type\":\"control_request\"") {
        return member(head, "request_id").map_or(Head::Other, Head::Request);
    }
    if head.starts_with("{\"type\":\"control_response\"") {
        return member(head, "request_id").map_or(Head::Other, Head::Response);
    }
    if head.starts_with("{\"type\":\"assistant\"") {
        return Head::Assistant;
    }
    if head.starts_with("{\"type\":\"user\"") {
        return member(head, "tool_use_id").map_or(Head::Other, Head::ToolResult);
    }
    if head.starts_with("{\"type\":\"result\"") || head.starts_with("{\"duration_api_ms\":") {
        let is_error = head.contains("\"is_error\":true");
        return Head::Result { is_error };
    }
    Head::Other
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
                r#"{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_1","type":"tool_result","content":"xxx"#,
                Head::ToolResult("toolu_1"),
            ),
            (
                r#"{"type":"control_request","request_id":"r-1","request":{"subtype":"can_use_tool","input":{"content":"xx"#,
                Head::Request("r-1"),
            ),
            (
                r#"{"type":"control_response","response":{"subtype":"success","request_id":"1-1","response":{"x"#,
                Head::Response("1-1"),
            ),
            (
                r#"{"type":"assistant","message":{"content":[{"text":"xxx"#,
                Head::Assistant,
            ),
            (
                r#"{"duration_api_ms":1,"is_error":false,"result":"xxx"#,
                Head::Result { is_error: false },
            ),
            (
                r#"{"type":"result","subtype":"success","is_error":true,"result":"x"#,
                Head::Result { is_error: true },
            ),
            (r#"{"type":"user","message":"#, Head::Other),
            (r#"{"type":"sys"#, Head::Other),
            ("xxxx", Head::Other),
            ("", Head::Other),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
