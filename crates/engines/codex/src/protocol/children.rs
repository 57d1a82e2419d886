//! Sub-agents: each is a thread of its own on the same connection.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRun, ChildRunId, ChildRunState};
use serde_json::json;

use super::state::{Asked, Child, CodexProtocol};
use super::wire::{Fields, plain, verbatim};

/// How long a title made from a prompt is, bytes.
const TITLE: usize = 120;
/// How many ended children are remembered, for their titles should they run again.
const REMEMBERED: usize = 256;

impl CodexProtocol {
    /// A thread tells of itself; the name of a child is here only.
    pub(super) fn thread_started(&mut self, fields: &Fields<'_>) {
        let thread = fields.fields("thread");
        let Some(id) = thread.text("id").filter(|id| !self.is_own(id)) else {
            return;
        };
        let child = self.child(&id);
        if child.title.is_none() {
            child.title = thread.text("agentNickname");
        }
    }

    pub(super) fn child_turn_started(&mut self, thread: &str, turn: String, effects: &mut Effects) {
        self.child(thread).turn = Some(turn);
        self.tell_child(thread, ChildRunState::Running, None, effects);
        self.tell_background(effects);
    }

    pub(super) fn child_turn_completed(
        &mut self,
        thread: &str,
        turn: &Fields<'_>,
        effects: &mut Effects,
    ) {
        let state = match turn.text("status").as_deref() {
            Some("completed") => ChildRunState::Completed,
            Some("interrupted") => ChildRunState::Stopped,
            _ => ChildRunState::Failed,
        };
        self.child(thread).turn = None;
        self.settle_items(thread, state == ChildRunState::Completed, effects);
        self.withdraw_requests(Some(thread), "the turn has ended", effects);
        self.tell_child(thread, state, None, effects);
        self.tell_background(effects);
    }

    /// A call of the first generation of the multi-agent tools has ended.
    pub(super) fn child_call(&mut self, key: &str, item: &Fields<'_>, effects: &mut Effects) {
        let spawned = item.text("tool").as_deref() == Some("spawnAgent");
        let states = item.fields("agentsStates");
        for id in item.texts("receiverThreadIds") {
            if self.is_own(&id) {
                continue;
            }
            let child = self.child(&id);
            if spawned {
                child.call_id = Some(key.to_owned());
                child.title = item
                    .text("prompt")
                    .as_deref()
                    .map(title)
                    .or(child.title.take());
                let state = child.state.unwrap_or(ChildRunState::Running);
                self.tell_child(&id, state, item.raw("agentsStates"), effects);
            }
            let told = states.fields(&id).text("status");
            self.child_told(&id, told.as_deref(), item.raw("agentsStates"), effects);
        }
        self.tell_background(effects);
    }

    /// An item of the second generation of the multi-agent tools.
    pub(super) fn child_activity(&mut self, item: &Fields<'_>, effects: &mut Effects) {
        let Some(id) = item.text("agentThreadId").filter(|id| !self.is_own(id)) else {
            return;
        };
        let path = item.text("agentPath");
        let kind = item.text("kind").unwrap_or_default();
        let child = self.child(&id);
        child.title = child.title.take().or(path);
        if kind == "started" && child.state.is_none() {
            child.call_id = item.text("id");
            self.tell_child(&id, ChildRunState::Running, item.raw("kind"), effects);
        }
        self.child_told(&id, Some(&kind), item.raw("kind"), effects);
        self.tell_background(effects);
    }

    /// What the parent was told of a child. While a turn of the child runs, the child's own events say more.
    fn child_told(
        &mut self,
        id: &str,
        status: Option<&str>,
        native: Option<&str>,
        effects: &mut Effects,
    ) {
        let child = self.child(id);
        if child.turn.is_some() || child.state != Some(ChildRunState::Running) {
            return;
        }
        let state = match status {
            Some("completed") => ChildRunState::Completed,
            Some("errored") => ChildRunState::Failed,
            Some("interrupted" | "shutdown" | "notFound") => ChildRunState::Stopped,
            _ => return,
        };
        self.tell_child(id, state, native, effects);
    }

    fn child(&mut self, id: &str) -> &mut Child {
        if self.children.len() >= REMEMBERED && !self.children.contains_key(id) {
            self.children.retain(|_, child| child.is_running());
        }
        self.children.entry(id.to_owned()).or_default()
    }

    /// Tells where a child stands, if that or what is known of it changed.
    fn tell_child(
        &mut self,
        id: &str,
        state: ChildRunState,
        native: Option<&str>,
        effects: &mut Effects,
    ) {
        let child = self.child(id);
        let fact = (state, child.title.clone(), child.call_id.clone());
        if child.told.as_ref() == Some(&fact) {
            return;
        }
        child.state = Some(state);
        child.told = Some(fact);
        let run = ChildRun {
            id: ChildRunId(id.to_owned()),
            state,
            title: child.title.clone(),
            call_id: child.call_id.clone(),
        };
        effects.emit.child_run(run, native.map(verbatim));
    }

    /// Tells when work goes on beside or without a turn, and when the last of it is done.
    pub(super) fn tell_background(&mut self, effects: &mut Effects) {
        let current = self.turn.as_ref().and_then(|turn| turn.id.as_deref());
        let left = self.children.values().any(Child::is_running)
            || self.items.iter().any(|item| {
                item.is_command()
                    && self.is_own(&item.thread)
                    && Some(item.turn.as_str()) != current
            });
        if self.background && !left {
            self.background = false;
            effects.emit.background_closed();
        } else if !self.background && left {
            self.background = true;
            effects.emit.background_opened();
        }
    }

    pub(super) fn interrupt_child(
        &mut self,
        run: &ChildRunId,
        effects: &mut Effects,
    ) -> Result<()> {
        let turn = self
            .children
            .get(&run.0)
            .and_then(|child| child.turn.clone());
        let Some(turn) = turn else {
            let text = format!("no child run `{}` is running", plain(&run.0));
            return Err(Error::new(ErrorKind::Unsupported, "stop child", text));
        };
        let params = json!({"threadId": run.0, "turnId": turn});
        self.call("turn/interrupt", params, Asked::Nothing, effects);
        Ok(())
    }

    /// The program has ended, and every child with it.
    pub(super) fn children_ended(&mut self, effects: &mut Effects) {
        let running: Vec<_> = self
            .children
            .iter()
            .filter(|(_, child)| child.is_running())
            .map(|(id, _)| id.clone())
            .collect();
        for id in running {
            self.tell_child(&id, ChildRunState::Stopped, None, effects);
        }
    }
}

impl Child {
    pub(super) fn is_running(&self) -> bool {
        self.state == Some(ChildRunState::Running)
    }
}

fn title(prompt: &str) -> String {
    let line = prompt.lines().next().unwrap_or_default();
    line[..line.floor_char_boundary(TITLE)].to_owned()
}
