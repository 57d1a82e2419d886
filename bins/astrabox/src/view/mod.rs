//! What people see of a session while they follow it: the answer, and beside it what the agent does. With `--json`,
//! everything as JSON lines.

mod diff;
mod style;
mod tool;

use std::collections::{HashMap, HashSet};
use std::io::{IsTerminal as _, Write as _};

use astrabox_client::v1;
use astrabox_client::v1::event::Payload;
use serde_json::json;

use crate::out::{Out, enum_name, one_line};
use crate::session::{answer_text, question_text, usage_text};
use style::{Style, is_dumb, printable};
pub(crate) use tool::whole as whole_input;

/// Characters of a line beside the answer.
const LINE: usize = 200;
/// Lines of a tool's output.
const OUTPUT_LINES: usize = 4;
/// Lines of a diff.
const DIFF_LINES: usize = 40;

/// How much is shown beside the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Only what somebody must know.
    Quiet,
    /// Reasoning, tool calls with the beginning of their output, changes of files.
    Normal,
    /// All of it, and changes of state.
    Full,
}

/// Where a text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// One of the two outputs.
#[derive(Debug, Clone, Copy)]
struct Sink {
    place: Place,
    terminal: bool,
    style: Style,
}

/// Shows what happens in a session.
pub(crate) struct Screen {
    out: Out,
    detail: Detail,
    /// Where the answer goes.
    answer: Sink,
    /// Where everything else goes.
    aside: Sink,
    /// Who follows took no part: inputs, answers and ends of turns are told.
    watcher: bool,
    /// Inputs and answers of this program, which its person knows.
    own: HashSet<String>,
    /// Messages that are not complete: event id and the bytes that were shown.
    shown: HashMap<String, usize>,
    /// The message whose last line is open, and where.
    open: Option<(String, Sink)>,
    /// Whether a prompt waits at the cursor.
    prompt: bool,
    /// Whether something was shown since [`Screen::take_news`].
    news: bool,
}

impl Screen {
    /// For who says something: the answer on standard output, the rest on standard error.
    pub(crate) fn of_actor(out: Out, detail: Detail) -> Self {
        Self::new(out, detail, Place::Err)
    }

    /// For who only looks: everything on standard output.
    pub(crate) fn of_watcher(out: Out, detail: Detail) -> Self {
        Self::new(out, detail, Place::Out)
    }

    fn new(out: Out, detail: Detail, aside: Place) -> Self {
        let sink = |place| {
            let terminal = match place {
                Place::Out => std::io::stdout().is_terminal(),
                Place::Err => std::io::stderr().is_terminal(),
            };
            Sink {
                place,
                terminal,
                style: Style::of(terminal),
            }
        };
        Self {
            out,
            detail,
            answer: sink(Place::Out),
            aside: sink(aside),
            watcher: aside == Place::Out,
            own: HashSet::new(),
            shown: HashMap::new(),
            open: None,
            prompt: false,
            news: false,
        }
    }

    /// Whether programs read it.
    pub(crate) fn is_json(&self) -> bool {
        self.out.is_json()
    }

    /// This input or answer is of this program.
    pub(crate) fn own(&mut self, id: &str) {
        self.own.insert(id.to_owned());
    }

    /// Whether something was shown since the last time.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Asks the person for a line.
    pub(crate) fn prompt(&mut self, text: &str) -> anyhow::Result<()> {
        self.end_line()?;
        self.clear_prompt();
        let text = self.aside.style.bold(text);
        self.put(self.aside, &text)?;
        self.prompt = true;
        self.news = false;
        Ok(())
    }

    /// The person's line came, and with it the end of the prompt's line.
    pub(crate) fn prompt_taken(&mut self) {
        self.prompt = false;
    }

    /// A line beside the answer that somebody must know. For programs the events say it.
    pub(crate) fn say(&mut self, text: &str) -> anyhow::Result<()> {
        if self.is_json() {
            return Ok(());
        }
        self.begin_lines()?;
        for line in printable(text).lines() {
            self.put(self.aside, &format!("{line}\n"))?;
        }
        Ok(())
    }

