//! Child sessions: sub-agents that the program tells of by `subagent_update`.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRun, ChildRunId, ChildRunState};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::dialect::Update;
use crate::state::Conversation;
use crate::wire::{self, Fields, verbatim};

/// A child session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Child {
    title: Option<String>,
    state: ChildRunState,
    /// Whether it can be stopped.
    stops: bool,
}

impl Conversation {
    /// A child session began, moved or ended.
    pub(crate) fn child_told(&mut self, update: &Update<'_>, effects: &mut Effects) {
        let fields = update.fields;
        let native = Some(verbatim(update.raw));
        let Some(id) = fields.text("sessionId") else {
            return self.note("unknown_event", update.kind, native, effects);
        };
        let child = self.children.entry(id.clone()).or_insert(Child {
            title: None,
            state: ChildRunState::Running,
            stops: false,
        });
        if let Some(title) = fields.text("title") {
            child.title = Some(title);
        }
        if fields.has("capabilities") {
            child.stops = fields.fields("capabilities").raw("cancel").is_some();
        }
        if let Some(state) = state(&fields.fields("state")) {
            child.state = state;
        }
        let run = ChildRun {
            id: ChildRunId(id.clone()),
            state: child.state,
            title: child.title.clone(),
            call_id: None,
        };
        if run.state != ChildRunState::Running {
            let speaker = Some(id);
            self.settle_messages(&speaker, effects);
            effects.emit.speak_for(None);
        }
        effects.emit.child_run(run, native);
        if !self.in_turn() {
            self.tell_background(effects);
        }
    }

    /// Asks the program to stop a child session.
    ///
    /// # Errors
    /// When none runs under this id, or it cannot be stopped.
    pub fn stop_session(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        let runs = |child: &&Child| child.state == ChildRunState::Running && child.stops;
        if self.children.get(&run.0).filter(runs).is_none() {
            let text = format!("no child run `{}` runs that can be stopped", run.0);
            return Err(Error::new(ErrorKind::Unsupported, "stop child", text));
        }
        let params = json!({"sessionId": run.0});
        effects.send(wire::notification("session/cancel", &params));
        Ok(())
    }

    /// Tells when work begins to go on beside the turns, and when it no longer does.
    pub(crate) fn tell_background(&mut self, effects: &mut Effects) {
        let running = |child: &Child| child.state == ChildRunState::Running;
        let open = self.children.values().any(running);
        if open != self.background_told {
            self.background_told = open;
            if open {
                effects.emit.background_opened();
            } else {
                effects.emit.background_closed();
            }
        }
    }

    /// The process is gone, and with it its children.
    pub(crate) fn children_ended(&mut self, effects: &mut Effects) {
        for (id, child) in std::mem::take(&mut self.children) {
            if child.state == ChildRunState::Running {
                let run = ChildRun {
                    id: ChildRunId(id),
                    state: ChildRunState::Stopped,
                    title: child.title,
                    call_id: None,
                };
                effects.emit.child_run(run, None);
            }
        }
        self.tell_background(effects);
    }
}

fn state(state: &Fields<'_>) -> Option<ChildRunState> {
    match state.text("state")?.as_str() {
        "idle" => Some(match state.text("stopReason").as_deref() {
            None | Some("end_turn") => ChildRunState::Completed,
            Some("cancelled") => ChildRunState::Stopped,
            Some(_) => ChildRunState::Failed,
        }),
        _ => Some(ChildRunState::Running),
    }
}
