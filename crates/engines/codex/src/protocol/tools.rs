//! Which items are tool calls, and what of them is name, input and output.

use astrabox_types::Json;

use super::wire::{Fields, verbatim};

/// The members of an item that are its input and its output.
struct Shape {
    kind: &'static str,
    input: &'static [&'static str],
    output: &'static [&'static str],
}

const fn shape(
    kind: &'static str,
    input: &'static [&'static str],
    output: &'static [&'static str],
) -> Shape {
    Shape {
        kind,
        input,
        output,
    }
}

// The item types of the schema that stand for something the model had done.
const SHAPES: &[Shape] = &[
    shape(
        "commandExecution",
        &["command", "cwd", "commandActions"],
        &["status", "exitCode", "aggregatedOutput", "durationMs"],
    ),
    shape("fileChange", &["changes"], &["status", "changes"]),
    shape(
        "mcpToolCall",
        &[],
        &["status", "result", "error", "durationMs"],
    ),
    shape(
        "dynamicToolCall",
        &[],
        &["status", "success", "contentItems", "durationMs"],
    ),
    shape(
        "collabAgentToolCall",
        &["prompt", "model", "reasoningEffort", "receiverThreadIds"],
        &["status", "receiverThreadIds", "agentsStates"],
    ),
    shape(
        "webSearch",
        &["query", "action"],
        &["query", "action", "results"],
    ),
    shape("imageView", &["path"], &["path"]),
    shape(
        "imageGeneration",
        &["revisedPrompt", "inputImages"],
        &[
            "status",
            "failure",
            "savedPath",
            "generationId",
            "fileId",
            "result",
        ],
    ),
    shape("sleep", &["durationMs"], &["durationMs"]),
    shape("functionCallOutput", &[], &["output"]),
];

/// A tool call as its item tells it.
#[derive(Clone)]
pub(super) struct ToolCall {
    /// The native name, as far as the item has one; else the item's type.
    pub(super) name: String,
    pub(super) input: Json,
    pub(super) output: Json,
    pub(super) failed: bool,
}

/// The tool call that an item is, if it is one.
pub(super) fn read(kind: &str, item: &Fields<'_>) -> Option<ToolCall> {
    let shape = SHAPES.iter().find(|shape| shape.kind == kind)?;
    let text = |key| item.text(key).unwrap_or_default();
    let name = match kind {
        "mcpToolCall" => mcp_name(&text("server"), &text("tool")),
        "dynamicToolCall" => match item.text("namespace") {
            Some(namespace) => format!("{namespace}.{}", text("tool")),
            None => text("tool"),
        },
        "collabAgentToolCall" => text("tool"),
        "functionCallOutput" => text("name"),
        kind => kind.to_owned(),
    };
    let input = match kind {
        "mcpToolCall" | "dynamicToolCall" => item.raw("arguments").map(verbatim),
        _ => None,
    };
    Some(ToolCall {
        name,
        input: input.unwrap_or_else(|| item.pick(shape.input)),
        output: item.pick(shape.output),
        failed: failed(item),
    })
}

/// The name under which Codex shows an MCP tool to the model.
pub(super) fn mcp_name(server: &str, tool: &str) -> String {
    format!("mcp__{server}__{tool}")
}

fn failed(item: &Fields<'_>) -> bool {
    matches!(
        item.text("status").as_deref(),
        Some("failed" | "declined" | "interrupted")
    ) || item.flag("success") == Some(false)
        || item.raw("error").is_some()
        || item.raw("failure").is_some()
}

/// The output of a call whose end was too long to read.
pub(super) fn cut_output(length: u64) -> Json {
    Json::from(serde_json::json!({"truncated": true, "bytes": length}))
}

