//! A small engine: a program that repeats what it is told, and the protocol that speaks with it.
//!
//! To the program: `hello KEY`, `say ID TEXT`, `answer ID CHOICE`, `have TEXT`, `stop`, `bye`.
//! From it: `welcome KEY`, `took ID`, `piece TEXT`, `said TEXT`, `ask ID`, `want PATH`, `keep PATH`, `done`, `noise ...`.

use astrabox_engine::line::{
    Done, Effects, Handshake, Job, JobResult, Line, LineProtocol, Powers, Work,
};
use astrabox_engine::sandbox::{BoxPath, ExitStatus, Signal};
use astrabox_engine::{EngineInput, Error, ErrorKind, Result};
use astrabox_types::{
    ChildRunId, ContentPart, DeltaChannel, InputId, InteractionAnswer, MessageKind, Presentation,
};
use serde::{Deserialize, Serialize};

use crate::fake::{Out, Program};

/// The program. `deaf` to: 0 nothing, 1 the end of standard input, 2 SIGTERM as well.
pub(crate) struct Echo {
    pub(crate) key: &'static str,
    pub(crate) deaf: u8,
}

impl Program for Echo {
    fn line(&mut self, line: &str, out: &mut Out) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (id, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match verb {
            "hello" => {
                out.stderr.extend(b"starting\n");
                out.say("strange words");
                match self.key {
                    "" => {}
                    "die" => out.exit(3),
                    key => out.say(&format!("welcome {key}")),
                }
            }
            "say" => self.say(id, text, out),
            "answer" => {
                out.say(&format!("said you chose {text}"));
                out.say("done");
            }
            "have" => {
                out.say(&format!("said {rest}"));
                out.say("done");
            }
            "bye" => {}
            _ => out.say(&format!("what is {line}")),
        }
    }

    fn end(&mut self, out: &mut Out) {
        if self.deaf == 0 {
            out.exit(0);
        }
    }

    fn signal(&mut self, _: Signal, out: &mut Out) {
        if self.deaf < 2 {
            out.exit(143);
        }
    }
}

impl Echo {
    fn say(&self, id: &str, text: &str, out: &mut Out) {
        out.say(&format!("took {id}"));
        match text {
            "ask" => out.say("ask q1"),
            text if text.starts_with("want ") || text.starts_with("keep ") => out.say(text),
            "die" => {
                out.stderr.extend(b"it hurts\n");
                out.stdout.extend(b"piece half a li");
                out.exit(7);
            }
            text => {
                let (head, tail) = text.split_at(text.len() / 2);
                out.say(&format!("piece {head}"));
                out.stderr.extend(b"working\n");
                out.say(&format!("piece {tail}"));
                out.say(&format!("said {text}"));
                out.say("done");
            }
        }
    }
}

/// The protocol.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct EchoProtocol {
    key: Option<String>,
    born: u64,
    epoch: u64,
    messages: u64,
    length: u64,
    open: bool,
    question: Option<String>,
}

impl LineProtocol for EchoProtocol {
    const POWERS: Powers = Powers {
        interactions: true,
        permission_modes: true,
        child_run_control: false,
    };

    fn begin(&mut self, expected: Option<&str>, effects: &mut Effects) {
        self.born = self.epoch;
        effects.send(format!("hello {}", expected.unwrap_or("-")));
    }

    fn handshake(&self) -> Handshake {
        match &self.key {
            Some(key) => Handshake::Bound(key.clone()),
            None => Handshake::Pending,
        }
    }

