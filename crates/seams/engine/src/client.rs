//! The client: one bound native conversation.

use std::time::Duration;

use astrabox_sandbox::ExitStatus;
use astrabox_types::{ChildRunId, ContentPart, InputId, InteractionAnswer};
use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::{Result, Step};

/// The steps of a conversation, in order.
pub type EventStream<'a> = BoxStream<'a, Result<Step>>;

/// One bound native conversation. See the crate's clauses EN4 to EN14.
///
/// The platform polls `turn_events` and, for every step that is to be durable, takes `checkpoint`, commits it
/// together with the step's events, and then calls `committed`. All calls come from one task.
#[async_trait]
pub trait EngineClient: Send + Sync + 'static {
    /// Brings the program to the conversation and proves which one it is (EN4).
    async fn bind_conversation(&self, request: BindRequest) -> Result<BoundConversation>;

    /// Queues an input for the program; its bytes leave with a later step (EN5, EN7).
    async fn deliver(&self, input: EngineInput) -> Result<()>;

    /// The steps from now on. Only one stream at a time; dropping it loses nothing.
    fn turn_events(&self) -> EventStream<'_>;

    /// The state after the last step that the stream gave.
    fn checkpoint(&self) -> Checkpoint;

    /// Tells that this checkpoint is durable: its outgoing bytes are written, its input is freed (EN7).
    async fn committed(&self, checkpoint: &Checkpoint) -> Result<()>;

    /// Asks the program to stop the running turn; the answer is a `Terminal` in the stream.
    async fn interrupt(&self) -> Result<()>;

    /// The tools that the program told of so far, by native name.
    fn capabilities(&self) -> Vec<String>;

    /// Ends the program in order: its own way first, then by signal. The stream ends.
    async fn close(&self, within: Duration) -> Result<()>;

    /// How the program ended, once the stream of its steps has (EN10).
    fn exit(&self) -> Option<ExitStatus>;

    /// Answering what the program asks.
    fn interactions(&self) -> Option<&dyn Interactions>;

    /// Changing the permission mode while it runs.
    fn permission_modes(&self) -> Option<&dyn PermissionModes>;

    /// Stopping child runs.
    fn child_run_control(&self) -> Option<&dyn ChildRunControl>;

    /// Telling about the program.
    fn server_info(&self) -> Option<&dyn ServerInfo>;
}

/// Answers what the program asks.
#[async_trait]
pub trait Interactions: Send + Sync {
    /// Queues the answer to the open question with this native id; its bytes leave with a later step (EN7).
    async fn answer(&self, native_id: &str, answer: &InteractionAnswer) -> Result<()>;
}

/// Changes the permission mode.
#[async_trait]
pub trait PermissionModes: Send + Sync {
    /// Makes this mode, by native name, hold for the turns that follow.
    async fn set_mode(&self, mode: &str) -> Result<()>;
}

/// Stops child runs.
#[async_trait]
pub trait ChildRunControl: Send + Sync {
    /// Asks the program to stop a child run.
    async fn stop(&self, run: &ChildRunId) -> Result<()>;
}

/// Tells about the program.
pub trait ServerInfo: Send + Sync {
    /// The program's name and version as it reports them, once it did.
    fn program(&self) -> Option<String>;
}

/// Which conversation to bring the program to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindRequest {
    /// The native key of the conversation; `None` begins a new one.
    pub expected: Option<String>,
    /// How long the program may take.
    pub within: Duration,
}

/// The proof that a conversation is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundConversation {
    /// The native key, as the program told it.
    pub native_key: String,
}

/// One input on its way to the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineInput {
    /// Its id.
    pub input_id: InputId,
    /// What it says.
    pub content: Vec<ContentPart>,
    /// A word from the platform that the program should know, as that the last turn ended abnormally.
    pub notice: Option<String>,
}

/// The whole state of a client, opaque to the platform: where in the native stream it is, what it still has to
/// write, and the translator's state (EN7, EN8).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Checkpoint(String);

impl Checkpoint {
    /// Takes a client's own form, which is any text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The client's own form.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It holds what people said; a log needs its size only.
        write!(f, "Checkpoint({} bytes)", self.0.len())
    }
}
