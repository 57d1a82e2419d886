//! What the beginning of an overlong line tells.

/// The parts that can be read from the first bytes of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Head<'a> {
    /// The method, for requests and notifications.
    pub(crate) method: Option<&'a str>,
    /// The id, verbatim, for requests and answers.
    pub(crate) id: Option<&'a str>,
    /// The session that it is about.
    pub(crate) session: Option<&'a str>,
    /// What kind of update it is.
    pub(crate) update: Option<&'a str>,
    /// The tool call that it is about.
    pub(crate) call: Option<&'a str>,
}

/// Reads what there is to read. Every program seen writes the envelope's members before `params` or `result`; where
/// the members of an update are is each program's own.
pub(crate) fn read(head: &str) -> Head<'_> {
    let mut found = Head::default();
    let Some(mut rest) = head.strip_prefix('{') else {
        return found;
    };
    loop {
        if let Some(after) = rest.strip_prefix("\"jsonrpc\":\"2.0\"") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\"method\":\"") {
            let Some((method, after)) = after.split_once('"') else {
                return found;
            };
            found.method = Some(method);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("\"id\":") {
            let Some(end) = after.find([',', '}']) else {
                return found;
            };
            found.id = Some(&after[..end]);
            rest = &after[end..];
        } else {
            break;
        }
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    if rest.starts_with("\"params\":") {
        found.session = member(rest, "sessionId");
        found.update = member(rest, "sessionUpdate");
        found.call = member(rest, "toolCallId");
    }
    found
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
    fn envelope_and_update_are_read_as_far_as_they_go() {
        let update = |kind, call| Head {
            method: Some("session/update"),
            session: Some("s"),
            update: kind,
            call,
            ..Head::default()
        };
        for (text, expected) in [
            (
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","content":[{"te"#,
                update(Some("tool_call_update"), Some("c1")),
            ),
            (
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"toolCallId":"c1","rawOutput":"xx"#,
                update(None, Some("c1")),
            ),
            (
                r#"{"jsonrpc":"2.0","id":12,"method":"fs/write_text_file","params":{"sessionId":"s","content":"xx"#,
                Head {
                    method: Some("fs/write_text_file"),
                    id: Some("12"),
                    session: Some("s"),
                    ..Head::default()
                },
            ),
            (
                r#"{"jsonrpc":"2.0","id":"1-2","result":{"sessionId":"no"#,
                Head {
                    id: Some("\"1-2\""),
                    ..Head::default()
                },
            ),
            (r#"{"jsonrpc":"2.0","method":"session/up"#, Head::default()),
            ("xxxxxxx", Head::default()),
            ("", Head::default()),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
