//! What one program has beyond ACP.

use astrabox_engine::line::{Effects, Powers};
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRunId, InteractionAnswer, Presentation};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::settings::Wish;
use crate::state::{Conversation, Speaker, UsageScope};
use crate::wire::{Answer, Fields, RpcError};

/// What one program has beyond ACP, and what it leaves open. Its state is part of every checkpoint (EN8), so it
/// holds what is open and no more. Every hook has a default: a program that only speaks ACP needs none.
pub trait Dialect: Serialize + DeserializeOwned + Send + 'static {
    /// Which optional powers there are.
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: false,
    };

    /// What the figures in the answer to a prompt count.
    const USAGE: UsageScope = UsageScope::Turn;

    /// Whether the program tells the end of what it does unasked. Where it does, such output is a turn without an
    /// input, which the dialect ends by [`Conversation::end_own_turn`]. Where it does not, nobody could say when that
    /// turn ended (EN9), so such output is kept for people as a diagnostic.
    const OWN_TURNS: bool = false;

    /// Adds to the parameters of `initialize`, as capabilities of ours or `_meta`.
    fn initialize(&self, _params: &mut Map<String, Value>) {}

    /// Reads the answer to `initialize`.
    ///
    /// # Errors
    /// In words, when the program is not what it should be.
    fn initialized(&mut self, _result: &Fields<'_>) -> std::result::Result<(), String> {
        Ok(())
    }

    /// Adds to the parameters of `session/new`, `session/load` or `session/resume`.
    fn open(&self, _method: &str, _params: &mut Map<String, Value>) {}

    /// Reads the answer to these, and tells what to set before everything else, as the model.
    ///
    /// # Errors
    /// In words, when the program does not offer what the agent wants.
    fn opened(&mut self, _result: &Fields<'_>) -> std::result::Result<Vec<Wish>, String> {
        Ok(Vec::new())
    }

    /// Adds to the parameters of `session/prompt`.
    fn prompt(&mut self, _params: &mut Map<String, Value>) {}

    /// A `session/update` of a bound conversation. Whether it is dealt with; else it is treated as ACP says.
    fn on_update(
        &mut self,
        _update: &Update<'_>,
        _conversation: &mut Conversation,
        _effects: &mut Effects,
    ) -> bool {
        false
    }

    /// A notification that ACP does not have. Whether it is dealt with; else it is kept as a diagnostic (EN11).
    fn on_notification(
        &mut self,
        _method: &str,
        _params: &Fields<'_>,
        _conversation: &mut Conversation,
        _effects: &mut Effects,
    ) -> bool {
        false
    }

    /// A request that ACP does not have, with the program's id of it, verbatim. Whether it is answered, or will be;
    /// else it is answered "method not found" (EN13).
    fn on_request(
        &mut self,
        _id: &str,
        _method: &str,
        _params: &Fields<'_>,
        _conversation: &mut Conversation,
        _effects: &mut Effects,
    ) -> bool {
        false
    }

    /// The answer to a request that the dialect made with [`Conversation::call_own`].
    fn on_answer(
        &mut self,
        _tag: &str,
        _answer: Answer<'_>,
        _conversation: &mut Conversation,
        _effects: &mut Effects,
    ) {
    }

    /// Reads the answer to `session/prompt` before the turn ends by it.
    fn on_prompt_answer(
        &mut self,
        _answer: &Answer<'_>,
        _conversation: &mut Conversation,
        _effects: &mut Effects,
    ) {
    }

    /// The stable name of what failed, where the program answered a prompt with an error of its own.
    fn failure(&self, _error: &RpcError) -> Option<&'static str> {
        None
    }

    /// A turn ended, or the process did: what was open in it is over.
    fn turn_ended(&mut self) {}

    /// The process ended, and with it whatever ran beside the turn.
    fn exited(&mut self, _effects: &mut Effects) {}

    /// The native name of a tool, where the program has another place for it than `name`.
    fn tool_name(&self, _call: &Fields<'_>) -> Option<String> {
        None
    }

    /// Shows a request for permission in the program's own manner. `request` is the request's parameters.
    fn present(&self, _request: &Fields<'_>, _presentation: &mut Presentation) {}

    /// What a question that the dialect asked by [`Conversation::ask`] is answered with.
    ///
    /// # Errors
    /// `InvalidAnswer` when the answer does not fit.
    fn answer(&mut self, native_id: &str, _answer: &InteractionAnswer) -> Result<Value> {
        let text = format!("no open question has the id `{native_id}`");
        Err(Error::new(ErrorKind::InvalidAnswer, "answer", text))
    }

    /// Stops a child run: a child session of ACP, unless the program has others. Called only when
    /// `POWERS.child_run_control`.
    ///
    /// # Errors
    /// When there is no such run.
    fn stop_child(
        &mut self,
        run: &ChildRunId,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) -> Result<()> {
        conversation.stop_session(run, effects)
    }

    /// The tools that the program told of.
    fn tools(&self) -> Vec<String> {
        Vec::new()
    }

    /// The program shall end by itself, if it has another way than the end of its standard input.
    fn close(&mut self, _conversation: &mut Conversation, _effects: &mut Effects) {}
}

/// One `session/update`.
pub struct Update<'a> {
    /// What kind of update.
    pub kind: &'a str,
    /// The members of `update`.
    pub fields: &'a Fields<'a>,
    /// `update`, verbatim.
    pub raw: &'a str,
    /// The session that it is about, when it is not the conversation's own.
    pub child: Speaker,
}
