//! What the program asks of a native protocol.

use astrabox_engine::sandbox::HOME;

/// Which program this stands in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `codex app-server`, as of Codex 0.169.0.
    Codex,
    /// `claude -p --input-format stream-json --output-format stream-json`, as of Claude Code 2.1.328.
    Claude,
    /// Any program that speaks the Agent Client Protocol, version 1.
    Acp,
    /// `pi --mode rpc`, as of Pi 1.6.0.
    Pi,
    /// `dsh --profile acp` with the plugin of its engine, as of DeepSeek Harness 0.2.1rc2.
    DeepseekHarness,
    /// The ACP server of Hermes Agent 0.19.0 in the host of its engine.
    Hermes,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Codex,
        Self::Claude,
        Self::Acp,
        Self::Pi,
        Self::DeepseekHarness,
        Self::Hermes,
    ];

    /// The protocol whose program has this name, as `codex`.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.program() == name)
    }

    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude",
            Self::Acp => "acp-agent",
            Self::Pi => "pi",
            Self::DeepseekHarness => "dsh",
            Self::Hermes => "hermes",
        }
    }

    /// What its engine starts, below the image's root.
    pub(super) fn launcher(self) -> String {
        match self {
            // A script, which the image's own node runs.
            Self::Pi => "bin/node".to_owned(),
            // The first package that the host loads.
            Self::Hermes => "python/agent/__init__.py".to_owned(),
            Self::Codex | Self::Claude | Self::Acp | Self::DeepseekHarness => {
                format!("bin/{}", self.program())
            }
        }
    }

    /// The engine's kind.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude_code",
            Self::Acp => "acp",
            Self::Pi => "pi",
            Self::DeepseekHarness => "deepseek_harness",
            Self::Hermes => "hermes",
        }
    }
}

/// The state directory of a program that only speaks ACP, below home.
pub const ACP_STATE: &str = ".acp-agent";

/// Where a conversation's own state is in the box.
#[must_use]
pub fn state_file(protocol: Protocol, conversation: &str) -> String {
    match protocol {
        Protocol::Codex => {
            format!("{HOME}/.codex/sessions/rollout-fault-{conversation}.jsonl")
        }
        Protocol::Claude => format!("{HOME}/.claude/projects/-workspace/{conversation}.jsonl"),
        Protocol::Acp => format!("{HOME}/{ACP_STATE}/{conversation}.jsonl"),
        Protocol::Pi => {
            format!("{HOME}/.pi/agent/sessions/--workspace--/{conversation}.jsonl")
        }
        Protocol::DeepseekHarness => {
            format!("{HOME}/.dsh/sessions/--workspace--/{conversation}/session.v4.jsonl")
        }
        Protocol::Hermes => format!("{HOME}/.hermes/saved/{conversation}.md"),
    }
}

/// How a program is odd before it gets any prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// It is not.
    Faithful,
    /// It never answers the handshake.
    Mute,
    /// Asked to resume a conversation, it comes up with another one.
    OtherConversation,
    /// Asked to resume a conversation, it knows nothing of it.
    Forgetful,
    /// It exits instead of opening a conversation.
    StillBorn,
}

impl Quirk {
    const ALL: [(&'static str, Self); 5] = [
        ("faithful", Self::Faithful),
        ("mute", Self::Mute),
        ("other-conversation", Self::OtherConversation),
        ("forgetful", Self::Forgetful),
        ("still-born", Self::StillBorn),
    ];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, one)| *one == self);
        found.map_or("faithful", |(name, _)| name)
    }

    /// The quirk of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, quirk)| *quirk)
    }
}

/// What the program tells of a turn that rests, when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has ended.
    Ended,
    /// A status of an ended turn, without the time of the end.
    Open,
}

/// How a turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    Interrupted,
}

/// What the host said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// A prompt.
    Prompt(String),
    /// The turn shall stop.
    Stop,
    /// An approval was answered with this.
    Answer(String),
    /// The request that nobody knows was answered with this.
    Reply(String),
    /// The conversation of this name is there.
    Opened(String),
    /// The program shall exit with this code and this word on standard error.
    Exit(i32, String),
    /// Nothing that concerns the script.
    Other,
}

/// What the program has to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell<'a> {
    /// The prompt is taken and its turn begins.
    Begin,
    /// The prompt is not taken.
    Refuse,
    /// There is no turn to stop.
    NothingToStop,
    Message(&'a str),
    Half(&'a str),
    Call(&'a str),
    Result(&'a str),
    /// The tool call wants approval.
    Ask,
    Child(&'a str),
    Strange(&'a str),
    Request(&'a str),
    /// The conversation rests, though its turn has not ended.
    Rest(Verdict),
    /// The turn ends.
    End(End),
    /// The conversation rests after its turn.
    Idle,
}

/// What a line of the host meant, and the lines that go back at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) word: Word,
    pub(super) replies: Vec<String>,
}

impl From<Word> for Heard {
    fn from(word: Word) -> Self {
        Self {
            word,
            replies: Vec::new(),
        }
    }
}

/// A native protocol. Pure: lines in, lines out.
pub(super) trait Native: Send {
    /// Understands a line of the host. `exists` tells whether a file is there.
    fn hear(&mut self, line: &str, exists: &dyn Fn(&str) -> bool) -> Heard;

    /// The lines that tell this.
    fn tell(&mut self, what: Tell<'_>) -> Vec<String>;
}