    /// The same, so that it is seen.
    pub(crate) fn ask(&mut self, text: &str) -> anyhow::Result<()> {
        let text = self.aside.style.yellow(&printable(text));
        if self.is_json() {
            return Ok(());
        }
        self.begin_lines()?;
        self.put(self.aside, &format!("{text}\n"))
    }

    /// A piece of a message.
    pub(crate) fn delta(&mut self, delta: &v1::Delta) -> anyhow::Result<()> {
        if self.is_json() {
            return self
                .out
                .line(&json!({ "delta": self.out.message("Delta", delta) }).to_string());
        }
        let own = delta.child_run_id.is_empty();
        match delta.channel() {
            v1::DeltaChannel::Text if own => {
                self.piece(self.answer, false, &delta.event_id, &delta.text)
            }
            v1::DeltaChannel::Reasoning
                if own && self.detail != Detail::Quiet && self.aside.terminal =>
            {
                self.piece(self.aside, true, &delta.event_id, &delta.text)
            }
            v1::DeltaChannel::ToolOutput if self.detail == Detail::Full && self.aside.terminal => {
                self.piece(self.aside, true, &delta.event_id, &delta.text)
            }
            v1::DeltaChannel::Text
            | v1::DeltaChannel::Reasoning
            | v1::DeltaChannel::ToolOutput
            | v1::DeltaChannel::Unspecified => Ok(()),
        }
    }

    /// A durable event.
    pub(crate) fn event(&mut self, event: &v1::Event) -> anyhow::Result<()> {
        if self.is_json() {
            return self
                .out
                .line(&json!({ "event": self.out.message("Event", event) }).to_string());
        }
        let Some(payload) = &event.payload else {
            return Ok(());
        };
        let child = match event.child_run_id.as_str() {
            "" => String::new(),
            id => format!("[{}] ", one_line(id, 16)),
        };
        match payload {
            Payload::MessageCompleted(message) => self.message(&event.id, &child, message),
            Payload::ToolResult(result) => self.result(&event.id, &child, result),
            Payload::FileChanged(change) => {
                let limit = match self.detail {
                    Detail::Quiet => return Ok(()),
                    Detail::Normal => DIFF_LINES,
                    Detail::Full => usize::MAX,
                };
                let lines = diff::lines(change, self.aside.style, limit);
                self.lines(&child, &lines)
            }
            other => match self.line(other) {
                Some(line) => self.lines(&child, &[line]),
                None => Ok(()),
            },
        }
    }

    /// A whole message, or the rest of it when pieces came before.
    fn message(
        &mut self,
        id: &str,
        child: &str,
        message: &v1::MessageCompleted,
    ) -> anyhow::Result<()> {
        let reasoning = message.kind() == v1::MessageKind::Reasoning;
        let shown = self.shown.remove(id);
        if child.is_empty() && !reasoning {
            let rest = rest(&message.text, shown);
            self.piece(self.answer, false, id, rest)?;
            return self.end_message(id);
        }
        if self.detail == Detail::Quiet {
            return Ok(());
        }
        if shown.is_some() {
            self.piece(self.aside, true, id, rest(&message.text, shown))?;
            return self.end_message(id);
        }
        let style = self.aside.style;
        let lines: Vec<String> = printable(&message.text)
            .lines()
            .map(|line| style.dim(line))
            .collect();
        self.lines(child, &lines)
    }

    fn result(&mut self, id: &str, child: &str, result: &v1::ToolResult) -> anyhow::Result<()> {
        let streamed = self.shown.remove(id).is_some();
        if streamed {
            self.end_message(id)?;
        }
        if self.detail == Detail::Quiet {
            return Ok(());
        }
        let style = self.aside.style;
        let mut lines = Vec::new();
        if result.is_error {
            lines.push(style.red(&format!("! {} failed", printable(&result.name))));
        }
        if !streamed {
            let output = tool::output(&result.output);
            let output = printable(output.trim_end());
            let all: Vec<&str> = output.lines().collect();
            let limit = match self.detail {
                Detail::Full => all.len(),
                // The place of the line that says how many are hidden is better used.
                _ if all.len() <= OUTPUT_LINES + 1 => all.len(),
                _ => OUTPUT_LINES,
            };
            let cut = |line: &str| match self.detail {
                Detail::Full => line.to_owned(),
                _ => one_line(line, LINE),
            };
            lines.extend(
                all[..limit]
                    .iter()
                    .map(|line| style.dim(&format!("  {}", cut(line)))),
            );
            if limit < all.len() {
                lines.push(style.dim(&format!("  ... {} more lines", all.len() - limit)));
            }
        }
        self.lines(child, &lines)
    }

