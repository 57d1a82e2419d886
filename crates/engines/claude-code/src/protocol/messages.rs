//! What is said: messages, reasoning, tool calls and results, of the conversation and of its children.

use astrabox_engine::line::Effects;
use astrabox_types::{ChildRunId, DeltaChannel, Json, MessageKind};

use super::state::{Block, BlockKind, ClaudeProtocol, OpenCall, Turn};
use super::tools;
use super::wire::{Fields, verbatim};

/// The model name of messages that the program writes itself.
const SYNTHETIC: &str = "<synthetic>";
/// The tools whose question to a person leaves out what they were called with.
const KEPT_INPUT: &str = "ExitPlanMode";

impl BlockKind {
    fn channel(self) -> DeltaChannel {
        match self {
            Self::Text => DeltaChannel::Text,
            Self::Reasoning => DeltaChannel::Reasoning,
        }
    }

    fn message(self) -> MessageKind {
        match self {
            Self::Text => MessageKind::Text,
            Self::Reasoning => MessageKind::Reasoning,
        }
    }
}

impl ClaudeProtocol {
    /// Whose message this is: the child run's id, or none for the conversation's own. What follows is marked so.
    fn speaker(&self, fields: &Fields<'_>, effects: &mut Effects) -> Option<String> {
        let parent = fields.text("parent_tool_use_id")?;
        let child = fields
            .text("agent_id")
            .or_else(|| self.task_of_call(&parent))
            .unwrap_or(parent);
        effects.emit.speak_for(Some(ChildRunId(child.clone())));
        Some(child)
    }

    /// Output of the conversation itself comes: it belongs to the turn that runs, or begins one that answers no
    /// input. Whether there is a turn; there is none for what comes after everything is over.
    pub(super) fn speaks(&mut self) -> bool {
        if self.turn.is_none() && self.working {
            self.turn = Some(Turn::default());
        }
        self.turn.is_some()
    }

    /// Something after the end of its turn. It is kept, and opens nothing.
    fn late(&mut self, what: &str, line: &str, effects: &mut Effects) {
        let message = format!("{what} of a turn that does not run");
        self.note("late_event", message, Some(verbatim(line)), effects);
    }

    pub(super) fn stream_event(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        // Children are told by whole messages alone.
        if self.speaker(fields, effects).is_some() {
            return;
        }
        let event = fields.fields("event");
        match event.text("type").as_deref() {
            // The one before was given up if it is not done: it is said anew.
            Some("message_start") => self.stream.clear(),
            Some("content_block_start") => self.block_begins(&event, line, effects),
            Some("content_block_delta") => self.block_piece(&event, effects),
            Some("content_block_stop" | "message_delta" | "message_stop" | "ping") => {}
            kind => {
                let message = format!("stream_event/{}", kind.unwrap_or_default());
                self.note("unknown_event", message, Some(verbatim(line)), effects);
            }
        }
    }

    fn block_begins(&mut self, event: &Fields<'_>, line: &str, effects: &mut Effects) {
        let kind = match event.fields("content_block").text("type").as_deref() {
            Some("text") => BlockKind::Text,
            Some("thinking") => BlockKind::Reasoning,
            _ => return,
        };
        if !self.speaks() {
            return self.late("a message", line, effects);
        }
        let key = self.mint("");
        self.stream.push(Block {
            index: event.number("index").unwrap_or_default(),
            key,
            kind,
            told: 0,
            text: String::new(),
        });
    }

    fn block_piece(&mut self, event: &Fields<'_>, effects: &mut Effects) {
        let index = event.number("index").unwrap_or_default();
        let delta = event.fields("delta");
        let piece = delta.text("text").or_else(|| delta.text("thinking"));
        let (Some(piece), Some(block)) = (
            piece,
            self.stream.iter_mut().find(|block| block.index == index),
        ) else {
            // The input of a call is told with the call.
            return;
        };
        let offset = block.take(&piece);
        let channel = block.kind.channel();
        effects.emit.delta(channel, &block.key, offset, &piece);
    }

    /// A whole content block; 2.1.328 writes one a message.
    pub(super) fn assistant(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let child = self.speaker(fields, effects);
        let message = fields.fields("message");
        if message.text("model").as_deref() == Some(SYNTHETIC) {
            // An error of the model's endpoint in words; the result has them too.
            let text = message.list("content").into_iter().map(Fields::of);
            let text: Vec<_> = text.filter_map(|block| block.text("text")).collect();
            let topic = "program_message";
            return self.note(topic, text.join("\n"), Some(verbatim(line)), effects);
        }
        if child.is_none() && !self.speaks() {
            return self.late("a message", line, effects);
        }
        let aborted = fields.flag("aborted") == Some(true);
        for raw in message.list("content") {
            let block = Fields::of(raw);
            match block.text("type").as_deref() {
                Some("text") => {
                    let text = block.text("text").unwrap_or_default();
                    self.said(
                        BlockKind::Text,
                        child.is_none(),
                        text,
                        aborted,
                        line,
                        effects,
                    );
                }
                Some("thinking") => {
                    let text = block.text("thinking").unwrap_or_default();
                    let own = child.is_none();
                    self.said(BlockKind::Reasoning, own, text, aborted, line, effects);
                }
                // Nobody can read it.
                Some("redacted_thinking") => {}
                // A tool that the model's endpoint runs itself has its result beside it.
                Some("tool_use" | "server_tool_use" | "mcp_tool_use") => {
                    self.called(child.as_deref(), &block, raw, effects);
                }
                Some(kind) if kind.ends_with("_tool_result") => {
                    let output = block.json("content");
                    self.returned(child.as_deref(), &block, output, None, raw, effects);
                }
                kind => {
                    let message = format!("content block {}", kind.unwrap_or_default());
                    self.note("unknown_event", message, Some(verbatim(line)), effects);
                }
            }
        }
    }

