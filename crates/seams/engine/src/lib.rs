//! The contract of an engine: how one agent program is installed, started, spoken to and understood.
//!
//! Invariant: an engine sees a [`sandbox::Workload`] and a [`model::ResolvedModelAccess`], never a provider,
//! a database, another session or a real credential.
//!
//! The contract, by clause (conformance cases cite them):
//!
//! * **EN1** An adapter is a stateless singleton; everything about one conversation is in its client.
//! * **EN2** `capabilities` are constant and true: what is declared works, what is not declared is refused.
//! * **EN3** `activate` starts or reaches the program and returns a client, or an error that leaves no process.
//! * **EN4** `bind_conversation` proves the exact native conversation; another one is an error, never accepted.
//! * **EN5** `deliver` is idempotent by input id and keeps the order.
//! * **EN6** `InputConsumed` comes before any output that the input caused.
//! * **EN7** Bytes for the program leave only after the checkpoint that holds them is committed, so that a
//!   crash between the two neither loses nor repeats them.
//! * **EN8** Translating is a pure function of the checkpoint and the native bytes: the same bytes in any
//!   chunking give the same emissions.
//! * **EN9** A turn ends with exactly one `Terminal`: on the program's own word or on its exit, never on silence.
//!   Work that goes on in the background is told before it. A tool's result may come after it, and is no new turn.
//! * **EN10** The event stream ends only after the process ended, and the client then says how; a lost connection is
//!   `Detached`.
//! * **EN11** Unknown native events are kept as diagnostics with the native text, never dropped.
//! * **EN12** Output of a child run carries its id and is never taken for the parent's.
//! * **EN13** Every server request of the program gets an answer, also one that is not known.
//! * **EN14** An optional power is an accessor that returns an implementation; flags are derived from it.

mod adapter;
mod capability;
mod client;
mod emission;
mod error;
pub mod line;
mod options;
mod recipe;
mod request;

pub use adapter::{EngineAdapter, Registration};
pub use capability::{EngineCapabilities, EngineManifest, OptionBlock, PermissionMode};
pub use client::{
    BindRequest, BoundConversation, Checkpoint, ChildRunControl, EngineClient, EngineInput,
    EventStream, Interactions, PermissionModes, ServerInfo,
};
pub use emission::{
    DeltaDraft, Emission, EmissionKind, Emitter, EventDraft, InteractionDraft, Step, Terminal,
};
pub use error::{Error, ErrorKind, Result, from_sandbox};
pub use options::check_options;
pub use recipe::{ImageRecipe, NpmPackage, PythonPackages, RecipeCheck, RecipeCopy};
pub use request::{
    Conversation, EngineStartupContext, McpHeader, ModelPath, NativeStateSpec, PrepareContext,
    RecordFormat, SandboxRequest, SandboxRequestContext, StartupMaterialRequest, StateFiles,
};

/// What engines need of the seams below, so that an engine depends on this crate and `types` only.
pub use astrabox_model as model;
pub use astrabox_registry as registry;
pub use astrabox_sandbox as sandbox;
