//! What an engine's author gives to the suite: a stand-in for the native program.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use astrabox_sandbox::BoxPath;
use bytes::Bytes;

use crate::doubles::Program;

/// A stand-in for an engine's native program, which speaks the native protocol and does what prompts say.
///
/// It is deterministic: the same lines on standard input give the same bytes on standard output. It must not depend
/// on the id of an input but where the native protocol carries it.
pub trait EngineFixture: Send + Sync + 'static {
    /// The program that the adapter starts.
    fn program(&self, quirk: Quirk) -> Option<Program>;

    /// The text of an input upon which the program does this, with `word` in it and in what it does. `None` when the
    /// engine has no such thing.
    fn prompt(&self, deed: Deed, word: &str) -> Option<String>;

    /// The files that a resume of the conversation `native_key` needs in the box.
    fn native_state(&self, _native_key: &str) -> Vec<(BoxPath, Bytes)> {
        Vec::new()
    }
}

/// The stand-ins for linked engines, by the engines' kinds.
#[derive(Clone, Default)]
pub struct EngineFixtures(BTreeMap<String, Arc<dyn EngineFixture>>);

impl EngineFixtures {
    /// The same and one more; of two for one kind, the later.
    #[must_use]
    pub fn with(mut self, kind: &str, fixture: impl EngineFixture) -> Self {
        self.0.insert(kind.to_owned(), Arc::new(fixture));
        self
    }

    /// The one for this kind.
    #[must_use]
    pub fn get(&self, kind: &str) -> Option<Arc<dyn EngineFixture>> {
        self.0.get(kind).cloned()
    }

    /// The kinds that there are stand-ins for.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for EngineFixtures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.kinds()).finish()
    }
}

/// How a program is odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// It is not.
    Faithful,
    /// Asked to resume a conversation, it comes up with another one.
    OtherConversation,
}

/// What a program does upon a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// It answers in pieces, with a whole message that has the word in it, and ends the turn.
    Answer,
    /// It says something and works on until it is interrupted.
    Hold,
    /// It begins to answer and exits in the middle, with a text on standard error.
    Die,
    /// It asks a person, and ends the turn once it is answered.
    Ask,
    /// It has a child run, which says the word, and ends the turn.
    Child,
    /// It says something that no adapter knows, with the word in it, and ends the turn.
    Strange,
    /// It sends a request that no adapter knows, and ends the turn once that is answered.
    Request,
}