/// A change of a file as Codex tells it: a unified diff for changes, the bare content for new and removed files.
pub(super) fn unified(kind: &str, diff: &str) -> String {
    let sign = match kind {
        "add" => '+',
        "delete" => '-',
        // A moved file's diff ends with a remark for people.
        _ => {
            let end = diff.rfind("\n\nMoved to: ").unwrap_or(diff.len());
            return diff[..end].to_owned();
        }
    };
    let count = diff.lines().count();
    let (old, new) = match sign {
        '+' => ("0,0".to_owned(), format!("1,{count}")),
        _ => (format!("1,{count}"), "0,0".to_owned()),
    };
    let mut text = format!("@@ -{old} +{new} @@\n");
    for line in diff.lines() {
        text.push(sign);
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_call_has_its_native_name_input_and_output() {
        let told = |item: &str| {
            let fields = Fields::of(item);
            let kind = fields.text("type").expect("it has a type");
            read(&kind, &fields).map_or("none".to_owned(), |call| {
                let failed = if call.failed { " failed" } else { "" };
                format!(
                    "{} {} -> {}{failed}",
                    call.name,
                    call.input.text(),
                    call.output.text()
                )
            })
        };
        for (item, expected) in [
            (
                r#"{"type":"commandExecution","id":"1","command":"ls","cwd":"/w","status":"completed","exitCode":0,"aggregatedOutput":"a\n","durationMs":null}"#,
                r#"commandExecution {"command":"ls","cwd":"/w"} -> {"aggregatedOutput":"a\n","exitCode":0,"status":"completed"}"#,
            ),
            (
                r#"{"type":"commandExecution","command":"ls","status":"declined"}"#,
                r#"commandExecution {"command":"ls"} -> {"status":"declined"} failed"#,
            ),
            (
                r#"{"type":"mcpToolCall","server":"s","tool":"t","arguments":{"n":1.0},"status":"failed","error":{"message":"no"}}"#,
                r#"mcp__s__t {"n":1.0} -> {"error":{"message":"no"},"status":"failed"} failed"#,
            ),
            (
                r#"{"type":"mcpToolCall","server":"s","tool":"t","arguments":null,"status":"inProgress","error":null}"#,
                r#"mcp__s__t {} -> {"status":"inProgress"}"#,
            ),
            (
                r#"{"type":"dynamicToolCall","namespace":"n","tool":"t","arguments":[1],"success":false}"#,
                "n.t [1] -> {\"success\":false} failed",
            ),
            (
                r#"{"type":"collabAgentToolCall","tool":"spawnAgent","prompt":"do","receiverThreadIds":["x"],"status":"completed"}"#,
                r#"spawnAgent {"prompt":"do","receiverThreadIds":["x"]} -> {"receiverThreadIds":["x"],"status":"completed"}"#,
            ),
            (
                r#"{"type":"webSearch","query":"q","action":null}"#,
                r#"webSearch {"query":"q"} -> {"query":"q"}"#,
            ),
            (
                r#"{"type":"imageGeneration","status":"failed","failure":{"code":"x"}}"#,
                r#"imageGeneration {} -> {"failure":{"code":"x"},"status":"failed"} failed"#,
            ),
            (
                r#"{"type":"functionCallOutput","name":"f","output":"o"}"#,
                r#"f {} -> {"output":"o"}"#,
            ),
            (r#"{"type":"agentMessage","text":"hi"}"#, "none"),
            (r#"{"type":"brandNew"}"#, "none"),
        ] {
            assert_eq!(told(item), expected, "{item}");
        }
    }

    #[test]
    fn a_diff_is_a_unified_one_for_every_kind_of_change() {
        for (kind, diff, expected) in [
            ("add", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
            ("delete", "bye\n", "@@ -1,1 +0,0 @@\n-bye\n"),
            ("update", "@@ -1 +1 @@\n-a\n+b\n", "@@ -1 +1 @@\n-a\n+b\n"),
            (
                "update",
                "@@ -1 +1 @@\n-a\n+b\n\n\nMoved to: /w/c",
                "@@ -1 +1 @@\n-a\n+b\n",
            ),
        ] {
            assert_eq!(unified(kind, diff), expected, "{kind}");
        }
    }
}
