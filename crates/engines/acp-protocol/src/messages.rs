//! What is said: pieces of messages, and whole ones.

use astrabox_engine::line::Effects;
use astrabox_types::{ChildRunId, Json};

use crate::state::{Conversation, OpenMessage, Saying, Speaker};

/// How long a message may be until it is told as complete and goes on as another (1 MiB): its text is in every
/// checkpoint until then.
const LONGEST: usize = 1 << 20;

impl Conversation {
    /// Marks what follows as this speaker's (EN12).
    pub fn speak_for(&self, child: &Speaker, effects: &mut Effects) {
        effects.emit.speak_for(child.clone().map(ChildRunId));
    }

    /// A piece of a message. `native` is the program's id of the message; a piece with another id, or of another kind,
    /// ends the message before.
    pub fn piece(
        &mut self,
        child: &Speaker,
        saying: Saying,
        native: Option<&str>,
        text: &str,
        effects: &mut Effects,
    ) {
        let late = child.is_none() && !self.speaks(effects);
        let fits = |open: &OpenMessage| {
            open.saying == saying && open.native.as_deref() == native && open.late == late
        };
        self.settle(child, |open| !fits(open), effects);
        let at = match self.messages.iter().position(|open| open.child == *child) {
            Some(at) => at,
            None => {
                let key = self.mint("");
                self.messages.push(OpenMessage {
                    child: child.clone(),
                    saying,
                    native: native.map(str::to_owned),
                    key,
                    text: String::new(),
                    cut: false,
                    late,
                });
                self.messages.len() - 1
            }
        };
        let open = &mut self.messages[at];
        let offset = open.text.len() as u64;
        open.text.push_str(text);
        if !late {
            effects.emit.speak_for(child.clone().map(ChildRunId));
            effects
                .emit
                .delta(saying.channel(), &open.key, offset, text);
        }
        if open.text.len() >= LONGEST {
            self.settle(child, |_| true, effects);
        }
    }

    /// A whole message. Where pieces of it came before, it is told in their place.
    pub fn whole(
        &mut self,
        child: &Speaker,
        saying: Saying,
        native: Option<&str>,
        text: String,
        raw: Option<Json>,
        effects: &mut Effects,
    ) {
        let late = child.is_none() && !self.speaks(effects);
        let same = |open: &OpenMessage| {
            open.child == *child && open.saying == saying && open.native.as_deref() == native
        };
        let streamed = self.messages.iter().position(same);
        let key = match streamed {
            Some(at) => self.messages.remove(at).key,
            None => self.mint(""),
        };
        self.settle(child, |_| true, effects);
        self.speak_for(child, effects);
        if text.is_empty() {
            return;
        }
        if late {
            return self.note("unasked_message", text, raw, effects);
        }
        effects
            .emit
            .message(saying.message(), &key, text, false, raw);
    }

    /// Gives up what was begun of this speaker's messages: it is said anew.
    pub fn forget_pieces(&mut self, child: &Speaker) {
        self.messages.retain(|open| open.child != *child);
    }

    /// Something else of this speaker comes, so what was being said is complete.
    pub fn settle_messages(&mut self, child: &Speaker, effects: &mut Effects) {
        self.settle(child, |_| true, effects);
    }

    /// The same for messages that have no id, and could not be told from one that follows.
    pub(crate) fn settle_nameless(&mut self, child: &Speaker, effects: &mut Effects) {
        self.settle(child, |open| open.native.is_none(), effects);
    }

    /// Everything that is being said ends; `cut` when it is not complete.
    pub(crate) fn settle_all(&mut self, cut: bool, effects: &mut Effects) {
        for mut open in std::mem::take(&mut self.messages) {
            open.cut |= cut;
            self.tell(open, effects);
        }
        effects.emit.speak_for(None);
    }

    /// A piece was too long to read.
    pub(crate) fn messages_cut(&mut self, child: &Speaker) {
        for open in self.messages.iter_mut().filter(|open| open.child == *child) {
            open.cut = true;
        }
    }

    fn settle(
        &mut self,
        child: &Speaker,
        ends: impl Fn(&OpenMessage) -> bool,
        effects: &mut Effects,
    ) {
        let ended: Vec<_> = self
            .messages
            .extract_if(.., |open| open.child == *child && ends(open))
            .collect();
        for open in ended {
            self.tell(open, effects);
        }
    }

    fn tell(&mut self, open: OpenMessage, effects: &mut Effects) {
        if open.text.is_empty() {
            return;
        }
        self.speak_for(&open.child, effects);
        if open.late {
            return self.note("unasked_message", open.text, None, effects);
        }
        let kind = open.saying.message();
        effects
            .emit
            .message(kind, &open.key, open.text, open.cut, None);
    }
}
