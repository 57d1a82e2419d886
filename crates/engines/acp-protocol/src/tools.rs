//! Tool calls and their results.

use std::collections::BTreeMap;

use astrabox_engine::line::Effects;
use astrabox_types::{ChildRunId, DeltaChannel, Json};
use serde_json::json;

use crate::dialect::Update;
use crate::diff;
use crate::state::{Conversation, OpenCall, Speaker};
use crate::updates::late;
use crate::wire::{Fields, json_text, verbatim};

/// How much of a call's input and output is kept while it runs (256 KiB each).
const KEPT: usize = 256 << 10;

impl Conversation {
    /// The program calls a tool. `name` is the tool's, where the dialect knows it better.
    pub fn call_begins(
        &mut self,
        update: &Update<'_>,
        name: Option<String>,
        effects: &mut Effects,
    ) {
        let Some(id) = update.fields.text("toolCallId") else {
            let message = "tool_call without an id";
            let native = Some(verbatim(update.raw));
            return self.note("unknown_event", message, native, effects);
        };
        if update.child.is_none() && !self.speaks(effects) {
            return late(self, "a tool call", &update.child, update.raw, effects);
        }
        self.settle_messages(&update.child, effects);
        if self.call_at(&update.child, &id).is_none() {
            let key = self.mint(&id);
            self.calls.push(OpenCall {
                child: update.child.clone(),
                id,
                key,
                name: None,
                title: None,
                kind: None,
                input: None,
                told: false,
                content: None,
                output: None,
                shown: String::new(),
                shown_bytes: 0,
                changes: Vec::new(),
            });
        }
        self.call_moves(update, name, effects);
    }

    /// Something about a call: more of its input, what it gave, or its end.
    pub fn call_moves(&mut self, update: &Update<'_>, name: Option<String>, effects: &mut Effects) {
        let fields = update.fields;
        let id = fields.text("toolCallId").unwrap_or_default();
        let Some(at) = self.call_at(&update.child, &id) else {
            // Some programs tell of a call only when it is done.
            let begins = fields.raw("rawInput").is_some() || fields.raw("title").is_some();
            if begins && !id.is_empty() && (update.child.is_some() || self.in_turn()) {
                return self.call_begins(update, name, effects);
            }
            return late(
                self,
                "a tool call's update",
                &update.child,
                update.raw,
                effects,
            );
        };
        self.consume(effects);
        let call = &mut self.calls[at];
        call.take(fields, name);
        let piece = terminal_piece(fields);
        let status = fields.text("status");
        let ended = matches!(
            status.as_deref(),
            Some("completed" | "failed" | "cancelled")
        );
        let runs = status.as_deref() == Some("in_progress");
        if ended || runs || piece.is_some() || call.has_input() {
            self.tell_call(at, Some(verbatim(update.raw)), effects);
        }
        if let Some(piece) = piece {
            let call = &mut self.calls[at];
            let offset = call.show(&piece);
            let key = &call.key;
            effects
                .emit
                .delta(DeltaChannel::ToolOutput, key, offset, &piece);
        }
        if ended {
            self.settle_nameless(&update.child, effects);
            let failed = status.as_deref() != Some("completed");
            self.call_ends(at, failed, update, effects);
        }
    }

    /// The key in our events of an open call, by its native id.
    #[must_use]
    pub fn call_key(&self, child: &Speaker, id: &str) -> Option<String> {
        let at = self.call_at(child, id)?;
        Some(self.calls[at].key.clone())
    }

    fn call_at(&self, child: &Speaker, id: &str) -> Option<usize> {
        self.calls
            .iter()
            .position(|call| call.id == id && call.child == *child)
    }

    /// The open call that a request for permission is about, with what the request adds; it is told now, because the
    /// question follows. Gives its key, name and input.
    pub(crate) fn call_asked(
        &mut self,
        child: &Speaker,
        request: &Fields<'_>,
        name: Option<String>,
        effects: &mut Effects,
    ) -> Option<(String, String, Json)> {
        let id = request.text("toolCallId")?;
        let at = self.call_at(child, &id)?;
        self.calls[at].take(request, name);
        self.tell_call(at, None, effects);
        let call = &self.calls[at];
        Some((call.key.clone(), call.name(), call.shown_input()))
    }

    fn tell_call(&mut self, at: usize, native: Option<Json>, effects: &mut Effects) {
        let call = &mut self.calls[at];
        if call.told {
            return;
        }
        call.told = true;
        effects.emit.speak_for(call.child.clone().map(ChildRunId));
        effects
            .emit
            .tool_call(&call.key, &call.name(), call.shown_input(), native);
    }

    fn call_ends(&mut self, at: usize, failed: bool, update: &Update<'_>, effects: &mut Effects) {
        let call = self.calls.remove(at);
        let name = call.name();
        // This update has the whole, where what is kept may be cut.
        let raw = update.fields;
        let output = output(
            call.shown,
            raw.json("rawOutput").or(call.output),
            raw.json("content")
                .filter(|content| !is_empty(content))
                .or(call.content),
        );
        effects.emit.speak_for(call.child.map(ChildRunId));
        effects
            .emit
            .tool_result(&call.key, &name, output, failed, Some(verbatim(update.raw)));
        if !failed {
            for change in call.changes {
                effects
                    .emit
                    .file_changed(&call.key, &change.path, change.kind, change.diff);
            }
        }
    }

