//! Child sessions: sub-agents that the program tells of by `subagent_update`.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRun, ChildRunId, ChildRunState, Json};
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
    /// The key of the call that began it.
    call: Option<String>,
    state: ChildRunState,
    /// Whether it can be stopped.
    stops: bool,
}

impl Child {
    fn begun() -> Self {
        Self {
            title: None,
            call: None,
            state: ChildRunState::Running,
            stops: false,
        }
    }
}

impl Conversation {
    /// A child session began, moved or ended.
    pub(crate) fn child_told(&mut self, update: &Update<'_>, effects: &mut Effects) {
        let fields = update.fields;
        let native = Some(verbatim(update.raw));
        let Some(id) = fields.text("sessionId") else {
            return self.note("unknown_event", update.kind, native, effects);
        };
        let child = self.children.entry(id.clone()).or_insert(Child::begun());
        if let Some(title) = fields.text("title") {
            child.title = Some(title);
        }
        if fields.has("capabilities") {
            child.stops = fields.fields("capabilities").raw("cancel").is_some();
        }
        if let Some(state) = state(&fields.fields("state")) {
            child.state = state;
        }
        self.tell_child(id, native, effects);
    }

    /// A child run that the program tells of in words of its own began, with a title and the id of the conversation's
    /// call that began it.
    pub fn child_begins(
        &mut self,
        id: &str,
        title: Option<String>,
        call: Option<&str>,
        native: Option<Json>,
        effects: &mut Effects,
    ) {
        let child = Child {
            title,
            call: call.and_then(|call| self.call_key(&None, call)),
            ..Child::begun()
        };
        self.children.insert(id.to_owned(), child);
        self.tell_child(id.to_owned(), native, effects);
    }

    /// Such a child run ended: what it said is whole, what it called is told, and what it asked needs no answer.
    pub fn child_ends(
        &mut self,
        id: &str,
        state: ChildRunState,
        native: Option<Json>,
        effects: &mut Effects,
    ) {
        if let Some(child) = self.children.get_mut(id) {
            child.state = state;
            self.tell_child(id.to_owned(), native, effects);
            self.children.remove(id);
        }
    }

    /// Whether this child run works.
    #[must_use]
    pub fn child_runs(&self, id: &str) -> bool {
        let child = self.children.get(id);
        child.is_some_and(|child| child.state == ChildRunState::Running)
    }

    fn tell_child(&mut self, id: String, native: Option<Json>, effects: &mut Effects) {
        let Some(child) = self.children.get(&id) else {
            return;
        };
        let run = ChildRun {
            id: ChildRunId(id.clone()),
            state: child.state,
            title: child.title.clone(),
            call_id: child.call.clone(),
        };
        if run.state != ChildRunState::Running {
            self.child_settled(&id, "the child run has ended", effects);
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
                    call_id: child.call,
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
