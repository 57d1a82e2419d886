//! Tool calls: their begin, their output, their result, and the files that they change.

use astrabox_engine::line::Effects;
use astrabox_engine::sandbox::{HOME, WORKSPACE};
use astrabox_types::{DeltaChannel, FileChangeKind, Json};
use serde_json::json;

use super::output::{Told, text_of};
use super::state::{OpenCall, PiProtocol};
use super::wire::{Fields, verbatim};

impl PiProtocol {
    pub(super) fn called(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        if self.turn.is_none() {
            return self.late("a tool call", line, effects);
        }
        let id = fields.text("toolCallId").unwrap_or_default();
        let name = fields.text("toolName").unwrap_or_default();
        let path = match name.as_str() {
            "write" | "edit" => fields.fields("args").text("path"),
            _ => None,
        };
        let input = fields.json("args").unwrap_or_else(|| verbatim("{}"));
        self.call_begins(id, &name, path, input, Some(verbatim(line)), effects);
    }

    fn call_begins(
        &mut self,
        id: String,
        name: &str,
        path: Option<String>,
        input: Json,
        native: Option<Json>,
        effects: &mut Effects,
    ) {
        let key = self.mint(&id);
        effects.emit.tool_call(&key, name, input, native);
        self.calls.retain(|call| call.id != id);
        self.calls.push(OpenCall {
            id,
            key,
            name: name.to_owned(),
            path,
            told: Told::default(),
        });
    }

    /// A tool call was too long to read: what is known of it is told, marked as cut.
    pub(super) fn call_begins_cut(
        &mut self,
        id: &str,
        name: &str,
        length: u64,
        effects: &mut Effects,
    ) {
        if self.turn.is_some() {
            self.call_begins(id.to_owned(), name, None, cut(length), None, effects);
        }
    }

    pub(super) fn output_grows(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let id = fields.text("toolCallId").unwrap_or_default();
        let call = self.calls.iter_mut().find(|call| call.id == id);
        let text = text_of(&fields.fields("partialResult"));
        if let Some(call) = call
            && let Some((offset, new)) = call.told.news(&text)
        {
            let channel = DeltaChannel::ToolOutput;
            effects.emit.delta(channel, &call.key, offset, new);
        }
    }

    pub(super) fn returned(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let id = fields.text("toolCallId").unwrap_or_default();
        let Some(at) = self.calls.iter().position(|call| call.id == id) else {
            return self.late("a tool result", line, effects);
        };
        let call = self.calls.remove(at);
        let failed = fields.flag("isError") == Some(true);
        let result = fields.fields("result");
        let output = result.json("content").or_else(|| fields.json("result"));
        let output = output.unwrap_or_else(|| verbatim("\"\""));
        let native = Some(verbatim(line));
        effects
            .emit
            .tool_result(&call.key, &call.name, output, failed, native);
        if let Some(path) = call.path.filter(|_| !failed) {
            let (kind, diff) = change(&result.fields("details"));
            let path = whole_path(&path);
            effects.emit.file_changed(&call.key, &path, kind, diff);
        }
    }

    /// A tool's result was too long to read: what is known of it is told, marked as cut.
    pub(super) fn call_cut(&mut self, id: &str, length: u64, effects: &mut Effects) {
        let Some(at) = self.calls.iter().position(|call| call.id == id) else {
            return;
        };
        let call = self.calls.remove(at);
        effects
            .emit
            .tool_result(&call.key, &call.name, cut(length), false, None);
    }
}

/// What stands for something that was too long to read.
fn cut(length: u64) -> Json {
    json!({"truncated": true, "bytes": length}).into()
}

/// What `details` tell of a changed file: `edit` its patch, and for `write` the platform's extension whether the
/// file was there before. Files that a command changes are not told.
fn change(details: &Fields<'_>) -> (FileChangeKind, Option<String>) {
    let kind = match details.flag("existed") {
        Some(false) => FileChangeKind::Added,
        Some(true) | None => FileChangeKind::Modified,
    };
    (kind, details.text("patch"))
}

/// A path as the program resolves it.
fn whole_path(path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    match path.strip_prefix("~/") {
        Some(rest) => format!("{HOME}/{rest}"),
        None => format!("{WORKSPACE}/{}", path.trim_start_matches("./")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_told_as_far_as_the_program_does() {
        for (details, kind, diff) in [
            (r#"{"existed":false}"#, FileChangeKind::Added, None),
            (r#"{"existed":true}"#, FileChangeKind::Modified, None),
            (
                r#"{"diff":"-1 a","patch":"@@ -1 +1 @@\n-a\n+b\n"}"#,
                FileChangeKind::Modified,
                Some("@@ -1 +1 @@\n-a\n+b\n"),
            ),
            ("{}", FileChangeKind::Modified, None),
        ] {
            let told = change(&Fields::of(details));
            assert_eq!(told, (kind, diff.map(str::to_owned)), "{details}");
        }
    }

    #[test]
    fn a_path_is_whole() {
        for (path, expected) in [
            ("/a/b", "/a/b"),
            ("a/b", "/workspace/a/b"),
            ("./a", "/workspace/a"),
            ("~/a", "/home/agent/a"),
        ] {
            assert_eq!(whole_path(path), expected);
        }
    }
}
