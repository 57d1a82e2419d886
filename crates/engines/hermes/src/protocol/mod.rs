//! What the hosted program has beyond ACP.

#[cfg(test)]
mod recordings;
mod runs;
#[cfg(test)]
mod tests;

use astrabox_acp_protocol::wire::{Answer, Fields, RpcError};
use astrabox_acp_protocol::{Conversation, Dialect, Tokens, UsageScope};
use astrabox_engine::Result;
use astrabox_engine::line::{Effects, Powers};
use astrabox_types::{ChildRunId, Json, Presentation};
use serde::{Deserialize, Serialize};

/// The error with which the host answers a prompt whose turn failed.
const TURN_FAILED: i64 = -32051;

/// Hermes Agent in its host.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Hosted;

impl Dialect for Hosted {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: true,
    };

    /// The host counts what the conversation and its sub-agents used, also in earlier processes.
    const USAGE: UsageScope = UsageScope::Conversation;

    fn on_notification(
        &mut self,
        method: &str,
        params: &Fields<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) -> bool {
        match method {
            "_astrabox/used_before" => {
                if let Some(tokens) = Tokens::of(params) {
                    conversation.used_before(tokens);
                }
            }
            "_astrabox/run" => runs::told(params, conversation, effects),
            "_astrabox/unsaved" => {
                let message = params.text("message").unwrap_or_default();
                conversation.note("native_state_unsaved", message, None, effects);
            }
            "_astrabox/left" => {
                let calls = params.texts("calls").join(", ");
                let message =
                    format!("calls without a result, which the program fills in: {calls}");
                conversation.note("transcript_repaired", message, None, effects);
            }
            _ => return false,
        }
        true
    }

    fn on_prompt_answer(
        &mut self,
        answer: &Answer<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) {
        let told = answer.as_ref().map(|result| of_host(&Fields::of(result)));
        let compactions = told.ok().and_then(|told| told.number("compactions"));
        if compactions.is_some_and(|count| count > 0) {
            let key = conversation.mint("");
            effects.emit.context_compacted(&key, None);
        }
    }

    fn failure(&self, error: &RpcError) -> Option<&'static str> {
        (error.code == TURN_FAILED).then_some("model_error")
    }

    fn tool_name(&self, call: &Fields<'_>) -> Option<String> {
        of_host(call).text("tool")
    }

    /// The host tells what Hermes says of a dangerous command. Where Hermes asks by itself, it tells of a command why it
    /// asks, and of an edit which tool edits.
    fn present(&self, request: &Fields<'_>, presentation: &mut Presentation) {
        let Presentation::ToolApproval {
            tool,
            input,
            reason,
            ..
        } = presentation
        else {
            return;
        };
        let call = request.fields("toolCall");
        *reason = of_host(&call).text("reason");
        let told = call.fields("rawInput");
        if let (Some(name), Some(arguments)) = (told.text("tool"), told.json("arguments")) {
            (*tool, *input) = (name, arguments);
        } else if let (Some(why), Some(command)) = (told.text("description"), told.json("command"))
        {
            *reason = Some(why);
            *input = Json::from(serde_json::json!({ "command": command.value() }));
        }
    }

    fn stop_child(
        &mut self,
        run: &ChildRunId,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) -> Result<()> {
        runs::stop(run, conversation, effects)
    }
}

/// What the host adds to a message.
fn of_host<'a>(message: &Fields<'a>) -> Fields<'a> {
    message.fields("_meta").fields("astrabox")
}
