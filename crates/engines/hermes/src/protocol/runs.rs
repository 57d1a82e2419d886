//! Sub-agents, as the host tells them.

use astrabox_acp_protocol::Conversation;
use astrabox_acp_protocol::wire::Fields;
use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRunId, ChildRunState};
use serde_json::json;

/// How much of a task is its title, characters.
const TITLE: usize = 100;

/// A sub-agent began or ended.
pub(super) fn told(params: &Fields<'_>, conversation: &mut Conversation, effects: &mut Effects) {
    let Some(id) = params.text("run") else {
        return;
    };
    let status = params.text("state").unwrap_or_default();
    let native = Some(params.pick(&["run", "state", "goal"]));
    match state_of(&status) {
        ChildRunState::Running => {
            let goal = params.text("goal");
            let title = goal.map(|goal| goal.chars().take(TITLE).collect());
            let call = params.text("call");
            conversation.child_begins(&id, title, call.as_deref(), native, effects);
        }
        state => conversation.child_ends(&id, state, native, effects),
    }
}

/// Asks the host to stop one.
pub(super) fn stop(
    run: &ChildRunId,
    conversation: &mut Conversation,
    effects: &mut Effects,
) -> Result<()> {
    if !conversation.child_runs(&run.0) {
        let text = format!("no child run `{}` works", run.0);
        return Err(Error::new(ErrorKind::Unsupported, "stop child", text));
    }
    let mut params = conversation.params();
    params.insert("run".to_owned(), json!(run.0));
    conversation.call_own("_astrabox/stop_run", params, "stop_run", effects);
    Ok(())
}

/// Hermes' words for how a sub-agent stands.
fn state_of(status: &str) -> ChildRunState {
    match status {
        "running" => ChildRunState::Running,
        "completed" => ChildRunState::Completed,
        "interrupted" => ChildRunState::Stopped,
        _ => ChildRunState::Failed,
    }
}