    /// How a turn of this program's own ended.
    pub(crate) fn outcome(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        if self.is_json() {
            return self
                .out
                .line(&json!({ "result": outcome.to_json() }).to_string());
        }
        self.end_line()?;
        match outcome {
            Outcome::Completed => Ok(()),
            Outcome::Interrupted => self.say("the turn was interrupted"),
            Outcome::Failed { reason, message } => {
                let text = format!("the turn failed: {reason}: {message}");
                let text = self.aside.style.red(&printable(&text));
                self.begin_lines()?;
                self.put(self.aside, &format!("{text}\n"))
            }
        }
    }

    /// The line that an event is, if it is one.
    fn line(&self, payload: &Payload) -> Option<String> {
        let style = self.aside.style;
        let full = self.detail == Detail::Full;
        let line = match payload {
            Payload::ToolCall(call) => {
                let limit = if full { usize::MAX - 1 } else { LINE };
                let subject = tool::subject(&call.input, limit);
                let name = style.bold(&printable(&call.name));
                let line = format!("{} {name} {}", style.cyan(">"), printable(&subject));
                return (self.detail != Detail::Quiet).then(|| line.trim_end().to_owned());
            }
            Payload::InputAccepted(input) if !self.own.contains(&input.input_id) => {
                let text = crate::session::content_text(&input.content);
                return Some(style.bold(&printable(&format!("input: {}", one_line(&text, LINE)))));
            }
            Payload::InteractionRequested(asked) if self.watcher => {
                let asked = asked.interaction.as_ref()?;
                return Some(style.yellow(&printable(&format!(
                    "? {} ({})",
                    one_line(&question_text(asked), LINE),
                    asked.id
                ))));
            }
            Payload::InteractionResolved(resolved)
                if !self.own.contains(&resolved.interaction_id) =>
            {
                let answer = resolved
                    .answer
                    .as_ref()
                    .map(answer_text)
                    .unwrap_or_default();
                format!(
                    "answered by {}: {}",
                    resolved.actor,
                    one_line(&answer, LINE)
                )
            }
            Payload::InteractionExpired(expired) => {
                format!("the question is closed: {}", expired.reason)
            }
            Payload::TurnStarted(turn) if turn.origin() == v1::TurnOrigin::Engine => {
                "the agent goes on by itself".to_owned()
            }
            Payload::TurnEnded(ended) if self.watcher => {
                let outcome = Outcome::of(ended);
                let usage = ended.usage.as_ref().map(usage_text).unwrap_or_default();
                let usage = if usage.is_empty() {
                    usage
                } else {
                    format!(" (tokens: {usage})")
                };
                format!("the turn {outcome}{usage}")
            }
            Payload::ContextCompacted(_) => "the agent shortened its context".to_owned(),
            Payload::ChildRunChanged(run) => {
                let state = enum_name(run.state().as_str_name()).unwrap_or_default();
                let title = if run.title.is_empty() {
                    &run.child_run_id
                } else {
                    &run.title
                };
                return (self.detail != Detail::Quiet).then(|| {
                    style.dim(&printable(&format!(
                        "child run {state}: {}",
                        one_line(title, LINE)
                    )))
                });
            }
            Payload::SessionStatus(status) if full => {
                let state = enum_name(status.state().as_str_name()).unwrap_or_default();
                format!("session {state} {}", status.reason)
            }
            Payload::DiagnosticRaw(raw) if full => {
                format!("{}: {}", raw.topic, one_line(&raw.message, LINE))
            }
            Payload::InputAccepted(_)
            | Payload::InteractionRequested(_)
            | Payload::InteractionResolved(_)
            | Payload::TurnStarted(_)
            | Payload::TurnEnded(_)
            | Payload::SessionStatus(_)
            | Payload::DiagnosticRaw(_)
            | Payload::InputConsumed(_)
            | Payload::MessageCompleted(_)
            | Payload::ToolResult(_)
            | Payload::FileChanged(_)
            | Payload::Usage(_) => return None,
        };
        Some(style.dim(printable(&line).trim_end()))
    }

