//! `session/update`: what the program tells of a conversation.

use astrabox_engine::line::Effects;

use crate::dialect::{Dialect, Update};
use crate::protocol::AcpProtocol;
use crate::settings::{Modes, SetBy};
use crate::state::{Asked, Conversation, Phase, Saying, Speaker};
use crate::wire::{Fields, verbatim};

/// Updates that are left out on purpose: they are about parts of the program that the platform does not use.
/// Everything else that is not known is kept (EN11).
const LEFT_OUT: &[&str] = &[
    // The program's own commands, and its title for the conversation.
    "available_commands_update",
    "session_info_update",
    // What sessions say to each other; each tells what it says to people.
    "session_message",
    "session_message_chunk",
    // Pieces of what `compaction_update` tells.
    "compaction_summary_chunk",
];

impl<D: Dialect> AcpProtocol<D> {
    pub(crate) fn updated(&mut self, params: &Fields<'_>, line: &str, effects: &mut Effects) {
        let conversation = &mut self.conversation;
        let Some(raw) = params.raw("update") else {
            let message = "session/update without an update";
            return conversation.note("unknown_event", message, Some(verbatim(line)), effects);
        };
        let fields = Fields::of(raw);
        let kind = fields.text("sessionUpdate").unwrap_or_default();
        if let Phase::Opening { replays, .. } = conversation.phase {
            // What was said before is in the journal.
            if !replays {
                conversation.state_told(&kind, &fields, effects);
            }
            return;
        }
        let session = params.text("sessionId");
        let child = session.filter(|session| !conversation.is_own(Some(session)));
        let update = Update {
            kind: &kind,
            fields: &fields,
            raw,
            child,
        };
        if self.dialect.on_update(&update, conversation, effects) {
            return;
        }
        match kind.as_str() {
            "agent_message_chunk" => conversation.chunk(Saying::Text, &update, effects),
            "agent_thought_chunk" => conversation.chunk(Saying::Reasoning, &update, effects),
            "tool_call" => {
                let name = self.dialect.tool_name(&fields);
                conversation.call_begins(&update, name, effects);
            }
            "tool_call_update" => {
                let name = self.dialect.tool_name(&fields);
                conversation.call_moves(&update, name, effects);
            }
            kind => {
                let known = match &update.child {
                    None => conversation.state_told(kind, &fields, effects),
                    Some(_) => conversation.childs_state_told(kind, &update.child, effects),
                };
                if !known {
                    conversation.other_told(&update, effects);
                }
            }
        }
    }
}

impl Conversation {
    /// A chunk of a message, as ACP has them.
    pub fn chunk(&mut self, saying: Saying, update: &Update<'_>, effects: &mut Effects) {
        let content = update.fields.fields("content");
        let native = update.fields.text("messageId");
        let text = match content.text("type").as_deref() {
            Some("text") => content.text("text").unwrap_or_default(),
            Some("resource_link") => {
                let uri = content.text("uri").unwrap_or_default();
                format!("[{}]({uri})", content.text("name").unwrap_or_default())
            }
            Some("resource") => match content.fields("resource").text("text") {
                Some(text) => text,
                None => return self.not_text(update, effects),
            },
            _ => return self.not_text(update, effects),
        };
        // Some programs begin a message with an empty piece.
        if text.is_empty() {
            return;
        }
        self.piece(&update.child, saying, native.as_deref(), &text, effects);
    }

    fn not_text(&mut self, update: &Update<'_>, effects: &mut Effects) {
        self.speak_for(&update.child, effects);
        let kind = update.fields.fields("content").text("type");
        let message = format!("a message of {}", kind.as_deref().unwrap_or("no type"));
        let native = Some(verbatim(update.raw));
        self.note("message_not_text", message, native, effects);
    }

