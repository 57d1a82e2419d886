//! Items: messages, reasoning, tool calls, and their pieces.

use astrabox_engine::line::Effects;
use astrabox_types::{ChildRunId, DeltaChannel, FileChangeKind, Json, MessageKind};

use super::state::{Body, CodexProtocol, OpenItem, Stream};
use super::tools::{self, ToolCall};
use super::wire::{Fields, verbatim};

/// What stands between two parts of a summary.
pub(super) const PART_BREAK: &str = "\n\n";

impl OpenItem {
    pub(super) fn is_command(&self) -> bool {
        matches!(&self.body, Body::Tool { kind, .. } if kind == "commandExecution")
    }
}

impl CodexProtocol {
    pub(super) fn item_started(
        &mut self,
        thread: &str,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let item = fields.fields("item");
        let kind = item.text("type").unwrap_or_default();
        let id = item.text("id").unwrap_or_default();
        let turn = fields.text("turnId").unwrap_or_default();
        self.turn_seen(thread, &turn, effects);
        if kind == "userMessage" {
            // What a client said is in the journal; what a child was told is its title.
            return;
        }
        if self.is_late(thread, &turn) {
            return self.late("item/started", fields, effects);
        }
        if let Some(call) = tools::read(&kind, &item) {
            self.open_call(thread, &id, &turn, &kind, &call);
            let native = verbatim(fields.raw("item").unwrap_or("null"));
            self.tell_call(call, native, effects);
        } else if let Some(body) = message_body(&kind) {
            self.open_item(thread, &id, &turn, body);
        } else if kind == "subAgentActivity" {
            self.child_activity(&item, effects);
        }
    }

    pub(super) fn item_completed(
        &mut self,
        thread: &str,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let item = fields.fields("item");
        let kind = item.text("type").unwrap_or_default();
        let id = item.text("id").unwrap_or_default();
        let turn = fields.text("turnId").unwrap_or_default();
        if kind == "userMessage" {
            return;
        }
        self.turn_seen(thread, &turn, effects);
        let known = self.find(thread, &id);
        if known.is_none() && self.is_late(thread, &turn) {
            return self.late("item/completed", fields, effects);
        }
        let native = verbatim(fields.raw("item").unwrap_or("null"));
        if let Some(call) = tools::read(&kind, &item) {
            let at = known.unwrap_or(self.items.len());
            if known.is_none() {
                self.open_call(thread, &id, &turn, &kind, &call);
                self.tell_call(call.clone(), native.clone(), effects);
            }
            let key = self.items.remove(at).key;
            return self.call_ended(&key, &kind, call, &item, native, effects);
        }
        match kind.as_str() {
            "agentMessage" | "plan" => {
                let key = self.close_item(&id, known);
                let text = item.text("text").unwrap_or_default();
                message(MessageKind::Text, &key, text, false, Some(native), effects);
            }
            "reasoning" => {
                let key = self.close_item(&id, known);
                let summary = item.texts("summary").join(PART_BREAK);
                let raw = item.texts("content").join(PART_BREAK);
                let kind = MessageKind::Reasoning;
                let (of_summary, of_raw) = (summary_key(&key), raw_key(&key));
                message(
                    kind,
                    &of_summary,
                    summary,
                    false,
                    Some(native.clone()),
                    effects,
                );
                message(kind, &of_raw, raw, false, Some(native), effects);
            }
            "contextCompaction" => {
                let key = self.mint(&id);
                effects.emit.context_compacted(&key, Some(native));
            }
            "subAgentActivity" => self.child_activity(&item, effects),
            kind => self.note("unknown_item", kind, Some(native), effects),
        }
    }

    fn call_ended(
        &mut self,
        key: &str,
        kind: &str,
        call: ToolCall,
        item: &Fields<'_>,
        native: Json,
        effects: &mut Effects,
    ) {
        effects
            .emit
            .tool_result(key, &call.name, call.output, call.failed, Some(native));
        match kind {
            "fileChange" => file_changes(key, item, effects),
            "collabAgentToolCall" => self.child_call(key, item, effects),
            _ => {}
        }
        self.tell_background(effects);
    }

    /// Something of a turn that does not run. It is kept, and opens nothing.
    fn late(&mut self, method: &str, fields: &Fields<'_>, effects: &mut Effects) {
        let native = fields.json("item").or_else(|| fields.json("delta"));
        let message = format!("{method} of a turn that does not run");
        self.note("late_event", message, native, effects);
    }

