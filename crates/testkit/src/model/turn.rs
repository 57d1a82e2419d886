//! Decides an answer from a conversation: which round of the turn this is and what it says.

use serde_json::{Value, json};

use super::conversation::{Conversation, Entry, without_element};
use super::directive::{Directive, Prompt, parse};
use super::reply::{Reply, Step};
use super::tools;

/// How much of a tool result is repeated.
const RESULT_CHARS: usize = 400;

/// The answer that the directives of the last prompt ask for.
pub(crate) fn reply(conversation: &Conversation) -> Reply {
    if unprompted(conversation) {
        return Reply::new().say("noted");
    }
    let prompt = parse(conversation.prompt());
    let mut turn = Turn {
        conversation,
        wanted: conversation.results().len(),
        round: 0,
        reply: Reply::new(),
        has_text: false,
        spoke: false,
    };
    for directive in &prompt.directives {
        turn.take(directive);
    }
    turn.finish(&prompt);
    turn.reply
}

/// Whether the program asks by itself, after the answer to the last prompt: Claude Code 2.1.328
/// does so when a sub-agent in the background is done.
fn unprompted(conversation: &Conversation) -> bool {
    let entries = &conversation.entries;
    let answered = |entry: &Entry| matches!(entry, Entry::Assistant(_) | Entry::Call { .. });
    let news = match entries.iter().rposition(answered) {
        Some(answer) => &entries[answer + 1..],
        None => return false,
    };
    let context = |entry: &Entry| matches!(entry, Entry::Context(_));
    !news.is_empty() && news.iter().all(context)
}

/// A walk over the directives that keeps the steps of one round.
struct Turn<'a> {
    conversation: &'a Conversation,
    wanted: usize,
    round: usize,
    reply: Reply,
    /// The wanted round has a text to be cut or stalled in.
    has_text: bool,
    /// The directives left nothing to echo.
    spoke: bool,
}

impl Turn<'_> {
    fn take(&mut self, directive: &Directive) {
        match directive {
            Directive::Say(text) => self.say(text.clone()),
            Directive::Unreadable(why) => self.say(format!("unreadable directive {why}")),
            Directive::Result => self.say(self.result_before(self.round)),
            Directive::Recall => self.say(self.recall()),
            Directive::Think(text) => self.push(Step::Think(text.clone())),
            Directive::Hold(name) => self.push(Step::Hold(name.clone())),
            Directive::Run(command) => self.call(Step::Run(command.clone())),
            Directive::Spawn(text) => self.call(Step::Spawn(text.clone())),
            Directive::Write { path, content } => self.call(Step::Write {
                path: path.clone(),
                content: content.clone(),
            }),
            Directive::Tool { name, input } => self.call(Step::Tool {
                name: name.clone(),
                input: input.clone(),
            }),
            Directive::Wait => self.wait(),
            Directive::Stall => self.cut(Step::Hold(super::server::STALL.to_owned()), None),
            Directive::Half { times } => self.cut(Step::Half, *times),
            Directive::Drop { times } => self.cut(Step::Drop, *times),
            Directive::Status { code, times } => {
                if self.round == self.wanted && self.due(*times) {
                    self.reply.status = Some(*code);
                }
            }
            Directive::Deltas(n) => self.reply.deltas = Some(*n),
            Directive::Slow(pause) => self.reply.slow = Some(*pause),
            Directive::Usage(usage) => self.reply.usage = Some(*usage),
        }
    }

    fn push(&mut self, step: Step) {
        if self.round == self.wanted {
            self.reply.steps.push(step);
        }
    }

    fn say(&mut self, text: String) {
        self.spoke = true;
        self.has_text |= self.round == self.wanted;
        self.push(Step::Say(text));
    }

    /// A call ends the round; one that the program offers no tool for is a text instead.
    fn call(&mut self, step: Step) {
        match tools::resolve(&step, self.conversation) {
            Ok(_) => {
                self.spoke = true;
                self.push(step);
                self.round += 1;
            }
            Err(why) => self.say(why),
        }
    }

    fn wait(&mut self) {
        let results = self.conversation.results();
        let before = &results[..self.round.min(results.len())];
        let step = Step::Wait(before.iter().flat_map(|text| agent_ids(text)).collect());
        if tools::resolve(&step, self.conversation).is_ok() {
            self.call(step);
        }
    }

    fn cut(&mut self, step: Step, times: Option<u32>) {
        if self.round != self.wanted || !self.due(times) {
            return;
        }
        if !self.has_text {
            self.has_text = true;
            self.push(Step::Say("partial".to_owned()));
        }
        self.push(step);
    }

    fn due(&self, times: Option<u32>) -> bool {
        times.is_none_or(|times| self.conversation.attempt < times)
    }

    /// Adds the closing text of a turn that would end without one.
    fn finish(&mut self, prompt: &Prompt) {
        if self.round > self.wanted {
            return;
        }
        let said = self
            .reply
            .steps
            .iter()
            .any(|step| matches!(step, Step::Say(_)));
        let text = if self.wanted > 0 {
            if said {
                return;
            }
            self.result_before(self.wanted)
        } else if self.spoke {
            return;
        } else if !prompt.plain.is_empty() {
            format!("echo: {}", prompt.plain)
        } else if let Some(n) = self.reply.deltas {
            let words: Vec<String> = (1..=n).map(|n| format!("d{n}")).collect();
            words.join(" ")
        } else {
            "ok".to_owned()
        };
        self.reply.steps.push(Step::Say(text));
    }

    fn result_before(&self, round: usize) -> String {
        let results = self.conversation.results();
        let Some(text) = round.checked_sub(1).and_then(|index| results.get(index)) else {
            return "no tool said anything".to_owned();
        };
        let beginning: String = tool_output(text).chars().take(RESULT_CHARS).collect();
        format!("tool said: <<{}>>", beginning.trim_end())
    }

    fn recall(&self) -> String {
        let mut earlier = self.conversation.prompts();
        earlier.pop();
        format!("you said: {}", json!(earlier))
    }
}

/// The output itself, without what programs put around it.
fn tool_output(text: &str) -> String {
    if let Ok(Value::Object(object)) = serde_json::from_str(text)
        && let Some(Value::String(output)) = object.get("output")
    {
        return output.clone();
    }
    // Claude Code 2.1.328 appends what it wants the model to know.
    let text = without_element(text, "system-reminder");
    let mut text = text.as_str();
    while let Some((head, output)) = text.split_once("Output:\n") {
        if !head.lines().all(is_report) {
            break;
        }
        text = output;
    }
    text.to_owned()
}

/// Whether a line is one of those that Codex 0.169.0 puts before a tool's output.
fn is_report(line: &str) -> bool {
    const BEGINNINGS: [&str; 7] = [
        "Chunk ID: ",
        "Wall time",
        "Exit code: ",
        "Process exited",
        "Process running",
        "Original token count: ",
        "Script completed",
    ];
    BEGINNINGS.iter().any(|begin| line.starts_with(begin))
}

/// The sub-agent ids in a spawn tool's result.
fn agent_ids(text: &str) -> Vec<String> {
    let output = tool_output(text);
    let Ok(Value::Object(object)) = serde_json::from_str(&output) else {
        return Vec::new();
    };
    ["agent_id", "task_name", "agentId"]
        .iter()
        .filter_map(|key| object.get(*key)?.as_str())
        .map(str::to_owned)
        .take(1)
        .collect()
}
