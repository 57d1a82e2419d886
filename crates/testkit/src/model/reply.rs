//! What the model answers in one round, independent of the wire.

use std::time::Duration;

use serde_json::Value;

/// Token counts of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Tokens of the request that were read from a cache.
    pub cached: u64,
}

/// One thing that the model does.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Reasons.
    Think(String),
    /// Says; neighbouring texts are one message, a line each.
    Say(String),
    /// Runs a command with the program's shell tool.
    Run(String),
    /// Writes a file with the program's own file tool.
    Write {
        /// Path as the program would take it.
        path: String,
        /// The whole content.
        content: String,
    },
    /// Calls a tool by name.
    Tool {
        /// Native name, or `namespace.name`.
        name: String,
        /// Its input.
        input: Value,
    },
    /// Starts a sub-agent with this prompt.
    Spawn(String),
    /// Waits for the sub-agents with these native ids.
    Wait(Vec<String>),
    /// Waits until the name is released.
    Hold(String),
    /// Sends half an event and cuts the connection.
    Half,
    /// Cuts the connection between two events.
    Drop,
}

/// The answer to one request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    pub(crate) status: Option<u16>,
    pub(crate) steps: Vec<Step>,
    pub(crate) deltas: Option<usize>,
    pub(crate) slow: Option<Duration>,
    pub(crate) usage: Option<Usage>,
}

impl Reply {
    /// An empty answer; add steps to it.
    pub fn new() -> Self {
        Self::default()
    }

    /// An HTTP error in the vendor's shape.
    pub fn status(code: u16) -> Self {
        Self {
            status: Some(code),
            ..Self::default()
        }
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Adds a text.
    #[must_use]
    pub fn say(self, text: impl Into<String>) -> Self {
        self.step(Step::Say(text.into()))
    }

    /// Adds reasoning.
    #[must_use]
    pub fn think(self, text: impl Into<String>) -> Self {
        self.step(Step::Think(text.into()))
    }

    /// Adds a command for the program's shell tool.
    #[must_use]
    pub fn run(self, command: impl Into<String>) -> Self {
        self.step(Step::Run(command.into()))
    }

    /// Adds a call of a tool by name.
    #[must_use]
    pub fn tool(self, name: impl Into<String>, input: Value) -> Self {
        self.step(Step::Tool {
            name: name.into(),
            input,
        })
    }

    /// Adds a point at which to wait for a release.
    #[must_use]
    pub fn hold(self, name: impl Into<String>) -> Self {
        self.step(Step::Hold(name.into()))
    }

    /// Cuts each text into `n` deltas.
    #[must_use]
    pub fn deltas(mut self, n: usize) -> Self {
        self.deltas = Some(n);
        self
    }

    /// Waits so long between two deltas.
    #[must_use]
    pub fn slow(mut self, pause: Duration) -> Self {
        self.slow = Some(pause);
        self
    }

    /// Reports these token counts instead of counted words.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }
}
