//! What the program wants of its client: text files of the workspace, and commands in terminals.

use std::collections::BTreeMap;

use astrabox_engine::line::{Done, Effects, Job, JobResult, LONGEST_TEXT, Undone, Work};
use astrabox_engine::sandbox::{BoxPath, ExitStatus, HOME, ProcessName, WORKSPACE};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::Conversation;
use crate::wire::{self, Fields, INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND};

/// How many commands may be kept at once.
const TERMINALS: usize = 32;
/// Where the output of commands is kept, below home.
const OUTPUT: &str = ".cache/astrabox/terminals";

/// What a conversation is served with, for programs that want it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Serving {
    /// What the environment of commands begins with.
    env: BTreeMap<String, String>,
    /// The commands that are kept, by the names that the program knows.
    terminals: BTreeMap<String, Shell>,
    /// Counts the commands.
    made: u64,
    /// What is being done, by job: the program's id of its request, verbatim, and what it wants.
    doing: BTreeMap<String, (String, Wanted)>,
}

/// A command.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shell {
    /// How much of its output is kept, bytes.
    limit: u64,
}

/// What a request of the program wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Wanted {
    Text,
    Nothing,
    /// The command with this name.
    Terminal(String),
    Shown,
    Ended,
}

/// Why a request cannot be served.
struct Refused(i64, String);

impl Refused {
    fn params(text: impl Into<String>) -> Self {
        Self(INVALID_PARAMS, text.into())
    }
}

impl Serving {
    pub(crate) fn new(env: BTreeMap<String, String>) -> Self {
        Self {
            env,
            terminals: BTreeMap::new(),
            made: 0,
            doing: BTreeMap::new(),
        }
    }

    /// The work of a request; `None` for a method that is none of these.
    fn work(
        &mut self,
        born: u64,
        method: &str,
        params: &Fields<'_>,
    ) -> Option<Result<(Work, Wanted), Refused>> {
        Some(match method {
            "fs/read_text_file" => path_of(params).map(|path| {
                let (line, lines) = (params.number("line"), params.number("limit"));
                (Work::ReadText { path, line, lines }, Wanted::Text)
            }),
            "fs/write_text_file" => path_of(params).map(|path| {
                let text = params.text("content").unwrap_or_default();
                (Work::WriteText { path, text }, Wanted::Nothing)
            }),
            "terminal/create" => self.start(born, params),
            "terminal/output" => self.terminal(params).map(|(process, output, terminal)| {
                let limit = terminal.limit;
                let work = Work::Look {
                    process,
                    output,
                    limit,
                };
                (work, Wanted::Shown)
            }),
            "terminal/wait_for_exit" => self
                .terminal(params)
                .map(|(process, ..)| (Work::AwaitEnd { process }, Wanted::Ended)),
            "terminal/kill" => self
                .terminal(params)
                .map(|(process, ..)| (Work::Kill { process }, Wanted::Nothing)),
            "terminal/release" => self.terminal(params).map(|(process, output, _)| {
                self.terminals.remove(process.as_str());
                (Work::Forget { process, output }, Wanted::Nothing)
            }),
            _ => return None,
        })
    }

    fn start(&mut self, born: u64, params: &Fields<'_>) -> Result<(Work, Wanted), Refused> {
        if self.terminals.len() >= TERMINALS {
            let text = format!("{TERMINALS} terminals are open; release one");
            return Err(Refused::params(text));
        }
        let command = params.text("command").filter(|command| !command.is_empty());
        let Some(command) = command else {
            return Err(Refused::params("a terminal needs a command"));
        };
        let cwd = match params.text("cwd") {
            Some(cwd) => inside(&cwd)?,
            None => inside(WORKSPACE)?,
        };
        let mut env = self.env.clone();
        for variable in params.list("env").into_iter().map(Fields::of) {
            if let (Some(name), Some(value)) = (variable.text("name"), variable.text("value")) {
                env.insert(name, value);
            }
        }
        self.made += 1;
        let (process, output) = names(&format!("terminal-{born}-{}", self.made))?;
        let limit = params.number("outputByteLimit").unwrap_or(LONGEST_TEXT);
        self.terminals
            .insert(process.as_str().to_owned(), Shell { limit });
        let wanted = Wanted::Terminal(process.as_str().to_owned());
        let command = std::iter::once(command).chain(params.texts("args"));
        let work = Work::Start {
            process,
            command: command.collect(),
            env,
            cwd,
            output,
        };
        Ok((work, wanted))
    }

