//! The adapter: declares Pi, and carries out its plan.

use std::sync::Arc;

use astrabox_engine::line::{LineClient, Start};
use astrabox_engine::model::ModelWire;
use astrabox_engine::sandbox::{Signal, SignalScope, Workload, WriteOptions};
use astrabox_engine::{
    Conversation, EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, Error,
    ErrorKind, ImageRecipe, ModelPath, NativeStateSpec, PrepareContext, RecordFormat, Result,
    SandboxRequest, SandboxRequestContext, StartupMaterialRequest, StateFiles, check_options,
    from_sandbox,
};
use astrabox_types::{EngineFeature, SessionKind};
use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;

use crate::options::OPTION_BLOCKS;
use crate::plan::{Plan, PlannedFile, STATE_DIR, process_name, session_file};
use crate::protocol::{PiProtocol, calls_without_result};
use crate::recipe;

/// How much of a session file's end is searched for calls without a result (1 MiB).
const SEARCHED: u64 = 1 << 20;
/// How much of a session file's begin is read for its header (64 KiB).
const HEADER: u64 = 64 << 10;

/// Pi, driven through `pi --mode rpc` on standard input and output.
#[derive(Debug)]
pub struct Pi;

#[async_trait]
impl EngineAdapter for Pi {
    fn kind(&self) -> &'static str {
        "pi"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "Pi",
            program_version: recipe::VERSION,
            session_kinds: &[SessionKind::AgentChat],
            model_wire: ModelWire::OpenaiChat,
            input_content_types: &["text", "image"],
            // It has none; which tools ask is the option block `approvals`.
            permission_modes: &[],
            default_permission_mode: None,
            option_blocks: OPTION_BLOCKS,
            // It would take an input while it works, but tells of one outcome for both.
            steering: false,
            // It has no tool that asks a question; dialogs of an agent's own extensions are asked all the same.
            features: &[
                EngineFeature::SystemPrompt,
                EngineFeature::Reasoning,
                EngineFeature::Usage,
                EngineFeature::FileChanges,
                EngineFeature::ToolApproval,
                EngineFeature::ApprovalForSession,
                EngineFeature::DeclineAndStop,
                EngineFeature::ChangedInput,
                EngineFeature::McpStdio,
                EngineFeature::McpHttp,
                EngineFeature::Skills,
            ],
            names_program: false,
        }
    }

    fn image_recipe(&self) -> ImageRecipe {
        recipe::recipe()
    }

    fn sandbox_request(&self, context: &SandboxRequestContext) -> Result<SandboxRequest> {
        demand_agent_chat(context.session_kind, "sandbox request")?;
        Ok(SandboxRequest {
            needs_callback: false,
            model_wire: ModelWire::OpenaiChat,
            model_paths: vec![ModelPath {
                method: "POST",
                path: "/v1/chat/completions",
            }],
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        StartupMaterialRequest {
            native_state: NativeStateSpec {
                directory: STATE_DIR,
                files: &[StateFiles {
                    suffix: ".jsonl",
                    format: RecordFormat::JsonLines,
                }],
                named_by_key: true,
            },
            secrets: Vec::new(),
        }
    }

    async fn prepare(&self, _context: &PrepareContext) -> Result<()> {
        // Its files depend on the agent, and its start is its own: there is nothing to do ahead.
        Ok(())
    }

    async fn activate(&self, context: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        demand_agent_chat(context.session_kind, "activate")?;
        demand_no_mode(context.permission_mode.as_deref())?;
        check_options(&self.capabilities(), &context.agent.engine_options)?;
        let workload = Arc::clone(&context.workload);
        let epoch = context.epoch;
        let start = match &context.conversation {
            Conversation::Attach { checkpoint, .. } => Start::Attach(checkpoint.clone()),
            Conversation::New => spawn(&context, Vec::new()).await?,
            Conversation::Resume { native_key } => {
                let open = open_calls(workload.as_ref(), native_key).await?;
                spawn(&context, open).await?
            }
        };
        let client = LineClient::open(workload, epoch, start).await?;
        Ok(Box::new(client))
    }
}

fn demand_agent_chat(kind: SessionKind, operation: &'static str) -> Result<()> {
    if kind == SessionKind::AgentChat {
        return Ok(());
    }
    let text = format!("it carries `agent_chat` sessions, not `{}`", kind.as_str());
    Err(Error::new(ErrorKind::Unsupported, operation, text))
}

fn demand_no_mode(mode: Option<&str>) -> Result<()> {
    let Some(mode) = mode else {
        return Ok(());
    };
    let text = format!(
        "Pi has no permission modes, so no `{mode}`; which tools ask is the option block `approvals`"
    );
    Err(Error::new(
        ErrorKind::InvalidConfiguration,
        "choose mode",
        text,
    ))
}

async fn spawn(
    context: &EngineStartupContext,
    open_calls: Vec<String>,
) -> Result<Start<PiProtocol>> {
    let workload = context.workload.as_ref();
    let plan = Plan::of(context)?;
    end_predecessor(workload, context.epoch).await?;
    for path in &plan.removed {
        workload.remove(path).await.map_err(from_sandbox)?;
    }
    write_files(workload, &plan.files).await?;
    let protocol = PiProtocol::new(plan.key, context.epoch, open_calls);
    Ok(Start::Spawn(plan.spawn, protocol))
}

/// Ends the process of the activation before this one, if a crash left it: one conversation, one program.
async fn end_predecessor(workload: &dyn Workload, epoch: u64) -> Result<()> {
    let Some(before) = epoch.checked_sub(1) else {
        return Ok(());
    };
    let name = process_name(before)?;
    let status = workload.status(&name).await.map_err(from_sandbox)?;
    if status.is_none_or(|status| status.exit.is_some()) {
        return Ok(());
    }
    workload
        .signal(&name, Signal::Kill, SignalScope::Group)
        .await
        .map_err(from_sandbox)
}

/// The calls at the end of a session file that have no result: a killed program leaves them. The program itself
/// closes them for the model when it resumes, and cuts a torn last line off, so they are only told of.
///
/// # Errors
/// `ConversationLost` when there is no session file, or one that does not begin as this conversation's: the program
/// would begin a new one, or not start.
async fn open_calls(workload: &dyn Workload, native_key: &str) -> Result<Vec<String>> {
    let path = session_file(native_key)?;
    let lost = || {
        let text = "the session file of the conversation is missing or is not its own";
        Error::new(ErrorKind::ConversationLost, "resume", text)
    };
    let size = match workload.stat(&path).await {
        Ok(info) => info.size,
        Err(error) if error.kind() == astrabox_engine::sandbox::ErrorKind::NotFound => {
            return Err(lost());
        }
        Err(error) => return Err(from_sandbox(error)),
    };
    let begin = workload.read_file(&path, 0, HEADER).await;
    if !is_of_session(&begin.map_err(from_sandbox)?, native_key) {
        return Err(lost());
    }
    let end = workload
        .read_file(&path, size.saturating_sub(SEARCHED), SEARCHED)
        .await
        .map_err(from_sandbox)?;
    Ok(calls_without_result(&String::from_utf8_lossy(&end)))
}

/// Whether a session file begins with the header of this session.
fn is_of_session(begin: &[u8], key: &str) -> bool {
    let first = begin.split(|byte| *byte == b'\n').next();
    let header: Value = serde_json::from_slice(first.unwrap_or_default()).unwrap_or_default();
    header["type"] == "session" && header["id"] == key
}

async fn write_files(workload: &dyn Workload, files: &[PlannedFile]) -> Result<()> {
    for file in files {
        let content = Bytes::from(file.content.clone());
        let options = WriteOptions {
            private: true,
            ..WriteOptions::default()
        };
        workload
            .write_file(&file.path, content, options)
            .await
            .map_err(from_sandbox)?;
    }
    Ok(())
}