    /// A piece of a message that streams.
    fn piece(&mut self, sink: Sink, dim: bool, id: &str, text: &str) -> anyhow::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.clear_prompt();
        if self.open.as_ref().is_some_and(|(open, _)| open != id) {
            self.end_line()?;
        }
        *self.shown.entry(id.to_owned()).or_default() += text.len();
        // What goes into a file or another program is the agent's text, byte by byte.
        let plain = if sink.terminal {
            printable(text)
        } else {
            text.into()
        };
        self.open = (!plain.ends_with('\n')).then(|| (id.to_owned(), sink));
        let shown = if dim {
            sink.style.dim(&plain)
        } else {
            plain.into_owned()
        };
        self.put(sink, &shown)
    }

    fn end_message(&mut self, id: &str) -> anyhow::Result<()> {
        self.shown.remove(id);
        match &self.open {
            Some((open, _)) if open == id => self.end_line(),
            _ => Ok(()),
        }
    }

    /// Lines beside the answer.
    fn lines(&mut self, prefix: &str, lines: &[String]) -> anyhow::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.begin_lines()?;
        for line in lines {
            self.put(self.aside, &format!("{prefix}{line}\n"))?;
        }
        Ok(())
    }

    /// Ends what is in the way of a new line. An answer that goes elsewhere is not in the way.
    fn begin_lines(&mut self) -> anyhow::Result<()> {
        self.clear_prompt();
        let seen_together = self.answer.terminal && self.aside.terminal;
        match &self.open {
            Some((_, sink)) if seen_together || sink.place == self.aside.place => self.end_line(),
            _ => Ok(()),
        }
    }

    fn end_line(&mut self) -> anyhow::Result<()> {
        match self.open.take() {
            Some((_, sink)) => self.put(sink, "\n"),
            None => Ok(()),
        }
    }

    /// Takes the prompt off the line of the cursor.
    fn clear_prompt(&mut self) {
        if std::mem::take(&mut self.prompt) {
            let clear = if self.aside.terminal && !is_dumb() {
                "\r\x1b[K"
            } else {
                "\n"
            };
            let _ = self.put(self.aside, clear);
        }
    }

    fn put(&mut self, sink: Sink, text: &str) -> anyhow::Result<()> {
        self.news = true;
        match sink.place {
            Place::Out => self.out.write(text),
            Place::Err => {
                // Nobody can be told that standard error is gone.
                let mut err = std::io::stderr().lock();
                let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
                Ok(())
            }
        }
    }
}

/// What does not fit the pieces that were shown is shown whole rather than cut.
fn rest(text: &str, shown: Option<usize>) -> &str {
    text.get(shown.unwrap_or(0)..).unwrap_or(text)
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Interrupted,
    Failed { reason: String, message: String },
}

impl Outcome {
    pub(crate) fn of(ended: &v1::TurnEnded) -> Self {
        match ended.outcome() {
            v1::TurnOutcome::Completed => Self::Completed,
            v1::TurnOutcome::Interrupted => Self::Interrupted,
            v1::TurnOutcome::Failed | v1::TurnOutcome::Unspecified => Self::Failed {
                reason: ended.failure_reason.clone(),
                message: ended.failure_message.clone(),
            },
        }
    }

    fn to_json(&self) -> serde_json::Value {
        let (name, reason, message) = match self {
            Self::Completed => ("completed", "", ""),
            Self::Interrupted => ("interrupted", "", ""),
            Self::Failed { reason, message } => ("failed", reason.as_str(), message.as_str()),
        };
        json!({ "outcome": name, "failure_reason": reason, "failure_message": message })
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Completed => f.write_str("is completed"),
            Self::Interrupted => f.write_str("was interrupted"),
            Self::Failed { reason, message } => write!(f, "failed: {reason}: {message}"),
        }
    }
}
