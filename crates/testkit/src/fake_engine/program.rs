//! The program: a loop over lines that does what prompts say.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use astrabox_engine::sandbox::{HOME, WORKSPACE};
use astrabox_types::{ChildRunState, FileChangeKind, InputId, InteractionAnswer};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::directive::{Directive, parse};
use super::host::{Heard, Host, ToolEvent};
use super::wire::{AskForm, FromProgram, Outcome, Reply, ToProgram};

/// The program's version.
pub const VERSION: &str = "1.0.0";

/// How often a wait looks whether it is over.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

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
enum Record {
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
enum Halt {
    /// It was stopped.
    Stopped,
    /// It failed.
    Failed(String),
    /// The program ends.
    Exit(i32),
}

type Done = Result<(), Halt>;

/// Work in the background.
struct Work {
    name: String,
    text: String,
    lingers: bool,
}

struct Program<'h, H> {
    host: &'h mut H,
    key: String,
    mode: String,
    /// Counts the turns of the conversation.
    turn: usize,
    /// Counts what the turn said and asked.
    part: usize,
    prompts: Vec<String>,
    waiting: VecDeque<(InputId, String, Option<String>)>,
    answers: BTreeMap<String, InteractionAnswer>,
    replies: BTreeMap<String, String>,
    background: Vec<Work>,
    stop: bool,
    deaf: bool,
    ended: bool,
    usage: Option<(u64, u64)>,
    twice: bool,
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