    /// An update of a call was too long to read: mostly it is its end. What is known is told, marked as cut.
    pub(crate) fn call_cut(
        &mut self,
        child: &Speaker,
        id: &str,
        length: u64,
        effects: &mut Effects,
    ) {
        let Some(at) = self.call_at(child, id) else {
            return;
        };
        self.tell_call(at, None, effects);
        let call = self.calls.remove(at);
        let output = json!({"truncated": true, "bytes": length});
        effects.emit.speak_for(call.child.clone().map(ChildRunId));
        effects
            .emit
            .tool_result(&call.key, &call.name(), output.into(), false, None);
    }

    /// What a child run that is over called is told at the latest now, and has no result.
    pub(crate) fn tell_calls_of(&mut self, child: &Speaker, effects: &mut Effects) {
        for at in 0..self.calls.len() {
            if self.calls[at].child == *child {
                self.tell_call(at, None, effects);
            }
        }
        self.calls.retain(|call| call.child != *child);
        effects.emit.speak_for(None);
    }

    /// The turn is over: what was called is told at the latest now. A result may still come.
    pub(crate) fn tell_calls(&mut self, effects: &mut Effects) {
        for at in 0..self.calls.len() {
            self.tell_call(at, None, effects);
        }
        effects.emit.speak_for(None);
    }
}

impl OpenCall {
    fn take(&mut self, fields: &Fields<'_>, name: Option<String>) {
        let set = |known: &mut Option<String>, told: Option<String>| {
            if told.as_ref().is_some_and(|told| !told.is_empty()) {
                *known = told;
            }
        };
        set(&mut self.name, name.or_else(|| fields.text("name")));
        set(&mut self.title, fields.text("title"));
        set(&mut self.kind, fields.text("kind"));
        if let Some(input) = fields.json("rawInput").filter(|input| !is_empty(input)) {
            self.input = Some(input).filter(|input| input.text().len() <= KEPT);
        }
        if fields.raw("content").is_some() {
            let content = fields.list("content");
            let changes = diff::changes(&content, self.kind.as_deref() == Some("delete"));
            // The text of a result takes the place of the diff, and the file is changed nevertheless.
            if !changes.is_empty() {
                self.changes = changes;
            }
        }
        keep(&mut self.content, fields.json("content"));
        keep(&mut self.output, fields.json("rawOutput"));
    }

    /// Takes a piece of what a terminal shows, and gives its place.
    fn show(&mut self, piece: &str) -> u64 {
        let offset = self.shown_bytes;
        self.shown_bytes += piece.len() as u64;
        if self.shown.len() + piece.len() <= KEPT {
            self.shown.push_str(piece);
        }
        offset
    }

    fn has_input(&self) -> bool {
        self.input.is_some()
    }

    /// The tool's name: the program's own word for it, or else what kind of tool it is, or what it says that it does.
    fn name(&self) -> String {
        let kind = self.kind.clone().filter(|kind| kind != "other");
        let name = self.name.clone().or(kind).or_else(|| self.title.clone());
        name.unwrap_or_else(|| "other".to_owned())
    }

    fn shown_input(&self) -> Json {
        match &self.input {
            Some(input) => input.clone(),
            None => match &self.title {
                Some(title) => json!({"title": title}).into(),
                None => verbatim("{}"),
            },
        }
    }
}

/// What a call gave: what its terminal showed, or the tool's own result. A result that is an object may leave out the
/// text, as the exit code of codex-acp 2.6.0 does; it is told with the content then.
fn output(shown: String, raw: Option<Json>, content: Option<Json>) -> Json {
    if !shown.is_empty() {
        return json_text(&shown);
    }
    match (raw, content) {
        (Some(raw), Some(content)) if raw.text().starts_with('{') => {
            let both = [("content", content), ("rawOutput", raw)];
            Json::of(&BTreeMap::from(both)).expect("JSON under text keys is JSON")
        }
        (Some(one), _) | (None, Some(one)) => one,
        (None, None) => json_text(""),
    }
}

/// A piece of what a terminal of the program's own shows. ACP has no word for it; the editor Zed and the adapters of the
/// ACP project agree on this one.
fn terminal_piece(fields: &Fields<'_>) -> Option<String> {
    let meta = fields.fields("_meta");
    let told = |key| meta.fields(key).text("data");
    told("terminal_output_delta")
        .or_else(|| told("terminal_output"))
        .filter(|piece| !piece.is_empty())
}

/// The input of a call that is only being written.
fn is_empty(input: &Json) -> bool {
    matches!(input.text(), "{}" | "\"\"" | "[]")
}

fn keep(known: &mut Option<Json>, told: Option<Json>) {
    if let Some(told) = told.filter(|told| !is_empty(told)) {
        let bytes = told.text().len();
        *known = Some(if bytes <= KEPT {
            told
        } else {
            json!({"truncated": true, "bytes": bytes}).into()
        });
    }
}
