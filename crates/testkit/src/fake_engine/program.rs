//! The program: a loop over lines that does what prompts say.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use astrabox_engine::sandbox::{HOME, WORKSPACE};
use astrabox_types::{InputId, InteractionAnswer};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::directive::{Directive, parse};
use super::host::{Heard, Host};
use super::wire::{FromProgram, Outcome, Reply, ToProgram};

/// The program's version.
pub const VERSION: &str = "1.0.0";

/// How often a wait looks whether it is over.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Runs the program to its end and gives its exit code.
pub async fn run<H: Host>(host: &mut H) -> i32 {
    let mut program = Program::new(host);
    loop {
        if let Some(code) = program.next().await {
            return code;
        }
    }
}

/// A record of the session file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    /// The first one.
    Session(String),
    /// A turn and the prompt that began it.
    User(String),
    /// A turn of the program's own.
    Own,
    /// What was said.
    Assistant(String),
}

/// Why a turn does not go on.
pub(super) enum Halt {
    /// It was stopped.
    Stopped,
    /// It failed.
    Failed(String),
    /// The program ends.
    Exit(i32),
}

pub(super) type Done = Result<(), Halt>;

/// Work in the background.
pub(super) struct Work {
    /// What it waits for.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) kind: WorkKind,
}

/// What is done when it is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WorkKind {
    /// A turn of the program's own that says the text.
    Report,
    /// The same, with a wait in the middle.
    Linger,
    /// This tool call ends, with the text as its output and without a turn.
    Result(String),
    /// This child run asks for an approval, and ends.
    Asking(String),
}

pub(super) struct Program<'h, H> {
    pub(super) host: &'h mut H,
    pub(super) key: String,
    pub(super) mode: String,
    /// Counts the turns of the conversation.
    pub(super) turn: usize,
    /// Counts what the turn said and asked.
    pub(super) part: usize,
    pub(super) prompts: Vec<String>,
    pub(super) waiting: VecDeque<(InputId, String, Option<String>)>,
    pub(super) answers: BTreeMap<String, InteractionAnswer>,
    pub(super) replies: BTreeMap<String, String>,
    pub(super) background: Vec<Work>,
    pub(super) stop: bool,
    pub(super) deaf: bool,
    pub(super) ended: bool,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) twice: bool,
}

impl<'h, H: Host> Program<'h, H> {
    fn new(host: &'h mut H) -> Self {
        Self {
            host,
            key: String::new(),
            mode: String::new(),
            turn: 0,
            part: 0,
            prompts: Vec::new(),
            waiting: VecDeque::new(),
            answers: BTreeMap::new(),
            replies: BTreeMap::new(),
            background: Vec::new(),
            stop: false,
            deaf: false,
            ended: false,
            usage: None,
            twice: false,
        }
    }

    /// The next thing to do; an exit code at the end.
    async fn next(&mut self) -> Option<i32> {
        if let Some((input, text, notice)) = self.waiting.pop_front() {
            return self.take(input, &text, notice.as_deref()).await;
        }
        if self.ended {
            return Some(0);
        }
        let due = (0..self.background.len()).find(|at| self.is_there(&self.background[*at].name));
        if let Some(at) = due {
            let work = self.background.remove(at);
            return self.report(work).await;
        }
        let within = (!self.background.is_empty()).then_some(LOOK_AGAIN);
        self.listen(within).await;
        None
    }

    pub(super) async fn listen(&mut self, within: Option<Duration>) {
        match self.host.line(within).await {
            Heard::Line(line) => self.hear(&line),
            Heard::Nothing => {}
            Heard::End => self.ended = true,
        }
    }

