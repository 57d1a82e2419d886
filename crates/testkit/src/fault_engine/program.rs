//! The program: reads prompts and does what they say.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;

use super::acp::Acp;
use super::claude::Claude;
use super::codex::Codex;
use super::native::{End, Native, Protocol, Quirk, Tell, Word, state_file};
use super::pi::Pi;
use super::script::{Step, parse};
use crate::fake_engine::{Heard, Host, ToolEvent};

/// How often a running command is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Why a turn's script does not go on.
enum Halt {
    /// The turn was stopped.
    Stopped,
    /// The turn is left without an end.
    Left,
    /// The prompt is not taken.
    Refused,
    /// The program ends.
    Exit(i32),
}

struct Program<'h, H> {
    host: &'h mut H,
    protocol: Protocol,
    native: Box<dyn Native>,
    conversation: String,
    prompts: Vec<String>,
    waiting: VecDeque<String>,
    /// How many bytes are printed at a time.
    piece: Option<usize>,
    /// A turn has begun and not ended.
    open: bool,
}

/// Runs the program to its end and gives its exit code. `arguments` are those of the program that it stands in for.
pub async fn run<H: Host>(
    host: &mut H,
    protocol: Protocol,
    quirk: Quirk,
    arguments: &[String],
) -> i32 {
    let nonce = host.nonce();
    let native: Box<dyn Native> = match protocol {
        Protocol::Codex => Box::new(Codex::new(quirk, nonce)),
        Protocol::Acp | Protocol::Hermes | Protocol::DeepseekHarness => {
            Box::new(Acp::new(protocol, quirk, nonce))
        }
        Protocol::Claude => {
            let exists = |path: &str| host.exists(path);
            match Claude::new(quirk, nonce, arguments, &exists) {
                Ok(claude) => Box::new(claude),
                Err(error) => {
                    host.eprint(&format!("{error}\n"));
                    return 1;
                }
            }
        }
        Protocol::Pi => match Pi::new(quirk, nonce, arguments) {
            Ok(pi) => Box::new(pi),
            Err(error) => {
                host.eprint(&format!("{error}\n"));
                return 1;
            }
        },
    };
    let mut program = Program {
        host,
        protocol,
        native,
        conversation: String::new(),
        prompts: Vec::new(),
        waiting: VecDeque::new(),
        piece: None,
        open: false,
    };
    loop {
        if let Err(code) = program.next().await {
            return code;
        }
    }
}

