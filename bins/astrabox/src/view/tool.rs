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

/// The whole input for a person who decides: a command as it is, anything else as indented JSON.
pub(crate) fn whole(input: &str) -> String {
    let Ok(Value::Object(map)) = serde_json::from_str::<Value>(input) else {
        return input.to_owned();
    };
    let Some(command) = map.get("command").and_then(words) else {
        return serde_json::to_string_pretty(&Value::Object(map))
            .unwrap_or_else(|_| input.to_owned());
    };
    let mut text = command;
    for (key, value) in map {
        if key != "command" && !value.is_null() {
            let value = words(&value).unwrap_or_else(|| value.to_string());
            text.push_str(&format!("\n{key}: {value}"));
        }
    }
    text
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
                None => None,
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
            (r#"{"n":1}"#, r#"{"n":1}"#),
        ] {
            assert_eq!(output(result), told, "{result}");
        }
    }

    #[test]
    fn who_decides_sees_everything() {
        assert_eq!(
            whole(r#"{"command":"rm -rf x","cwd":"/workspace","reason":null}"#),
            "rm -rf x\ncwd: /workspace"
        );
        assert_eq!(whole(r#"{"a":1}"#), "{\n  \"a\": 1\n}");
    }
}
