//! Tasks: sub-agents and commands in the background, each a child run by the program's own id.

use astrabox_engine::line::Effects;
use astrabox_engine::{Error, ErrorKind, Result};
use astrabox_types::{ChildRun, ChildRunId, ChildRunState};
use serde_json::json;

use super::state::{Asked, ClaudeProtocol, Task};
use super::wire::{Fields, verbatim};

/// How many ended tasks are remembered, for messages of theirs that come late.
const REMEMBERED: usize = 256;

impl ClaudeProtocol {
    pub(super) fn task_started(&mut self, fields: &Fields<'_>, line: &str, effects: &mut Effects) {
        let Some(id) = fields.text("task_id") else {
            return;
        };
        if self.tasks.len() >= REMEMBERED {
            self.tasks.retain(|_, task| task.is_running());
        }
        let tool_use = fields.text("tool_use_id");
        let call = tool_use.as_ref().and_then(|id| {
            let call = self.calls.iter().find(|call| call.id == *id)?;
            Some(call.key.clone())
        });
        let task = Task {
            state: ChildRunState::Running,
            title: fields.text("description"),
            call,
            tool_use,
        };
        self.tasks.insert(id.clone(), task);
        self.tell_task(&id, Some(line), effects);
    }

    /// A task ended. Its status is told twice, in two sets of words.
    pub(super) fn task_moved(
        &mut self,
        fields: &Fields<'_>,
        status: Option<&str>,
        line: &str,
        effects: &mut Effects,
    ) {
        let id = fields.text("task_id").unwrap_or_default();
        let state = match status {
            Some("completed") => ChildRunState::Completed,
            Some("failed" | "error") => ChildRunState::Failed,
            Some("killed" | "stopped" | "cancelled") => ChildRunState::Stopped,
            _ => return,
        };
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_running()) else {
            return;
        };
        task.state = state;
        self.calls
            .retain(|call| call.child.as_deref() != Some(id.as_str()));
        self.withdraw_requests(Some(&id), "the child run has ended", effects);
        self.tell_task(&id, Some(line), effects);
    }

    /// The program lists what runs in the background.
    pub(super) fn tasks_listed(&mut self, fields: &Fields<'_>, effects: &mut Effects) {
        let tasks = fields.list("tasks").into_iter().map(Fields::of);
        self.background = tasks.filter_map(|task| task.text("task_id")).collect();
        self.tell_background(effects);
    }

    fn tell_task(&self, id: &str, native: Option<&str>, effects: &mut Effects) {
        let Some(task) = self.tasks.get(id) else {
            return;
        };
        let run = ChildRun {
            id: ChildRunId(id.to_owned()),
            state: task.state,
            title: task.title.clone(),
            call_id: task.call.clone(),
        };
        effects.emit.child_run(run, native.map(verbatim));
    }

    /// The task that a call began.
    pub(super) fn task_of_call(&self, tool_use: &str) -> Option<String> {
        let found = self
            .tasks
            .iter()
            .find(|(_, task)| task.tool_use.as_deref() == Some(tool_use));
        found.map(|(id, _)| id.clone())
    }

    /// Tells when work goes on beside or without a turn, and when the last of it is done: what the program has to say
    /// of it is a turn of its own, which comes before it rests.
    pub(super) fn tell_background(&mut self, effects: &mut Effects) {
        if self.background_told
            && self.background.is_empty()
            && self.turn.is_none()
            && !self.working
        {
            self.background_told = false;
            effects.emit.background_closed();
        } else if !self.background_told && !self.background.is_empty() {
            self.background_told = true;
            effects.emit.background_opened();
        }
    }

    pub(super) fn stop_task(&mut self, run: &ChildRunId, effects: &mut Effects) -> Result<()> {
        let running = self.tasks.get(&run.0).is_some_and(Task::is_running);
        if !running {
            let text = format!("no child run `{}` is running", run.0);
            return Err(Error::new(ErrorKind::Unsupported, "stop child", text));
        }
        let task = run.0.clone();
        let request = json!({"subtype": "stop_task", "task_id": task});
        self.request(request, Asked::StopTask { task }, effects);
        Ok(())
    }

    /// The program has ended, and every task with it.
    pub(super) fn tasks_ended(&mut self, effects: &mut Effects) {
        let running: Vec<_> = self
            .tasks
            .iter_mut()
            .filter(|(_, task)| task.is_running())
            .map(|(id, task)| {
                task.state = ChildRunState::Stopped;
                id.clone()
            })
            .collect();
        for id in running {
            self.tell_task(&id, None, effects);
        }
        self.background.clear();
    }
}

impl Task {
    pub(super) fn is_running(&self) -> bool {
        self.state == ChildRunState::Running
    }
}
