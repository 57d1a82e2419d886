//! What the model says.

use astrabox_engine::line::Effects;
use astrabox_types::{DeltaChannel, MessageKind};

use super::output::text_of;
use super::state::{Block, BlockKind, PiProtocol, Said, Tokens};
use super::wire::{Fields, verbatim};

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

impl PiProtocol {
    pub(super) fn message_begins(&mut self, fields: &Fields<'_>, _effects: &mut Effects) {
        let message = fields.fields("message");
        match message.text("role").as_deref() {
            // The one before was given up if it is not done: it is said anew.
            Some("assistant") => self.stream.clear(),
            // What the model is told at the beginning, and whenever it changes.
            Some("system") => {
                for tool in message.list("toolsRemoved").into_iter().map(Fields::of) {
                    self.tools.remove(&tool.text("name").unwrap_or_default());
                }
                let added = message.list("toolsAdded").into_iter().map(Fields::of);
                self.tools
                    .extend(added.filter_map(|tool| tool.text("name")));
            }
            _ => {}
        }
    }

    pub(super) fn message_moves(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let event = fields.fields("assistantMessageEvent");
        let index = event.number("contentIndex").unwrap_or_default();
        match event.text("type").as_deref() {
            Some("text_start") => self.block_begins(index, BlockKind::Text, line, effects),
            Some("thinking_start") => self.block_begins(index, BlockKind::Reasoning, line, effects),
            Some("text_delta" | "thinking_delta") => {
                let piece = event.text("delta").unwrap_or_default();
                let block = self.stream.iter_mut().find(|block| block.index == index);
                if let Some(block) = block {
                    let offset = block.take(&piece);
                    let channel = block.kind.channel();
                    effects.emit.delta(channel, &block.key, offset, &piece);
                }
            }
            // The whole message tells the text, and the call's begin its input.
            Some(
                "text_end" | "thinking_end" | "toolcall_start" | "toolcall_delta" | "toolcall_end"
                | "start" | "done" | "error",
            ) => {}
            kind => {
                let message = format!("message_update/{}", kind.unwrap_or_default());
                self.note("unknown_event", message, Some(verbatim(line)), effects);
            }
        }
    }

    fn block_begins(&mut self, index: u64, kind: BlockKind, line: &str, effects: &mut Effects) {
        if self.turn.is_none() {
            return self.late("a message", line, effects);
        }
        let key = self.mint("");
        self.stream.push(Block {
            index,
            key,
            kind,
            told: 0,
            text: String::new(),
        });
    }

    /// Something after the end of its turn. It is kept, and opens nothing.
    pub(super) fn late(&mut self, what: &str, line: &str, effects: &mut Effects) {
        let message = format!("{what} of a turn that does not run");
        self.note("late_event", message, Some(verbatim(line)), effects);
    }

    pub(super) fn message_ends(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let message = fields.fields("message");
        match message.text("role").as_deref() {
            Some("assistant") => self.model_said(&message, line, effects),
            // What we said, what the model is told beside it, and what the tools returned, which was told.
            Some("user" | "system" | "toolResult") => {}
            // Those of extensions, and notes of the program in its own conversation.
            role => {
                let text = message.text("content").unwrap_or_else(|| text_of(&message));
                let text = format!("{}: {text}", role.unwrap_or_default());
                self.note("program_message", text, Some(verbatim(line)), effects);
            }
        }
    }