    fn attached(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    fn on_line(&mut self, line: Line<'_>, effects: &mut Effects) {
        let Line::Text(line) = line else {
            let key = format!("{}/{}", self.born, effects.at);
            effects.emit.diagnostic(&key, "garbage_line", "", None);
            return;
        };
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let message = format!("{}/{}", self.born, self.messages);
        let emit = &mut effects.emit;
        match verb {
            "welcome" => self.key = Some(rest.to_owned()),
            "took" => emit.input_consumed(rest.parse::<InputId>().expect("it is ours")),
            "piece" => {
                emit.delta(DeltaChannel::Text, &message, self.length, rest);
                self.length += rest.len() as u64;
            }
            "said" => {
                emit.message(MessageKind::Text, &message, rest.to_owned(), false, None);
                self.messages += 1;
                self.length = 0;
            }
            "ask" => {
                self.question = Some(rest.to_owned());
                let questions = Vec::new();
                emit.interaction_requested(rest, Presentation::Question { questions }, None);
            }
            "want" => {
                let path = BoxPath::new(rest).expect("it is a path");
                let (line, lines) = (Some(2), Some(1));
                let work = Work::ReadText { path, line, lines };
                effects.job(self.job(work));
            }
            "keep" => {
                let path = BoxPath::new(rest).expect("it is a path");
                let text = "kept".to_owned();
                effects.job(self.job(Work::WriteText { path, text }));
            }
            "done" => {
                self.open = false;
                emit.completed(None);
            }
            "noise" => {}
            _ => {
                let key = format!("{}/{}", self.born, effects.at);
                emit.diagnostic(&key, "unknown_event", line, None);
            }
        }
    }

    fn on_job(&mut self, id: &str, result: &JobResult, effects: &mut Effects) {
        assert_eq!(id, format!("job/{}/{}", self.born, self.messages));
        effects.send(match result {
            Ok(Done::Text(text)) => format!("have {}", text.trim_end()),
            Ok(done) => format!("have {done:?}"),
            Err(undone) => format!("have not: {}", undone.message),
        });
    }

    fn on_exit(&mut self, exit: &ExitStatus, stderr: &str, effects: &mut Effects) {
        if std::mem::take(&mut self.open) {
            let message = format!("code {:?}; {stderr}", exit.code);
            effects.emit.failed("engine_exited", message, None);
        }
    }

    fn deliver(&mut self, input: &EngineInput, effects: &mut Effects) -> Result<()> {
        let [ContentPart::Text { text }] = &input.content[..] else {
            let text = "exactly one text is taken";
            return Err(Error::new(ErrorKind::InvalidConfiguration, "deliver", text));
        };
        self.open = true;
        effects.send(format!("say {} {text}", input.input_id));
        Ok(())
    }

    fn interrupt(&mut self, effects: &mut Effects) {
        effects.send("stop".to_owned());
    }

    fn close(&mut self, effects: &mut Effects) {
        effects.send("bye".to_owned());
    }

    fn tools(&self) -> Vec<String> {
        vec!["b".to_owned(), "a".to_owned(), "b".to_owned()]
    }

    fn program(&self) -> Option<String> {
        self.key.as_ref().map(|_| "echo 1".to_owned())
    }

    fn answer(
        &mut self,
        native_id: &str,
        answer: &InteractionAnswer,
        effects: &mut Effects,
    ) -> Result<()> {
        let InteractionAnswer::Choose { choice_id, .. } = answer else {
            return Err(Error::new(ErrorKind::InvalidAnswer, "answer", "a choice"));
        };
        if self.question.as_deref() != Some(native_id) {
            return Err(Error::new(ErrorKind::InvalidAnswer, "answer", "not open"));
        }
        self.question = None;
        effects.send(format!("answer {native_id} {choice_id}"));
        Ok(())
    }

    fn set_mode(&mut self, mode: &str, _: &mut Effects) -> Result<()> {
        match mode {
            "calm" => Ok(()),
            _ => Err(Error::new(
                ErrorKind::InvalidConfiguration,
                "set mode",
                mode,
            )),
        }
    }

    fn stop_child(&mut self, _: &ChildRunId, _: &mut Effects) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "stop child", ""))
    }
}

impl EchoProtocol {
    fn job(&self, work: Work) -> Job {
        let id = format!("job/{}/{}", self.born, self.messages);
        Job { id, work }
    }
}