impl<H: Host> Program<'_, H> {
    /// The next thing to do; an exit code at the end.
    async fn next(&mut self) -> Result<(), i32> {
        if let Some(prompt) = self.waiting.pop_front() {
            return self.turn(&prompt).await;
        }
        match self.listen(None).await {
            None => Err(0),
            Some(Word::Stop) if self.open => {
                self.stopped();
                Ok(())
            }
            Some(Word::Stop) => {
                self.tell(Tell::NothingToStop);
                Ok(())
            }
            Some(Word::Exit(code, text)) => {
                self.host.eprint(&format!("{text}\n"));
                Err(code)
            }
            Some(_) => Ok(()),
        }
    }

    async fn turn(&mut self, prompt: &str) -> Result<(), i32> {
        let steps = parse(prompt);
        match self.act_all(prompt, steps).await {
            Ok(()) => {
                if self.open {
                    self.end(End::Completed);
                    self.tell(Tell::Idle);
                }
            }
            Err(Halt::Stopped) => self.stopped(),
            Err(Halt::Left | Halt::Refused) => {}
            Err(Halt::Exit(code)) => return Err(code),
        }
        self.piece = None;
        Ok(())
    }

    async fn act_all(&mut self, prompt: &str, steps: Vec<Step>) -> Result<(), Halt> {
        if steps.first() == Some(&Step::Refuse) {
            self.tell(Tell::Refuse);
            return Err(Halt::Refused);
        }
        self.remember(prompt);
        self.open = true;
        self.tell(Tell::Begin);
        for step in steps {
            self.act(step).await?;
        }
        Ok(())
    }

    async fn act(&mut self, step: Step) -> Result<(), Halt> {
        match step {
            Step::Say(text) => self.tell(Tell::Message(&text)),
            Step::Half(text) => self.tell(Tell::Half(&text)),
            Step::Call(name) => self.tell(Tell::Call(&name)),
            Step::Result(output) => self.tell(Tell::Result(&output)),
            Step::Run(command) => return self.run_tool(&command).await,
            Step::Ask => return self.ask().await,
            Step::Child(text) => self.tell(Tell::Child(&text)),
            Step::Strange(word) => self.tell(Tell::Strange(&word)),
            Step::Request(method) => return self.request(&method).await,
            Step::Garbage(text) => self.print(format!("{text}\n").as_bytes()),
            Step::Raw => self.print(b"\xff\xfe{\"garbled\":1}\n"),
            Step::Big(size) => self.tell(Tell::Result(&"x".repeat(size))),
            Step::Pieces(size) => self.piece = Some(size),
            Step::Stderr(text) => self.host.eprint(&format!("{text}\n")),
            Step::Recall => self.recall(),
            Step::Hold => return self.hold().await,
            Step::Deaf => return Err(self.deaf().await),
            Step::Loiter => {
                self.deaf().await;
                // Only a real process can be ended from here, by a signal.
                loop {
                    std::thread::park();
                }
            }
            Step::Rest(verdict) => self.tell(Tell::Rest(verdict)),
            Step::End => self.end(End::Completed),
            Step::Idle => self.tell(Tell::Idle),
            Step::Open => return Err(Halt::Left),
            Step::Exit(code) => return Err(Halt::Exit(code)),
            Step::Refuse => {}
        }
        Ok(())
    }

    /// Hears a line, if one comes in time; `None` at the end of the input.
    async fn listen(&mut self, within: Option<Duration>) -> Option<Word> {
        let line = match self.host.line(within).await {
            Heard::Line(line) => line,
            Heard::Nothing => return Some(Word::Other),
            Heard::End => return None,
        };
        let host = &*self.host;
        let heard = self.native.hear(&line, &|path| host.exists(path));
        for reply in heard.replies {
            self.print(format!("{reply}\n").as_bytes());
        }
        match heard.word {
            Word::Prompt(prompt) => {
                self.waiting.push_back(prompt);
                Some(Word::Other)
            }
            Word::Opened(conversation) => {
                self.open_conversation(conversation);
                Some(Word::Other)
            }
            word => Some(word),
        }
    }

    fn open_conversation(&mut self, conversation: String) {
        let file = state_file(self.protocol, &conversation);
        self.conversation = conversation;
        match self.host.read(&file) {
            Some(content) => {
                let text = String::from_utf8_lossy(&content).into_owned();
                let said = text.lines().filter_map(|line| {
                    let record: serde_json::Value = serde_json::from_str(line).ok()?;
                    record["prompt"].as_str().map(str::to_owned)
                });
                self.prompts = said.collect();
            }
            None => self.record(&json!({"conversation": self.conversation})),
        }
    }

    fn remember(&mut self, prompt: &str) {
        self.record(&json!({"prompt": prompt}));
        self.prompts.push(prompt.to_owned());
    }

    fn record(&mut self, record: &serde_json::Value) {
        let file = state_file(self.protocol, &self.conversation);
        if !self.host.append(&file, format!("{record}\n").as_bytes()) {
            self.host.eprint("the state could not be written\n");
        }
    }

    fn recall(&mut self) {
        let earlier = &self.prompts[..self.prompts.len().saturating_sub(1)];
        let text = format!("you said: {}", json!(earlier));
        self.tell(Tell::Message(&text));
    }

    fn tell(&mut self, what: Tell<'_>) {
        for line in self.native.tell(what) {
            let mut line = line.into_bytes();
            line.push(b'\n');
            self.print(&line);
        }
    }

    fn end(&mut self, end: End) {
        self.open = false;
        self.tell(Tell::End(end));
    }

    fn stopped(&mut self) {
        self.end(End::Interrupted);
        self.tell(Tell::Idle);
    }

    fn print(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(self.piece.unwrap_or(usize::MAX)) {
            self.host.print(piece);
        }
    }

    async fn ask(&mut self) -> Result<(), Halt> {
        self.tell(Tell::Ask);
        loop {
            match self.listen(None).await {
                None => return Err(Halt::Exit(0)),
                Some(Word::Stop) => return Err(Halt::Stopped),
                Some(Word::Answer(choice)) => {
                    self.tell(Tell::Result(&choice));
                    self.tell(Tell::Message(&format!("answer: {choice}")));
                    return Ok(());
                }
                Some(_) => {}
            }
        }
    }

    async fn request(&mut self, method: &str) -> Result<(), Halt> {
        self.tell(Tell::Request(method));
        loop {
            match self.listen(None).await {
                None => return Err(Halt::Exit(0)),
                Some(Word::Stop) => return Err(Halt::Stopped),
                Some(Word::Reply(error)) => {
                    self.tell(Tell::Message(&format!("reply: {error}")));
                    return Ok(());
                }
                Some(_) => {}
            }
        }
    }

    async fn hold(&mut self) -> Result<(), Halt> {
        loop {
            match self.listen(None).await {
                None => return Err(Halt::Exit(0)),
                Some(Word::Stop) => return Err(Halt::Stopped),
                Some(_) => {}
            }
        }
    }

    async fn deaf(&mut self) -> Halt {
        while self.listen(None).await.is_some() {}
        Halt::Exit(0)
    }

    async fn run_tool(&mut self, command: &str) -> Result<(), Halt> {
        self.tell(Tell::Call(command));
        self.host.start_tool(command);
        let mut output = String::new();
        loop {
            match self.host.poll_tool() {
                ToolEvent::Output(more) => output.push_str(&more),
                ToolEvent::Done(_) => break,
                ToolEvent::Nothing => match self.listen(Some(LOOK_AGAIN)).await {
                    None => return Err(Halt::Exit(0)),
                    Some(Word::Stop) => {
                        self.host.kill_tool();
                        return Err(Halt::Stopped);
                    }
                    Some(_) => {}
                },
            }
        }
        self.tell(Tell::Result(&output));
        Ok(())
    }
}