    async fn listen(&mut self, within: Option<Duration>) {
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

    fn record(&mut self, record: &Record) {
        let line = format!("{}\n", json!(record));
        if !self.host.append(&session_file(&self.key), line.as_bytes()) {
            self.host.eprint("the session file cannot be written\n");
        }
    }

    fn say(&mut self, line: &FromProgram) {
        self.host.print(format!("{}\n", json!(line)).as_bytes());
    }

    fn is_there(&self, name: &str) -> bool {
        self.host.exists(&in_workspace(name))
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.part += 1;
        format!("{kind}-{}-{}", self.turn, self.part)
    }

    /// A turn of the program's own about work that is done; an exit code when the program ends with it.
    async fn report(&mut self, work: Work) -> Option<i32> {
        self.begin_turn(&Record::Own);
        self.say(&FromProgram::Begin);
        let done = if work.lingers {
            self.linger(&work).await
        } else {
            self.message(&[&work.text], false, None);
            Ok(())
        };
        if self.background.is_empty() {
            self.say(&FromProgram::Background { open: false });
        }
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

    fn halted(&self) -> Done {
        if self.stop && !self.deaf {
            Err(Halt::Stopped)
        } else if self.ended {
            Err(Halt::Exit(0))
        } else {
            Ok(())
        }
    }

    /// Waits until `ready` gives something.
    async fn wait<T>(&mut self, ready: impl Fn(&mut Self) -> Option<T>) -> Result<T, Halt> {
        loop {
            if let Some(value) = ready(self) {
                return Ok(value);
            }
            self.halted()?;
            self.listen(Some(LOOK_AGAIN)).await;
        }
    }

    async fn wait_for(&mut self, name: &str) -> Done {
        self.wait(|program| program.is_there(name).then_some(()))
            .await
    }

    async fn act(&mut self, directive: Directive, notice: Option<&str>) -> Done {
        match directive {
            Directive::Say(text) => self.message(&[&text], false, None),
            Directive::Think(text) => self.message(&[&text], true, None),
            Directive::Deltas { count, hold } => self.deltas(count, hold.as_deref()).await?,
            Directive::Run(command) => self.run_tool(&command).await?,
            Directive::File { path, text } => self.write_file(&path, &text),
            Directive::Ask(form, text) => {
                let answer = self.ask(&[(form, text)]).await?.remove(0);
                self.message(&[&format!("answer: {answer}")], false, None);
            }
            Directive::Asks(count) => {
                let asks = (1..=count).map(|n| (AskForm::Approval, format!("number {n}")));
                let answers = self.ask(&asks.collect::<Vec<_>>()).await?.join(", ");
                self.message(&[&format!("answers: {answers}")], false, None);
            }
            Directive::Withdraw(text) => self.withdraw(text),
            Directive::Hold(name) => self.wait_for(&name).await?,
            Directive::Child(text) => self.child(&text),
            Directive::Background {
                name,
                text,
                lingers,
            } => {
                self.background.push(Work {
                    name,
                    text,
                    lingers,
                });
                self.say(&FromProgram::Background { open: true });
            }
            Directive::Prelude(_) => {}
            Directive::Recall => {
                let text = format!("you said: {}", json!(self.prompts));
                self.message(&[&text], false, None);
            }
            Directive::Notice => {
                let text = format!("notice: {}", notice.unwrap_or("none"));
                self.message(&[&text], false, None);
            }
            Directive::Mode => {
                let text = format!("mode: {}", self.mode);
                self.message(&[&text], false, None);
            }
            Directive::Request(method) => self.request(method).await?,
            Directive::Idle => self.say(&FromProgram::Status {
                status: "idle".to_owned(),
            }),
            Directive::Weather => self.host.print(b"{\"type\":\"weather\",\"sun\":1.50}\n"),
            Directive::Garbage => self.host.print(b"no JSON at all\n{\"type\":\n\xff\xfe\n"),
            Directive::Split(text) => self.split(&text),
            Directive::Long(length) => self.message(&[&"x".repeat(length)], false, None),
            Directive::Stderr(text) => self.host.eprint(&format!("{text}\n")),
            Directive::Usage(input, output) => self.usage = Some((input, output)),
            Directive::Fail(reason) => return Err(Halt::Failed(reason)),
            Directive::Twice => self.twice = true,
            // Only a signal ends this.
            Directive::Silent => std::future::pending().await,
            Directive::Deaf => self.deaf = true,
            Directive::Exit(code) => {
                self.host.eprint("exiting on purpose\n");
                return Err(Halt::Exit(code));
            }
            Directive::NoEnd => return Err(Halt::Exit(0)),
        }
        Ok(())
    }

    /// Says a message in these pieces.
    fn message(&mut self, pieces: &[&str], reasoning: bool, child: Option<&str>) {
        let message = self.fresh("m");
        for text in pieces.iter().filter(|text| text.len() < 1 << 20) {
            self.delta(&message, reasoning, text, child);
        }
        self.complete(message, pieces.concat(), reasoning, child);
    }

    fn delta(&mut self, message: &str, reasoning: bool, text: &str, child: Option<&str>) {
        self.say(&FromProgram::Delta {
            message: message.to_owned(),
            reasoning,
            tool: false,
            text: text.to_owned(),
            child: child.map(str::to_owned),
        });
    }

    fn complete(&mut self, message: String, text: String, reasoning: bool, child: Option<&str>) {
        self.record(&Record::Assistant(text.clone()));
        self.say(&FromProgram::Message {
            message,
            reasoning,
            text,
            child: child.map(str::to_owned),
        });
    }

    async fn deltas(&mut self, count: usize, hold: Option<&str>) -> Done {
        let message = self.fresh("m");
        let mut whole = String::new();
        for n in 1..=count {
            let space = if n == 1 { "" } else { " " };
            let piece = format!("{space}d{n}");
            self.delta(&message, false, &piece, None);
            whole.push_str(&piece);
            if n == count.div_ceil(2)
                && let Some(name) = hold
            {
                self.wait_for(name).await?;
            }
        }
        self.complete(message, whole, false, None);
        Ok(())
    }

    fn split(&mut self, text: &str) {
        let message = self.fresh("m");
        self.record(&Record::Assistant(text.to_owned()));
        let line = FromProgram::Message {
            message,
            reasoning: false,
            text: text.to_owned(),
            child: None,
        };
        for byte in format!("{}\n", json!(line)).as_bytes() {
            self.host.print(&[*byte]);
        }
    }

    fn write_file(&mut self, path: &str, text: &str) {
        let key = self.fresh("f");
        let path = in_workspace(path);
        let change = if self.host.exists(&path) {
            FileChangeKind::Modified
        } else {
            FileChangeKind::Added
        };
        self.host.append(&path, text.as_bytes());
        self.say(&FromProgram::File { path, change, key });
    }

    async fn run_tool(&mut self, command: &str) -> Done {
        let call = self.fresh("c");
        let tool = "sh".to_owned();
        self.say(&FromProgram::Call {
            call: call.clone(),
            tool: tool.clone(),
            input: json!({ "command": command }),
        });
        self.host.start_tool(command);
        let mut output = String::new();
        let ended = loop {
            match self.host.poll_tool() {
                ToolEvent::Output(text) => {
                    self.say(&FromProgram::Delta {
                        message: call.clone(),
                        reasoning: false,
                        tool: true,
                        text: text.clone(),
                        child: None,
                    });
                    output.push_str(&text);
                }
                ToolEvent::Done(code) => break Ok(code),
                ToolEvent::Nothing => {
                    if let Err(halt) = self.halted() {
                        break Err(halt);
                    }
                    self.listen(Some(LOOK_AGAIN)).await;
                }
            }
        };
        let (code, done) = match ended {
            Ok(code) => (Some(code), Ok(())),
            Err(halt) => (None, Err(halt)),
        };
        self.host.kill_tool();
        self.say(&FromProgram::Result {
            call,
            tool,
            output: json!({ "output": output, "code": code }),
            error: code != Some(0),
        });
        done
    }

    /// Asks all of these at once and gives the answers in order.
    async fn ask(&mut self, asks: &[(AskForm, String)]) -> Result<Vec<String>, Halt> {
        let mut names = Vec::new();
        for (form, text) in asks {
            let ask = self.fresh("a");
            names.push(ask.clone());
            self.say(&FromProgram::Ask {
                ask,
                form: *form,
                text: text.clone(),
            });
        }
        let mut said = Vec::new();
        for name in names {
            let answer = self.wait(|program| program.answers.remove(&name)).await?;
            said.push(words(&answer));
        }
        Ok(said)
    }

    fn withdraw(&mut self, text: String) {
        let ask = self.fresh("a");
        self.say(&FromProgram::Ask {
            ask: ask.clone(),
            form: AskForm::Approval,
            text,
        });
        self.say(&FromProgram::Withdraw {
            ask,
            reason: "thought better of it".to_owned(),
        });
    }

    fn child(&mut self, text: &str) {
        let child = self.fresh("k");
        let state = |state| FromProgram::Child {
            child: child.clone(),
            state,
        };
        let (running, completed) = (
            state(ChildRunState::Running),
            state(ChildRunState::Completed),
        );
        self.say(&running);
        let (head, tail) = halves(text);
        self.message(&[head, tail], false, Some(&child));
        self.say(&completed);
    }

    async fn request(&mut self, method: String) -> Done {
        let request = self.fresh("r");
        self.say(&FromProgram::Request {
            request: request.clone(),
            method,
        });
        let error = self
            .wait(|program| program.replies.remove(&request))
            .await?;
        self.message(&[&format!("reply: {error}")], false, None);
        Ok(())
    }
}

fn halves(text: &str) -> (&str, &str) {
    let half = (0..=text.len() / 2).rev();
    let at = half.into_iter().find(|at| text.is_char_boundary(*at));
    text.split_at(at.unwrap_or(0))
}

fn session_file(key: &str) -> String {
    format!("{HOME}/.fake/{key}.jsonl")
}

fn in_workspace(name: &str) -> String {
    format!("{WORKSPACE}/{name}")
}

/// An answer, in the words in which it is said.
fn words(answer: &InteractionAnswer) -> String {
    match answer {
        InteractionAnswer::Choose { choice_id, .. } => choice_id.clone(),
        InteractionAnswer::Decline { .. } => "declined".to_owned(),
        InteractionAnswer::Reply { answers } => {
            let all: Vec<_> = answers.values().map(|values| values.join("+")).collect();
            all.join("/")
        }
    }
}
