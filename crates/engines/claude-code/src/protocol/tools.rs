//! What tool results tell besides their text.

use astrabox_types::{FileChangeKind, Json};
use serde_json::json;

use super::wire::Fields;

/// A file that a tool changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) path: String,
    pub(super) kind: FileChangeKind,
    pub(super) diff: Option<String>,
}

/// Reads the change out of `tool_use_result` of a tool that writes files. What a shell command changes is not told.
pub(super) fn file_change(tool: &str, detail: &str) -> Option<Change> {
    if !matches!(tool, "Write" | "Edit" | "MultiEdit" | "NotebookEdit") {
        return None;
    }
    let fields = Fields::of(detail);
    let path = fields
        .text("filePath")
        .or_else(|| fields.text("notebook_path"))?;
    let created = fields.text("type").as_deref() == Some("create");
    let (kind, diff) = if created {
        let diff = fields.text("content").map(|content| added(&content));
        (FileChangeKind::Added, diff)
    } else {
        (FileChangeKind::Modified, unified(&fields))
    };
    Some(Change { path, kind, diff })
}

/// A unified diff of a file that was not there.
fn added(content: &str) -> String {
    let count = content.lines().count();
    let mut diff = format!("@@ -0,0 +1,{count} @@\n");
    for line in content.lines() {
        diff.push('+');
        diff.push_str(line);
        diff.push('\n');
    }
    if !content.is_empty() && !content.ends_with('\n') {
        diff.push_str("\\ No newline at end of file\n");
    }
    diff
}

/// A unified diff of the hunks in `structuredPatch`.
fn unified(fields: &Fields<'_>) -> Option<String> {
    let mut diff = String::new();
    for hunk in fields.list("structuredPatch").into_iter().map(Fields::of) {
        let number = |key| hunk.number(key).unwrap_or_default();
        diff.push_str(&format!(
            "@@ -{},{} +{},{} @@\n",
            number("oldStart"),
            number("oldLines"),
            number("newStart"),
            number("newLines"),
        ));
        for line in hunk.texts("lines") {
            diff.push_str(&line);
            diff.push('\n');
        }
    }
    (!diff.is_empty()).then_some(diff)
}

/// The output of a result that was too long to read.
pub(super) fn cut_output(length: u64) -> Json {
    json!({"truncated": true, "bytes": length}).into()
}

/// What a command of the program's own wrote.
pub(super) fn command_output(text: &str) -> Option<&str> {
    ["local-command-stdout", "local-command-stderr"]
        .iter()
        .find_map(|tag| {
            let rest = text.strip_prefix(&format!("<{tag}>"))?;
            rest.strip_suffix(&format!("</{tag}>"))
        })
        .map(str::trim)
        .filter(|output| !output.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_added_or_modified_with_its_diff() {
        let change = |kind, diff: &str| {
            Some(Change {
                path: "/w/f".to_owned(),
                kind,
                diff: Some(diff.to_owned()),
            })
        };
        for (tool, detail, expected) in [
            (
                "Write",
                r#"{"type":"create","filePath":"/w/f","content":"a\nb","structuredPatch":[]}"#,
                change(
                    FileChangeKind::Added,
                    "@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n",
                ),
            ),
            (
                "Edit",
                r#"{"filePath":"/w/f","structuredPatch":[{"oldStart":1,"oldLines":2,"newStart":1,"newLines":2,"lines":["-a","+1"," b"]}]}"#,
                change(FileChangeKind::Modified, "@@ -1,2 +1,2 @@\n-a\n+1\n b\n"),
            ),
            (
                "Write",
                r#"{"type":"update","filePath":"/w/f","content":"x","structuredPatch":[]}"#,
                Some(Change {
                    path: "/w/f".to_owned(),
                    kind: FileChangeKind::Modified,
                    diff: None,
                }),
            ),
            ("Read", r#"{"filePath":"/w/f"}"#, None),
            ("Write", r#""Error: no""#, None),
        ] {
            assert_eq!(file_change(tool, detail), expected, "{detail}");
        }
    }

    #[test]
    fn the_output_of_the_programs_own_commands_is_without_its_tag() {
        for (text, expected) in [
            (
                "<local-command-stdout>Compacted </local-command-stdout>",
                Some("Compacted"),
            ),
            ("<local-command-stdout></local-command-stdout>", None),
            ("a <local-command-stdout>x</local-command-stdout>", None),
            ("hello", None),
        ] {
            assert_eq!(command_output(text), expected, "{text}");
        }
    }
}
