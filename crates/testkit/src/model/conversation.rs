//! What a model request says, independent of the wire that carried it.

use serde::Serialize;
use serde_json::Value;

/// The API that a request speaks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Anthropic Messages.
    #[default]
    Messages,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    Chat,
}

/// One entry of the history that a request carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Words of the user.
    User(String),
    /// Words that the program put in: instructions, environment, reminders.
    Context(String),
    /// Words of the model.
    Assistant(String),
    /// A tool call of the model.
    Call {
        /// The id that the result refers to.
        id: String,
        /// The tool's native name.
        name: String,
    },
    /// A tool result.
    Result {
        /// The id of the call.
        id: String,
        /// Its text; parts that are not text are left out.
        text: String,
    },
}

/// How a tool wants its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolKind {
    /// A JSON object by schema.
    Function,
    /// Free text (Responses `custom` tools).
    Custom,
    /// The vendor's built-in shell (Responses `local_shell`).
    LocalShell,
}

/// A tool that the request offers.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOffer {
    /// Native name, without namespace.
    pub name: String,
    /// The namespace that it stands in, if any (Responses only).
    pub namespace: Option<String>,
    /// How it wants its input.
    pub kind: ToolKind,
    /// JSON schema of the input; null where there is none.
    pub schema: Value,
    /// What the program says about it.
    pub description: String,
}

/// A model request in common terms.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    pub(crate) wire: Wire,
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) entries: Vec<Entry>,
    pub(crate) tools: Vec<ToolOffer>,
    /// What the program calls the conversation, where it says so.
    pub(crate) thread: String,
    pub(crate) attempt: u32,
}

impl Conversation {
    /// The API that was spoken.
    pub fn wire(&self) -> Wire {
        self.wire
    }

    /// The model that was asked for.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether a stream was asked for.
    pub fn stream(&self) -> bool {
        self.stream
    }

    /// The whole history, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The tools on offer.
    pub fn tools(&self) -> &[ToolOffer] {
        &self.tools
    }

    /// How often this server was asked exactly this before, retries included; starts at 0.
    /// Conversations that a program names (`prompt_cache_key`, `metadata.user_id`) count apart.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What the user said last; empty if nothing.
    pub fn prompt(&self) -> &str {
        self.prompts().last().copied().unwrap_or_default()
    }

    /// Everything the user said, oldest first.
    pub fn prompts(&self) -> Vec<&str> {
        self.entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::User(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The tool results since the last prompt, one per call, the latest text of each.
    pub fn results(&self) -> Vec<&str> {
        let start = self
            .entries
            .iter()
            .rposition(|entry| matches!(entry, Entry::User(_)))
            .unwrap_or(0);
        let mut found: Vec<(&str, &str)> = Vec::new();
        for entry in &self.entries[start..] {
            let Entry::Result { id, text } = entry else {
                continue;
            };
            match found.iter_mut().find(|(seen, _)| seen == id) {
                Some(slot) => slot.1 = text,
                None => found.push((id, text)),
            }
        }
        found.into_iter().map(|(_, text)| text).collect()
    }
}

/// How texts begin that programs put in without an element around them: Codex 0.169.0, then DeepSeek Harness 0.2.1rc2.
const PREFIXES: [&str; 6] = [
    "# AGENTS.md instructions",
    "Current runtime context.",
    "The approval policy changed from",
    "The sandbox mode changed from",
    "background job ",
    "Background subagent ",
];

/// What DeepSeek Harness 0.2.1rc2 writes behind the task of a sub-agent, in the same text.
const SUFFIX_OF_A_TASK: &str = "Your parent agent id is \"";

/// Sorts a text of the user role into words of the user and words of the program.
pub(crate) fn user_entry(text: &str) -> Entry {
    let words = without_element(text, "system-reminder");
    let end = words.find(SUFFIX_OF_A_TASK).unwrap_or(words.len());
    let words = words[..end].trim();
    let added = PREFIXES.iter().any(|prefix| words.starts_with(prefix));
    if words.is_empty() || is_one_element(words) || added {
        Entry::Context(text.to_owned())
    } else {
        Entry::User(words.to_owned())
    }
}

/// Cuts every `<name>...</name>` out of a text.
pub(crate) fn without_element(text: &str, name: &str) -> String {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once(&open) {
        let Some((_, after)) = after.split_once(&close) else {
            break;
        };
        kept.push_str(before);
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// Whether a text is `<name ...>...</name>` from end to end, as programs wrap what they add.
fn is_one_element(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('<') else {
        return false;
    };
    let name: String = inner
        .chars()
        .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
        .collect();
    !name.is_empty() && text.ends_with(&format!("</{name}>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_program_are_not_taken_for_the_users() {
        let cases = [
            ("hello", Some("hello")),
            ("  hello\n", Some("hello")),
            ("<environment_context>\n x</environment_context>", None),
            ("<system-reminder>be good</system-reminder>", None),
            ("<system-reminder>a</system-reminder>hi", Some("hi")),
            ("RUN: echo '<a>' > b", Some("RUN: echo '<a>' > b")),
            ("<b>bold</b> words", Some("<b>bold</b> words")),
            ("# AGENTS.md instructions for /workspace\n\nx", None),
            ("Current runtime context. This snapshot", None),
            ("background job bash-1 (bash: true) finished", None),
            (
                "SAY: xYour parent agent id is \"p\". Before",
                Some("SAY: x"),
            ),
            ("", None),
        ];
        for (text, expected) in cases {
            let prompt = match user_entry(text) {
                Entry::User(words) => Some(words),
                _ => None,
            };
            assert_eq!(prompt.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn results_count_once_per_call_and_only_since_the_last_prompt() {
        let result = |id: &str, text: &str| Entry::Result {
            id: id.to_owned(),
            text: text.to_owned(),
        };
        let conversation = Conversation {
            entries: vec![
                Entry::User("first".to_owned()),
                result("a", "old"),
                Entry::User("second".to_owned()),
                result("b", "partial"),
                result("c", "other"),
                result("b", "whole"),
            ],
            ..Conversation::default()
        };
        assert_eq!(conversation.results(), ["whole", "other"]);
    }
}