    fn hear(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(ToProgram::Open { session, mode }) => self.open(session, mode),
            Ok(ToProgram::Say {
                input,
                text,
                notice,
            }) => self.waiting.push_back((input, text, notice)),
            Ok(ToProgram::Stop) => self.stop = true,
            Ok(ToProgram::Answer { ask, answer }) => {
                self.answers.insert(ask, answer);
            }
            Ok(ToProgram::Mode { mode }) => self.mode = mode,
            Ok(ToProgram::Reply(Reply { request, error })) => {
                self.replies.insert(request, error);
            }
            Ok(ToProgram::StopChild { .. }) => {}
            Ok(ToProgram::Bye) => self.ended = true,
            Err(error) => self.host.eprint(&format!("not understood: {error}\n")),
        }
    }

    fn open(&mut self, session: Option<String>, mode: Option<String>) {
        self.mode = mode.unwrap_or_default();
        match session {
            None => {
                self.key = self.host.nonce();
                let key = self.key.clone();
                self.record(&Record::Session(key));
            }
            Some(key) => {
                let Some(file) = self.host.read(&session_file(&key)) else {
                    self.say(&FromProgram::Lost { session: key });
                    return;
                };
                self.key = key;
                for line in String::from_utf8_lossy(&file).lines() {
                    match serde_json::from_str(line) {
                        Ok(Record::User(text)) => {
                            self.prompts.push(text);
                            self.turn += 1;
                        }
                        Ok(Record::Own) => self.turn += 1,
                        _ => {}
                    }
                }
            }
        }
        self.say(&FromProgram::Ready {
            session: self.key.clone(),
            program: format!("fake-engine {VERSION}"),
            tools: vec!["sh".to_owned()],
        });
    }

    pub(super) fn record(&mut self, record: &Record) {
        let line = format!("{}\n", json!(record));
        if !self.host.append(&session_file(&self.key), line.as_bytes()) {
            self.host.eprint("the session file cannot be written\n");
        }
    }

    pub(super) fn say(&mut self, line: &FromProgram) {
        self.host.print(format!("{}\n", json!(line)).as_bytes());
    }

    pub(super) fn is_there(&self, name: &str) -> bool {
        self.host.exists(&in_workspace(name))
    }

    pub(super) fn fresh(&mut self, kind: &str) -> String {
        self.part += 1;
        format!("{kind}-{}-{}", self.turn, self.part)
    }

    fn background_done(&mut self) {
        if self.background.is_empty() {
            self.say(&FromProgram::Background { open: false });
        }
    }

    /// What follows work that is done, mostly a turn of the program's own; an exit code when the program ends with it.
    async fn report(&mut self, work: Work) -> Option<i32> {
        match &work.kind {
            WorkKind::Result(call) => {
                self.tool_ended(call, &work.text);
                self.background_done();
                return None;
            }
            WorkKind::Asking(child) => {
                let done = self.child_asks(child, &work.text).await;
                self.background_done();
                return match done {
                    Err(Halt::Exit(code)) => Some(code),
                    _ => None,
                };
            }
            WorkKind::Report | WorkKind::Linger => {}
        }
        self.begin_turn(&Record::Own);
        self.say(&FromProgram::Begin);
        let done = if work.kind == WorkKind::Linger {
            self.linger(&work).await
        } else {
            self.message(&[&work.text], false, None);
            Ok(())
        };
        self.background_done();
        let outcome = match done {
            Err(Halt::Exit(code)) => return Some(code),
            Err(_) => Outcome::Interrupted,
            Ok(()) => Outcome::Completed,
        };
        self.end(outcome, true);
        None
    }

    async fn linger(&mut self, work: &Work) -> Done {
        let message = self.fresh("m");
        let (head, tail) = halves(&work.text);
        self.delta(&message, false, head, None);
        self.wait_for(&format!("{}-end", work.name)).await?;
        self.delta(&message, false, tail, None);
        self.complete(message, work.text.clone(), false, None);
        Ok(())
    }

    fn begin_turn(&mut self, record: &Record) {
        self.turn += 1;
        self.part = 0;
        self.usage = None;
        (self.stop, self.deaf, self.twice) = (false, false, false);
        self.record(record);
    }

    fn end(&mut self, outcome: Outcome, own: bool) {
        let usage = self.usage;
        self.say(&FromProgram::End {
            outcome,
            own,
            usage,
        });
    }

    /// A whole turn; an exit code when the program ends with it.
    async fn take(&mut self, input: InputId, text: &str, notice: Option<&str>) -> Option<i32> {
        let directives = parse(text);
        for directive in &directives {
            if let Directive::Prelude(text) = directive {
                self.begin_turn(&Record::Own);
                self.say(&FromProgram::Begin);
                self.message(&[text], false, None);
                self.end(Outcome::Completed, true);
            }
        }
        self.begin_turn(&Record::User(text.to_owned()));
        self.say(&FromProgram::Took { input });
        let mut done = Ok(());
        for directive in directives {
            self.listen(Some(Duration::ZERO)).await;
            done = match self.halted() {
                Ok(()) => self.act(directive, notice).await,
                halted => halted,
            };
            if done.is_err() {
                break;
            }
        }
        self.prompts.push(text.to_owned());
        let outcome = match done {
            Ok(()) => Outcome::Completed,
            Err(Halt::Stopped) => Outcome::Interrupted,
            Err(Halt::Failed(reason)) => Outcome::Failed(reason),
            Err(Halt::Exit(code)) => return Some(code),
        };
        self.end(outcome.clone(), false);
        if self.twice {
            self.end(outcome, false);
        }
        None
    }

    pub(super) fn halted(&self) -> Done {
        if self.stop && !self.deaf {
            Err(Halt::Stopped)
        } else if self.ended {
            Err(Halt::Exit(0))
        } else {
            Ok(())
        }
    }

    /// Waits until `ready` gives something.
    pub(super) async fn wait<T>(
        &mut self,
        ready: impl Fn(&mut Self) -> Option<T>,
    ) -> Result<T, Halt> {
        loop {
            if let Some(value) = ready(self) {
                return Ok(value);
            }
            self.halted()?;
            self.listen(Some(LOOK_AGAIN)).await;
        }
    }

    pub(super) async fn wait_for(&mut self, name: &str) -> Done {
        self.wait(|program| program.is_there(name).then_some(()))
            .await
    }
}

pub(super) fn halves(text: &str) -> (&str, &str) {
    let half = (0..=text.len() / 2).rev();
    let at = half.into_iter().find(|at| text.is_char_boundary(*at));
    text.split_at(at.unwrap_or(0))
}

fn session_file(key: &str) -> String {
    format!("{HOME}/.fake/{key}.jsonl")
}

pub(super) fn in_workspace(name: &str) -> String {
    format!("{WORKSPACE}/{name}")
}

/// An answer, in the words in which it is said.
pub(super) fn words(answer: &InteractionAnswer) -> String {
    match answer {
        InteractionAnswer::Choose { choice_id, .. } => choice_id.clone(),
        InteractionAnswer::Decline { .. } => "declined".to_owned(),
        InteractionAnswer::Reply { answers } => {
            let all: Vec<_> = answers.values().map(|values| values.join("+")).collect();
            all.join("/")
        }
    }
}
