//! Sub-agents, as the host tells them.

use std::collections::BTreeMap;

use astrabox_acp_protocol::Conversation;
use astrabox_acp_protocol::wire::Fields;
use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRun, ChildRunId, ChildRunState};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How much of a task is its title, characters.
const TITLE: usize = 100;

/// The sub-agents that work, by id.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Runs(BTreeMap<String, Run>);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    title: Option<String>,
    /// The key of the call that began it.
    call: Option<String>,
}

impl Runs {
    /// A sub-agent began or ended.
    pub(super) fn told(
        &mut self,
        params: &Fields<'_>,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) {
        let Some(id) = params.text("run") else {
            return;
        };
        let status = params.text("state").unwrap_or_default();
        let state = state_of(&status);
        let run = if state == ChildRunState::Running {
            let goal = params.text("goal");
            let title = goal.map(|goal| goal.chars().take(TITLE).collect());
            let call = params.text("call");
            let call = call.and_then(|call| conversation.call_key(&None, &call));
            let run = ChildRun {
                id: ChildRunId(id.clone()),
                state,
                title: title.clone(),
                call_id: call.clone(),
            };
            self.0.insert(id, Run { title, call });
            run
        } else {
            conversation.child_ended(&id, "the sub-agent has ended", effects);
            let known = self.0.remove(&id);
            let (title, call_id) = known.map_or((None, None), |run| (run.title, run.call));
            ChildRun {
                id: ChildRunId(id),
                state,
                title,
                call_id,
            }
        };
        let native = params.pick(&["run", "state", "goal"]);
        effects.emit.child_run(run, Some(native));
    }

    /// Asks the host to stop one.
    pub(super) fn stop(
        &self,
        run: &ChildRunId,
        conversation: &mut Conversation,
        effects: &mut Effects,
    ) -> Result<()> {
        if !self.0.contains_key(&run.0) {
            let text = format!("no child run `{}` works", run.0);
            return Err(Error::new(ErrorKind::Unsupported, "stop child", text));
        }
        let mut params = conversation.params();
        params.insert("run".to_owned(), json!(run.0));
        conversation.call_own("_astrabox/stop_run", params, "stop_run", effects);
        Ok(())
    }
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