    fn is_late(&self, thread: &str, turn: &str) -> bool {
        self.is_own(thread) && !self.is_current(turn)
    }

    fn find(&self, thread: &str, id: &str) -> Option<usize> {
        self.items
            .iter()
            .position(|item| item.id == id && item.thread == thread)
    }

    fn open_item(&mut self, thread: &str, id: &str, turn: &str, body: Body) {
        // A message that begins anew under an id that is open: the first one was given up.
        self.items
            .retain(|item| item.id != id || item.thread != thread);
        let key = self.mint(id);
        self.items.push(OpenItem {
            thread: thread.to_owned(),
            id: id.to_owned(),
            turn: turn.to_owned(),
            key,
            body,
        });
    }

    fn open_call(&mut self, thread: &str, id: &str, turn: &str, kind: &str, call: &ToolCall) {
        let body = Body::Tool {
            kind: kind.to_owned(),
            name: call.name.clone(),
            // The approval of a patch names the item only.
            input: (kind == "fileChange").then(|| call.input.clone()),
            told: 0,
        };
        self.open_item(thread, id, turn, body);
    }

    /// Tells of the call that was opened last.
    fn tell_call(&mut self, call: ToolCall, native: Json, effects: &mut Effects) {
        if let Some(OpenItem { key, .. }) = self.items.last() {
            effects
                .emit
                .tool_call(key, &call.name, call.input, Some(native));
        }
    }

    fn close_item(&mut self, id: &str, known: Option<usize>) -> String {
        match known {
            Some(at) => self.items.remove(at).key,
            None => self.mint(id),
        }
    }

    /// The open item that a piece belongs to; one whose begin was not told is opened.
    fn piece_of(
        &mut self,
        thread: &str,
        method: &str,
        fields: &Fields<'_>,
        body: fn() -> Option<Body>,
        effects: &mut Effects,
    ) -> Option<&mut OpenItem> {
        let id = fields.text("itemId").unwrap_or_default();
        let turn = fields.text("turnId").unwrap_or_default();
        self.turn_seen(thread, &turn, effects);
        if let Some(at) = self.find(thread, &id) {
            return self.items.get_mut(at);
        }
        if self.is_late(thread, &turn) {
            self.late(method, fields, effects);
            return None;
        }
        let Some(body) = body() else {
            let message = format!("{method} of a call that did not begin");
            self.note("unknown_event", message, fields.json("delta"), effects);
            return None;
        };
        self.open_item(thread, &id, &turn, body);
        self.items.last_mut()
    }

    pub(super) fn text_piece(
        &mut self,
        thread: &str,
        method: &str,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let piece = fields.text("delta").unwrap_or_default();
        let body = || message_body("agentMessage");
        let item = self.piece_of(thread, method, fields, body, effects);
        if let Some(OpenItem {
            key,
            body: Body::Text(stream),
            ..
        }) = item
        {
            let (offset, text) = stream.take(0, &piece);
            effects.emit.delta(DeltaChannel::Text, key, offset, &text);
        }
    }

    pub(super) fn reasoning_piece(
        &mut self,
        thread: &str,
        method: &str,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let piece = fields.text("delta").unwrap_or_default();
        let body = || message_body("reasoning");
        let item = self.piece_of(thread, method, fields, body, effects);
        let Some(OpenItem {
            key,
            body: Body::Reasoning { summary, raw },
            ..
        }) = item
        else {
            return;
        };
        let (key, (offset, text)) = if method == "item/reasoning/textDelta" {
            let part = fields.number("contentIndex").unwrap_or_default();
            (raw_key(key), raw.take(part, &piece))
        } else {
            let part = fields.number("summaryIndex").unwrap_or_default();
            (summary_key(key), summary.take(part, &piece))
        };
        effects
            .emit
            .delta(DeltaChannel::Reasoning, &key, offset, &text);
    }

    pub(super) fn tool_piece(
        &mut self,
        thread: &str,
        method: &str,
        fields: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let piece = fields.text("delta").or_else(|| fields.text("message"));
        let piece = piece.unwrap_or_default();
        let item = self.piece_of(thread, method, fields, || None, effects);
        if let Some(OpenItem {
            key,
            body: Body::Tool { told, .. },
            ..
        }) = item
        {
            // Pieces may be missing: the result has all of it.
            effects
                .emit
                .delta(DeltaChannel::ToolOutput, key, *told, &piece);
            *told += piece.len() as u64;
        }
    }

