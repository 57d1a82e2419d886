//! What each directive does.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use astrabox_types::{ChildRunState, FileChangeKind};
use serde_json::json;

use super::directive::Directive;
use super::host::{Host, ToolEvent};
use super::program::{
    Done, Halt, LOOK_AGAIN, Program, Record, Work, WorkKind, halves, in_workspace, words,
};
use super::wire::{AskForm, FromProgram};

impl<H: Host> Program<'_, H> {
    pub(super) async fn act(&mut self, directive: Directive, notice: Option<&str>) -> Done {
        match directive {
            Directive::Say(text) => self.message(&[&text], false, None),
            Directive::Think(text) => self.message(&[&text], true, None),
            Directive::Deltas { count, hold } => self.deltas(count, hold.as_deref()).await?,
            Directive::Clock { count, pause } => self.clock(count, pause).await?,
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
                let kind = if lingers {
                    WorkKind::Linger
                } else {
                    WorkKind::Report
                };
                self.leave(name, text, kind);
            }
            Directive::Leave { name, text } => {
                let call = self.fresh("c");
                self.say(&FromProgram::Call {
                    call: call.clone(),
                    tool: "sh".to_owned(),
                    input: json!({ "until": name }),
                });
                self.leave(name, text, WorkKind::Result(call));
            }
            Directive::ChildAsk { name, text } => {
                let child = self.fresh("k");
                self.say(&FromProgram::Child {
                    child: child.clone(),
                    state: ChildRunState::Running,
                });
                self.leave(name, text, WorkKind::Asking(child));
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

    fn leave(&mut self, name: String, text: String, kind: WorkKind) {
        self.background.push(Work { name, text, kind });
        self.say(&FromProgram::Background { open: true });
    }

    pub(super) fn tool_ended(&mut self, call: &str, text: &str) {
        self.say(&FromProgram::Delta {
            message: call.to_owned(),
            reasoning: false,
            tool: true,
            text: text.to_owned(),
            child: None,
        });
        self.say(&FromProgram::Result {
            call: call.to_owned(),
            tool: "sh".to_owned(),
            output: json!({ "output": text }),
            error: false,
        });
    }

    pub(super) async fn child_asks(&mut self, child: &str, text: &str) -> Done {
        self.stop = false;
        let ask = format!("a-{child}");
        self.say(&FromProgram::Ask {
            ask: ask.clone(),
            form: AskForm::Approval,
            text: text.to_owned(),
            child: Some(child.to_owned()),
        });
        let answer = self.wait(|program| program.answers.remove(&ask)).await?;
        let text = format!("answer: {}", words(&answer));
        self.message(&[&text], false, Some(child));
        self.say(&FromProgram::Child {
            child: child.to_owned(),
            state: ChildRunState::Completed,
        });
        Ok(())
    }

    /// Says a message in these pieces.
    pub(super) fn message(&mut self, pieces: &[&str], reasoning: bool, child: Option<&str>) {
        let message = self.fresh("m");
        for text in pieces.iter().filter(|text| text.len() < 1 << 20) {
            self.delta(&message, reasoning, text, child);
        }
        self.complete(message, pieces.concat(), reasoning, child);
    }

    pub(super) fn delta(
        &mut self,
        message: &str,
        reasoning: bool,
        text: &str,
        child: Option<&str>,
    ) {
        self.say(&FromProgram::Delta {
            message: message.to_owned(),
            reasoning,
            tool: false,
            text: text.to_owned(),
            child: child.map(str::to_owned),
        });
    }

    pub(super) fn complete(
        &mut self,
        message: String,
        text: String,
        reasoning: bool,
        child: Option<&str>,
    ) {
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

    async fn clock(&mut self, count: usize, pause: Duration) -> Done {
        let message = self.fresh("m");
        let mut whole = String::new();
        for _ in 0..count {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let piece = format!("{}\n", now.unwrap_or_default().as_nanos());
            self.delta(&message, false, &piece, None);
            whole.push_str(&piece);
            self.listen(Some(pause)).await;
            self.halted()?;
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
                child: None,
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
            child: None,
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
