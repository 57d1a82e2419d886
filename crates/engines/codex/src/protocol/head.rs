//! What the beginning of an overlong line tells.

/// The parts that can be read from the first bytes of a message. Codex writes `method` and `id` first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head<'a> {
    /// The method, for requests and notifications.
    pub(super) method: Option<&'a str>,
    /// The id, verbatim, for requests and answers.
    pub(super) id: Option<&'a str>,
    /// The type of the item that it is about.
    pub(super) item_type: Option<&'a str>,
    /// The id of that item.
    pub(super) item_id: Option<&'a str>,
}

/// Reads what there is to read.
pub(super) fn read(head: &str) -> Head<'_> {
    let mut found = Head::default();
    let Some(mut rest) = head.strip_prefix('{') else {
        return found;
    };
    loop {
        if let Some(after) = rest.strip_prefix("\"method\":\"") {
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
    if let Some(item) = rest.strip_prefix("\"params\":{\"item\":{") {
        found.item_type = member(item, "type");
        found.item_id = member(item, "id");
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
    fn method_ids_and_item_are_read_as_far_as_they_go() {
        let head = |method, id, item_type, item_id| Head {
            method,
            id,
            item_type,
            item_id,
        };
        for (text, expected) in [
            (
                r#"{"method":"item/completed","params":{"item":{"type":"commandExecution","id":"call_1","aggregatedOutput":"xxx"#,
                head(
                    Some("item/completed"),
                    None,
                    Some("commandExecution"),
                    Some("call_1"),
                ),
            ),
            (
                r#"{"method":"item/completed","params":{"item":{"type":"agentMessage","moderation":null,"id":"m1","text":"xx"#,
                head(
                    Some("item/completed"),
                    None,
                    Some("agentMessage"),
                    Some("m1"),
                ),
            ),
            (
                r#"{"method":"item/fileChange/requestApproval","id":12,"params":{"threadId":"t"#,
                head(
                    Some("item/fileChange/requestApproval"),
                    Some("12"),
                    None,
                    None,
                ),
            ),
            (
                r#"{"id":"1-2","result":{"id":"no"#,
                head(None, Some("\"1-2\""), None, None),
            ),
            (r#"{"method":"turn/comp"#, Head::default()),
            ("xxxxxxx", Head::default()),
            ("", Head::default()),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
