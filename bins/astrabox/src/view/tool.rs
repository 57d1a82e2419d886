//! What a tool call is about and what it gave, in few words. The forms are those of the engines: Codex names its
//! input `command`, `changes`, `query`; Claude Code `command`, `file_path`, `pattern`, `url`, `description`.

use serde_json::Value;

use crate::out::one_line;

/// Members of an input that say what the call is about, the first one that is there.
const SUBJECTS: &[&str] = &[
    "command",
    "cmd",
    "file_path",
    "notebook_path",
    "pattern",
    "query",
    "url",
    "path",
    "description",
    "prompt",
    "skill",
    "plan",
];
/// Members of an output that are what the tool printed.
const OUTPUTS: &[&str] = &[
    "aggregatedOutput",
    "output",
    "stdout",
    "stderr",
    "content",
    "text",
    "result",
    "error",
    "message",
];

/// What a call is about, in one line of at most this many characters.
pub(crate) fn subject(input: &str, limit: usize) -> String {
    one_line(subject_of(input).trim(), limit)
}

fn subject_of(input: &str) -> String {
    let Ok(Value::Object(map)) = serde_json::from_str(input) else {
        return input.to_owned();
    };
    if let Some(Value::Array(changes)) = map.get("changes") {
        let paths = changes.iter().filter_map(|change| change["path"].as_str());
        let paths = paths.collect::<Vec<_>>().join(", ");
        if !paths.is_empty() {
            return paths;
        }
    }
    let told = SUBJECTS
        .iter()
        .find_map(|key| words(map.get(*key)?).filter(|text| !text.is_empty()));
    match told {
        Some(text) => text,
        None if map.is_empty() => String::new(),
        None => Value::Object(map).to_string(),
    }
}

/// A text, or a list of texts as a command line.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => {
            let words: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            words.map(|words| words.join(" "))
        }
        _ => None,
    }
}

/// Members of an input that only say again, in other words, what its command says.
const REPEATED: &[&str] = &["commandActions", "kind"];

/// The whole input for a person who decides: a command as it is, changes of files as diffs, anything else by its
/// members.
pub(crate) fn whole(input: &str) -> String {
    let Ok(Value::Object(mut map)) = serde_json::from_str::<Value>(input) else {
        return input.to_owned();
    };
    let mut text = String::new();
    if let Some(command) = map.get("command").and_then(words) {
        text.push_str(&command);
        text.push('\n');
        map.retain(|key, _| key != "command" && !REPEATED.contains(&key.as_str()));
    }
    if let Some(changes) = map.get("changes").and_then(changes) {
        text.push_str(&changes);
        map.remove("changes");
    }
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        member(key, value, &mut text);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Codex's changes: what is done to which file, and the diff.
fn changes(value: &Value) -> Option<String> {
    let mut text = String::new();
    for change in value.as_array()? {
        let path = change.get("path")?.as_str()?;
        let diff = change.get("diff")?.as_str()?;
        let kind = change.pointer("/kind/type").and_then(Value::as_str);
        text.push_str(&format!("{} {path}\n", kind.unwrap_or("change")));
        diff.lines()
            .for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    Some(text)
}

fn member(key: &str, value: &Value, text: &mut String) {
    let told = match words(value) {
        Some(told) => told,
        None => serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string()),
    };
    if told.contains('\n') {
        text.push_str(&format!("{key}:\n"));
        told.lines()
            .for_each(|line| text.push_str(&format!("  {line}\n")));
    } else {
        text.push_str(&format!("{key}: {told}\n"));
    }
}

/// What a tool printed, out of its result.
pub(crate) fn output(output: &str) -> String {
    match serde_json::from_str(output) {
        Ok(value) => text_of(&value).unwrap_or_else(|| output.to_owned()),
        Err(_) => output.to_owned(),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        // Blocks of text, as MCP and Claude Code give them.
        Value::Array(values) => {
            let texts: Option<Vec<String>> = values.iter().map(text_of).collect();
            texts.map(|texts| texts.join("\n"))
        }
        Value::Object(map) => {
            // A result of a file change has nothing to tell beside the diffs.
            if map.contains_key("changes") {
                return Some(String::new());
            }
            let mut found = OUTPUTS
                .iter()
                .filter_map(|key| text_of(map.get(*key)?))
                .filter(|text| !text.is_empty());
            match found.next() {
                Some(text) => Some(text),
                None if OUTPUTS.iter().any(|key| map.contains_key(*key)) => Some(String::new()),
                None => map.get("status").and_then(text_of),
            }
        }
        Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_told_by_its_subject() {
        for (input, told) in [
            (r#"{"command":"ls -la","cwd":"/workspace"}"#, "ls -la"),
            (r#"{"command":["sh","-c","a b"]}"#, "sh -c a b"),
            (
                r#"{"file_path":"/workspace/a","old_string":"x"}"#,
                "/workspace/a",
            ),
            (
                r#"{"changes":[{"path":"a","diff":"x"},{"path":"b"}]}"#,
                "a, b",
            ),
            (r#"{"pattern":"x","path":"/y"}"#, "x"),
            (r#"{"n":1}"#, r#"{"n":1}"#),
            ("{}", ""),
            ("no JSON", "no JSON"),
        ] {
            assert_eq!(subject(input, 80), told, "{input}");
        }
        assert_eq!(subject(r#"{"command":"a\nb"}"#, 80), "a b");
    }

    #[test]
    fn a_result_is_told_by_what_the_tool_printed() {
        for (result, told) in [
            (
                r#"{"exitCode":0,"aggregatedOutput":"one\ntwo"}"#,
                "one\ntwo",
            ),
            (r#"{"code":1,"output":""}"#, ""),
            (
                r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#,
                "a\nb",
            ),
            (
                r#"{"result":{"content":[{"type":"text","text":"a"}]},"error":null}"#,
                "a",
            ),
            (r#""plain""#, "plain"),
            (r#"{"status":"completed","changes":[]}"#, ""),
            (r#"{"status":"declined"}"#, "declined"),
            (r#"{"n":1}"#, r#"{"n":1}"#),
        ] {
            assert_eq!(output(result), told, "{result}");
        }
    }

    #[test]
    fn who_decides_sees_everything() {
        for (input, told) in [
            (
                r#"{"command":"rm -rf x","cwd":"/workspace","reason":null,"kind":"command"}"#,
                "rm -rf x\ncwd: /workspace",
            ),
            (
                r#"{"changes":[{"path":"/a","diff":"one\ntwo\n","kind":{"type":"add"}}]}"#,
                "add /a\n  one\n  two",
            ),
            (
                r#"{"file_path":"/a","content":"one\ntwo"}"#,
                "content:\n  one\n  two\nfile_path: /a",
            ),
            (r#"{"n":1}"#, "n: 1"),
            ("no JSON", "no JSON"),
        ] {
            assert_eq!(whole(input), told, "{input}");
        }
    }
}