    /// Something about the state of the program; whether it was that.
    fn state_told(&mut self, kind: &str, fields: &Fields<'_>, effects: &mut Effects) -> bool {
        match kind {
            "current_mode_update" => {
                if let Some(mode) = fields.text("currentModeId") {
                    self.mode_is(mode, effects);
                }
            }
            "config_option_update" => {
                if matches!(self.modes.set_by, SetBy::Option(_)) {
                    let told = Modes::of(fields);
                    self.modes.known = told.known;
                    if let Some(mode) = told.current {
                        self.mode_is(mode, effects);
                    }
                }
            }
            "usage_update" => {
                // The model's figures come when it has answered: what it said is whole.
                self.settle_messages(&None, effects);
                self.context = fields.raw("used").map(|_| fields.pick(&CONTEXT));
            }
            kind if LEFT_OUT.contains(&kind) => {}
            _ => return false,
        }
        true
    }

    /// The same of a child session, whose modes and options are nobody's affair.
    fn childs_state_told(&mut self, kind: &str, child: &Speaker, effects: &mut Effects) -> bool {
        match kind {
            "usage_update" => self.settle_messages(child, effects),
            "current_mode_update" | "config_option_update" => {}
            kind => return LEFT_OUT.contains(&kind),
        }
        true
    }

    fn mode_is(&mut self, mode: String, effects: &mut Effects) {
        if self.modes.current.as_ref() == Some(&mode) {
            return;
        }
        let ours =
            |asked: &Asked| matches!(asked, Asked::SetMode { mode: wanted } if *wanted == mode);
        let asked = self.asked.values().any(ours);
        self.modes.current = Some(mode.clone());
        if !asked && matches!(self.phase, Phase::Bound { .. }) {
            let message = format!("the permission mode is `{mode}` now");
            self.note("permission_mode_changed", message, None, effects);
            effects.emit.permission_mode_changed(&mode);
        }
    }

    fn other_told(&mut self, update: &Update<'_>, effects: &mut Effects) {
        let native = Some(verbatim(update.raw));
        self.speak_for(&update.child, effects);
        match update.kind {
            // Ours, said again.
            "user_message_chunk" if self.in_turn() => {}
            "user_message_chunk" => {
                let content = update.fields.fields("content");
                let message = content.text("text").unwrap_or_default();
                self.note("user_message", message, native, effects);
            }
            "plan" | "plan_update" | "plan_removed" => {
                self.settle_nameless(&update.child, effects);
                self.note("plan", plan(update.fields), native, effects);
            }
            "subagent_update" => self.child_told(update, effects),
            "notice" => {
                let title = update.fields.text("title").unwrap_or_default();
                let message = match update.fields.text("description") {
                    Some(more) => format!("{title}: {more}"),
                    None => title,
                };
                self.note("notice", message, native, effects);
            }
            "compaction_update" => match update.fields.text("status").as_deref() {
                Some("completed") => {
                    let key = self.mint("");
                    effects.emit.context_compacted(&key, native);
                }
                Some("failed") => {
                    let error = update.fields.text("error").unwrap_or_default();
                    self.note("compaction_failed", error, native, effects);
                }
                _ => {}
            },
            kind => self.note("unknown_event", kind, native, effects),
        }
    }

    /// Output of the conversation itself comes: it belongs to the turn that runs, or to none. Whether there is a turn.
    pub(crate) fn speaks(&mut self, effects: &mut Effects) -> bool {
        self.consume(effects);
        self.in_turn()
    }
}

/// What is kept of `usage_update`.
const CONTEXT: [&str; 3] = ["used", "size", "cost"];

/// A plan in words.
fn plan(fields: &Fields<'_>) -> String {
    let inner = fields.fields("plan");
    if let Some(text) = inner.text("content").or_else(|| inner.text("uri")) {
        return text;
    }
    let entries = [fields.list("entries"), inner.list("entries")].concat();
    let lines = entries.into_iter().map(Fields::of).map(|entry| {
        let mark = match entry.text("status").as_deref() {
            Some("completed") => "[x]",
            Some("in_progress") => "[>]",
            _ => "[ ]",
        };
        format!("{mark} {}", entry.text("content").unwrap_or_default())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Something of a turn that does not run. It is kept, and opens nothing.
pub(crate) fn late(
    conversation: &mut Conversation,
    what: &str,
    child: &Speaker,
    raw: &str,
    effects: &mut Effects,
) {
    conversation.speak_for(child, effects);
    let message = format!("{what} of a turn that does not run");
    conversation.note("late_event", message, Some(verbatim(raw)), effects);
}