    fn model_said(&mut self, message: &Fields<'_>, line: &str, effects: &mut Effects) {
        if self.turn.is_none() {
            return self.late("a message", line, effects);
        }
        self.count(&message.fields("usage"), line, effects);
        let said = said(message);
        if !matches!(said, Said::Error(_)) {
            let cut = said != Said::Whole;
            for (index, raw) in message.list("content").into_iter().enumerate() {
                let block = Fields::of(raw);
                match block.text("type").as_deref() {
                    Some("text") => {
                        let text = block.text("text").unwrap_or_default();
                        self.block_said(index, BlockKind::Text, text, cut, line, effects);
                    }
                    Some("thinking") => {
                        let text = block.text("thinking").unwrap_or_default();
                        self.block_said(index, BlockKind::Reasoning, text, cut, line, effects);
                    }
                    // Told when it begins.
                    Some("toolCall") => {}
                    kind => {
                        let message = format!("content block {}", kind.unwrap_or_default());
                        self.note("unknown_event", message, Some(verbatim(line)), effects);
                    }
                }
            }
            // What was heard of a message that was broken off stays, also where the message leaves it out.
            self.settle_stream(cut, effects);
        }
        // After an error the text waits: the model may be asked again, and then says it anew.
        if let Some(turn) = &mut self.turn {
            turn.last = Some(said);
        }
    }

    fn block_said(
        &mut self,
        index: usize,
        kind: BlockKind,
        text: String,
        truncated: bool,
        line: &str,
        effects: &mut Effects,
    ) {
        let streamed = self
            .stream
            .iter()
            .position(|block| block.index == index as u64 && block.kind == kind);
        let key = match streamed {
            Some(at) => self.stream.remove(at).key,
            None => self.mint(""),
        };
        if !text.is_empty() {
            let native = Some(verbatim(line));
            let kind = kind.message();
            effects.emit.message(kind, &key, text, truncated, native);
        }
    }

    fn count(&mut self, usage: &Fields<'_>, line: &str, effects: &mut Effects) {
        let used = tokens(usage);
        if used == Tokens::default() {
            return;
        }
        self.total = self.total.plus(used);
        if let Some(turn) = &mut self.turn {
            turn.used = turn.used.plus(used);
        }
        let key = self.mint("");
        let total = self.total.usage();
        effects.emit.usage(&key, total, Some(verbatim(line)));
    }

    /// What is being said is over. What is not complete is told as far as it came when `cut`.
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

fn said(message: &Fields<'_>) -> Said {
    match message.text("stopReason").as_deref() {
        Some("length") => Said::Cut,
        Some("aborted") => Said::Aborted,
        Some("error") => {
            let error = message.text("errorMessage");
            let unnamed = || "the model did not answer".to_owned();
            Said::Error(
                error
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(unnamed),
            )
        }
        _ => Said::Whole,
    }
}

/// The program counts cached tokens beside the input; they are part of it.
fn tokens(usage: &Fields<'_>) -> Tokens {
    let count = |key| usage.number(key).unwrap_or_default();
    let cached = count("cacheRead");
    Tokens {
        input: count("input")
            .saturating_add(cached)
            .saturating_add(count("cacheWrite")),
        cached,
        output: count("output"),
        reasoning: count("reasoning"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_tokens_are_part_of_the_input() {
        let usage = r#"{"input":10,"output":7,"cacheRead":85,"cacheWrite":5,"reasoning":3,"totalTokens":107}"#;
        let used = tokens(&Fields::of(usage));
        assert_eq!(
            (used.input, used.cached, used.output, used.reasoning),
            (100, 85, 7, 3)
        );
    }

    #[test]
    fn a_message_says_how_it_ended() {
        for (message, expected) in [
            (r#"{"stopReason":"stop"}"#, Said::Whole),
            (r#"{"stopReason":"toolUse"}"#, Said::Whole),
            (r#"{"stopReason":"length"}"#, Said::Cut),
            (
                r#"{"stopReason":"aborted","errorMessage":"x"}"#,
                Said::Aborted,
            ),
            (
                r#"{"stopReason":"error","errorMessage":"401: no"}"#,
                Said::Error("401: no".to_owned()),
            ),
            (
                r#"{"stopReason":"error","errorMessage":""}"#,
                Said::Error("the model did not answer".to_owned()),
            ),
        ] {
            assert_eq!(said(&Fields::of(message)), expected, "{message}");
        }
    }
}