    fn terminal(&self, params: &Fields<'_>) -> Result<(ProcessName, BoxPath, Shell), Refused> {
        let id = params.text("terminalId").unwrap_or_default();
        let Some(terminal) = self.terminals.get(&id) else {
            return Err(Refused(RESOURCE_NOT_FOUND, format!("no terminal `{id}`")));
        };
        let (process, output) = names(&id)?;
        Ok((process, output, terminal.clone()))
    }
}

fn names(id: &str) -> Result<(ProcessName, BoxPath), Refused> {
    let invalid = |error: &dyn std::error::Error| Refused::params(error.to_string());
    let process = ProcessName::new(id).map_err(|error| invalid(&error))?;
    let output = BoxPath::new(format!("{HOME}/{OUTPUT}/{id}")).map_err(|error| invalid(&error))?;
    Ok((process, output))
}

fn path_of(params: &Fields<'_>) -> Result<BoxPath, Refused> {
    inside(&params.text("path").unwrap_or_default())
}

/// A path of the workspace, without `.`, `..` and links as far as the text shows; the rest is seen where it is.
fn inside(path: &str) -> Result<BoxPath, Refused> {
    let path = match path.trim_end_matches('/') {
        "" => path,
        plain => plain,
    };
    let path = BoxPath::new(path).map_err(|error| Refused::params(format!("`{path}`: {error}")))?;
    if path.is_within(WORKSPACE) {
        return Ok(path);
    }
    Err(Refused::params(format!(
        "`{path}` is not below {WORKSPACE}"
    )))
}

impl Conversation {
    /// Serves a request of the program, if it is one for files or terminals and the conversation is served with them.
    pub(crate) fn serve(
        &mut self,
        id: &str,
        method: &str,
        params: &Fields<'_>,
        effects: &mut Effects,
    ) -> bool {
        let born = self.born;
        let own = self.is_own(params.text("sessionId").as_deref());
        let Some(serving) = &mut self.serving else {
            return false;
        };
        let Some(work) = serving.work(born, method, params) else {
            return false;
        };
        let work = match work {
            Ok(_) if !own => Err(Refused::params("no such session")),
            work => work,
        };
        self.consume(effects);
        match work {
            Ok((work, wanted)) => {
                let job = self.mint("job");
                if let Some(serving) = &mut self.serving {
                    serving.doing.insert(job.clone(), (id.to_owned(), wanted));
                }
                effects.job(Job { id: job, work });
            }
            Err(Refused(code, text)) => effects.send(wire::error(id, code, &text)),
        }
        true
    }

    /// What came of what the program wanted.
    pub(crate) fn served(&mut self, job: &str, result: &JobResult, effects: &mut Effects) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        let Some((id, wanted)) = serving.doing.remove(job) else {
            return;
        };
        effects.send(match result {
            Ok(done) => match answer(done, &wanted) {
                Some(result) => wire::answer(&id, &result),
                None => wire::error(&id, INTERNAL_ERROR, "it gave something else"),
            },
            Err(Undone { missing, message }) => {
                if let Wanted::Terminal(terminal) = &wanted {
                    serving.terminals.remove(terminal);
                }
                let code = if *missing {
                    RESOURCE_NOT_FOUND
                } else {
                    INTERNAL_ERROR
                };
                wire::error(&id, code, message)
            }
        });
    }

    /// The program is gone, and nobody releases what it began.
    pub(crate) fn release_terminals(&mut self, effects: &mut Effects) {
        let Some(serving) = &mut self.serving else {
            return;
        };
        serving.doing.clear();
        for id in std::mem::take(&mut serving.terminals).into_keys() {
            if let Ok((process, output)) = names(&id) {
                let id = format!("release/{id}");
                let work = Work::Forget { process, output };
                effects.job(Job { id, work });
            }
        }
    }
}

/// What came of it in the protocol's words.
fn answer(done: &Done, wanted: &Wanted) -> Option<Value> {
    Some(match (done, wanted) {
        (Done::Text(text), Wanted::Text) => json!({"content": text}),
        (Done::Nothing, Wanted::Nothing) => json!({}),
        (Done::Nothing, Wanted::Terminal(id)) => json!({"terminalId": id}),
        (Done::Shown { text, cut, exit }, Wanted::Shown) => {
            let exit = exit.as_ref().map(ended);
            json!({"output": text, "truncated": cut, "exitStatus": exit})
        }
        (Done::Ended(exit), Wanted::Ended) => ended(exit),
        _ => return None,
    })
}

fn ended(exit: &ExitStatus) -> Value {
    let signal = exit.signal.map(|signal| match signal {
        2 => "SIGINT".to_owned(),
        9 => "SIGKILL".to_owned(),
        11 => "SIGSEGV".to_owned(),
        15 => "SIGTERM".to_owned(),
        other => format!("SIG{other}"),
    });
    json!({"exitCode": exit.code, "signal": signal})
}