    fn said(
        &mut self,
        kind: BlockKind,
        own: bool,
        text: String,
        truncated: bool,
        line: &str,
        effects: &mut Effects,
    ) {
        let streamed = self
            .stream
            .iter()
            .position(|block| own && block.kind == kind);
        let key = match streamed {
            Some(at) => self.stream.remove(at).key,
            None => self.mint(""),
        };
        // The model's thinking often comes encrypted only.
        if !text.is_empty() {
            let native = Some(verbatim(line));
            let kind = kind.message();
            effects.emit.message(kind, &key, text, truncated, native);
        }
    }

    fn called(
        &mut self,
        child: Option<&str>,
        block: &Fields<'_>,
        raw: &str,
        effects: &mut Effects,
    ) {
        let id = block.text("id").unwrap_or_default();
        let name = block.text("name").unwrap_or_default();
        let input = block.json("input").unwrap_or_else(|| verbatim("{}"));
        let key = self.mint(&id);
        self.calls
            .retain(|call| call.id != id || call.child.as_deref() != child);
        self.calls.push(OpenCall {
            child: child.map(str::to_owned),
            id,
            key: key.clone(),
            name: name.clone(),
            input: (name == KEPT_INPUT).then(|| input.clone()),
        });
        effects
            .emit
            .tool_call(&key, &name, input, Some(verbatim(raw)));
    }

    /// Tool results, and what the program adds to the conversation by itself.
    pub(super) fn user(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let child = self.speaker(fields, effects);
        let message = fields.fields("message");
        for raw in message.list("content") {
            let block = Fields::of(raw);
            // Texts are what a client said, what a child was told, and "interrupted by user".
            if block.text("type").as_deref() == Some("tool_result") {
                let output = block.json("content");
                let detail = fields.raw("tool_use_result");
                self.returned(child.as_deref(), &block, output, detail, line, effects);
            }
        }
        // The output of a command of the program's own, as `/compact`, has no other message.
        if let Some(text) = message.text("content")
            && let Some(output) = tools::command_output(&text)
        {
            self.note("program_message", output, Some(verbatim(line)), effects);
        }
    }

    fn returned(
        &mut self,
        child: Option<&str>,
        block: &Fields<'_>,
        output: Option<Json>,
        detail: Option<&str>,
        line: &str,
        effects: &mut Effects,
    ) {
        let id = block.text("tool_use_id").unwrap_or_default();
        let known = self
            .calls
            .iter()
            .position(|call| call.id == id && call.child.as_deref() == child);
        let Some(at) = known else {
            return self.late("a tool result", line, effects);
        };
        let call = self.calls.remove(at);
        let failed = block.flag("is_error") == Some(true);
        let output = output.unwrap_or_else(|| verbatim("\"\""));
        let native = Some(verbatim(line));
        effects
            .emit
            .tool_result(&call.key, &call.name, output, failed, native);
        if let Some(change) = detail
            .filter(|_| !failed)
            .and_then(|detail| tools::file_change(&call.name, detail))
        {
            effects
                .emit
                .file_changed(&call.key, &change.path, change.kind, change.diff);
        }
    }

    /// A tool's result was too long to read: what is known of it is told, marked as cut.
    pub(super) fn call_cut(&mut self, id: &str, length: u64, effects: &mut Effects) {
        let Some(at) = self.calls.iter().position(|call| call.id == id) else {
            return;
        };
        let call = self.calls.remove(at);
        effects.emit.speak_for(call.child.map(ChildRunId));
        let output = tools::cut_output(length);
        effects
            .emit
            .tool_result(&call.key, &call.name, output, false, None);
    }

    /// What is being said is over. What is not complete is told as far as it came when `cut`, and else was said
    /// again in another place.
    pub(super) fn settle_stream(&mut self, cut: bool, effects: &mut Effects) {
        for block in std::mem::take(&mut self.stream) {
            if cut && !block.text.is_empty() {
                let kind = block.kind.message();
                effects
                    .emit
                    .message(kind, &block.key, block.text, true, None);
            }
        }
    }
}