    /// The end of an item was too long to read: what is known of it is told, marked as cut.
    pub(super) fn item_cut(&mut self, id: &str, length: u64, effects: &mut Effects) {
        let Some(at) = self.items.iter().position(|item| item.id == id) else {
            return;
        };
        let item = self.items.remove(at);
        if !self.is_own(&item.thread) {
            effects
                .emit
                .speak_for(Some(ChildRunId(item.thread.clone())));
        }
        match item.body {
            Body::Tool { name, .. } => {
                let output = tools::cut_output(length);
                effects
                    .emit
                    .tool_result(&item.key, &name, output, false, None);
            }
            body => unfinished(&item.key, body, effects),
        }
        self.tell_background(effects);
    }

    /// A thread's turn is over: what it left open is told as far as it came, or dropped when the turn completed,
    /// because then another item took its place. Calls stay open: a command may outlive its turn.
    pub(super) fn settle_items(&mut self, thread: &str, completed: bool, effects: &mut Effects) {
        let (settled, open) = std::mem::take(&mut self.items)
            .into_iter()
            .partition(|item| item.thread == thread && !matches!(item.body, Body::Tool { .. }));
        self.items = open;
        let settled: Vec<OpenItem> = settled;
        if completed {
            return;
        }
        let speaker = (!self.is_own(thread)).then(|| ChildRunId(thread.to_owned()));
        effects.emit.speak_for(speaker);
        for item in settled {
            unfinished(&item.key, item.body, effects);
        }
        effects.emit.speak_for(None);
    }

    pub(super) fn threads_with_items(&self) -> Vec<String> {
        let mut threads: Vec<_> = self.items.iter().map(|item| item.thread.clone()).collect();
        threads.sort();
        threads.dedup();
        threads
    }
}

fn message_body(kind: &str) -> Option<Body> {
    match kind {
        "agentMessage" | "plan" => Some(Body::Text(Stream::default())),
        "reasoning" => Some(Body::Reasoning {
            summary: Stream::default(),
            raw: Stream::default(),
        }),
        _ => None,
    }
}

fn summary_key(key: &str) -> String {
    format!("{key}/summary")
}

fn raw_key(key: &str) -> String {
    format!("{key}/raw")
}

/// A message, unless there is nothing in it: reasoning often comes encrypted only.
fn message(
    kind: MessageKind,
    key: &str,
    text: String,
    truncated: bool,
    native: Option<Json>,
    effects: &mut Effects,
) {
    if !text.is_empty() {
        effects.emit.message(kind, key, text, truncated, native);
    }
}

/// Tells the text of a message that will not be finished.
fn unfinished(key: &str, body: Body, effects: &mut Effects) {
    match body {
        Body::Text(stream) => {
            message(MessageKind::Text, key, stream.text, true, None, effects);
        }
        Body::Reasoning { summary, raw } => {
            let kind = MessageKind::Reasoning;
            message(kind, &summary_key(key), summary.text, true, None, effects);
            message(kind, &raw_key(key), raw.text, true, None, effects);
        }
        Body::Tool { .. } => {}
    }
}

/// The files that a patch changed, once it is applied.
fn file_changes(key: &str, item: &Fields<'_>, effects: &mut Effects) {
    if item.text("status").as_deref() != Some("completed") {
        return;
    }
    for change in item.list("changes").into_iter().map(Fields::of) {
        let path = change.text("path").unwrap_or_default();
        let how = change.fields("kind");
        let kind = how.text("type").unwrap_or_default();
        let diff = change.text("diff").map(|diff| tools::unified(&kind, &diff));
        let emit = &mut effects.emit;
        match (kind.as_str(), how.text("move_path")) {
            ("add", _) => emit.file_changed(key, &path, FileChangeKind::Added, diff),
            ("delete", _) => emit.file_changed(key, &path, FileChangeKind::Deleted, diff),
            (_, Some(target)) => {
                emit.file_changed(key, &path, FileChangeKind::Deleted, None);
                emit.file_changed(key, &target, FileChangeKind::Added, diff);
            }
            (_, None) => emit.file_changed(key, &path, FileChangeKind::Modified, diff),
        }
    }
}
