//! The adapter: declares Claude Code, and carries out its plan.

use std::sync::Arc;

use astrabox_engine::line::{LineClient, Start};
use astrabox_engine::model::ModelWire;
use astrabox_engine::sandbox::{BoxPath, Signal, SignalScope, Workload, WriteOptions};
use astrabox_engine::{
    Conversation, EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, Error,
    ErrorKind, ImageRecipe, ModelPath, NativeStateSpec, PrepareContext, RecordFormat, Result,
    SandboxRequest, SandboxRequestContext, StartupMaterialRequest, StateFiles, check_options,
    from_sandbox,
};
use astrabox_types::{EngineFeature, SessionKind};
use async_trait::async_trait;
use bytes::Bytes;

use crate::options::{DEFAULT_MODE, OPTION_BLOCKS, PERMISSION_MODES};
use crate::plan::{Plan, PlannedFile, STATE_DIR, process_name, transcript};
use crate::protocol::ClaudeProtocol;
use crate::recipe;

/// How much of a transcript's end is searched for calls without a result (1 MiB).
const SEARCHED: u64 = 1 << 20;

/// Anthropic Claude Code, driven through `claude -p` with stream-json on standard input and output.
#[derive(Debug)]
pub struct ClaudeCode;

#[async_trait]
impl EngineAdapter for ClaudeCode {
    fn kind(&self) -> &'static str {
        "claude_code"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "Claude Code",
            program_version: recipe::VERSION,
            session_kinds: &[SessionKind::AgentChat],
            model_wire: ModelWire::AnthropicMessages,
            input_content_types: &["text", "image"],
            permission_modes: &PERMISSION_MODES,
            default_permission_mode: Some(DEFAULT_MODE),
            option_blocks: OPTION_BLOCKS,
            // A line that comes while a turn runs waits for its end.
            steering: false,
            features: &[
                EngineFeature::SystemPrompt,
                EngineFeature::Reasoning,
                EngineFeature::Usage,
                EngineFeature::FileChanges,
                EngineFeature::ToolApproval,
                EngineFeature::ApprovalForSession,
                EngineFeature::DeclineAndStop,
                EngineFeature::ChangedInput,
                EngineFeature::Question,
                EngineFeature::Decision,
                EngineFeature::ModeChange,
                EngineFeature::ChildRuns,
                EngineFeature::ChildRunStop,
                EngineFeature::BackgroundWork,
                EngineFeature::McpStdio,
                EngineFeature::McpHttp,
                EngineFeature::Skills,
                EngineFeature::Plugins,
            ],
            names_program: false,
        }
    }

    fn image_recipe(&self) -> ImageRecipe {
        recipe::recipe()
    }

    fn sandbox_request(&self, context: &SandboxRequestContext) -> Result<SandboxRequest> {
        demand_agent_chat(context.session_kind, "sandbox request")?;
        let path = |path| ModelPath {
            method: "POST",
            path,
        };
        Ok(SandboxRequest {
            needs_callback: false,
            model_wire: ModelWire::AnthropicMessages,
            model_paths: vec![path("/v1/messages"), path("/v1/messages/count_tokens")],
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        StartupMaterialRequest {
            // `<session id>.jsonl`, and `<session id>/subagents/agent-<id>.jsonl` with a `.meta.json` beside each.
            native_state: NativeStateSpec {
                directory: STATE_DIR,
                files: &[
                    StateFiles {
                        suffix: ".jsonl",
                        format: RecordFormat::JsonLines,
                    },
                    StateFiles {
                        suffix: ".meta.json",
                        format: RecordFormat::Opaque,
                    },
                ],
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

async fn spawn(
    context: &EngineStartupContext,
    open_calls: Vec<String>,
) -> Result<Start<ClaudeProtocol>> {
    let workload = context.workload.as_ref();
    let plan = Plan::of(context)?;
    end_predecessor(workload, context.epoch).await?;
    for path in &plan.removed {
        workload.remove(path).await.map_err(from_sandbox)?;
    }
    write_files(workload, &plan.files).await?;
    let protocol = ClaudeProtocol::new(plan.settings, context.epoch, open_calls);
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

/// The calls at the end of a transcript that have no result: a killed program leaves them. The program itself
/// closes them when it resumes, so they are only told of.
///
/// # Errors
/// `ConversationLost` when there is no transcript: sub-agents' logs alone resume nothing.
async fn open_calls(workload: &dyn Workload, native_key: &str) -> Result<Vec<String>> {
    let path: BoxPath = transcript(native_key)?;
    let lost = || {
        let text = "the transcript of the conversation is missing or empty";
        Error::new(ErrorKind::ConversationLost, "resume", text)
    };
    let size = match workload.stat(&path).await {
        Ok(info) => info.size,
        Err(error) if error.kind() == astrabox_engine::sandbox::ErrorKind::NotFound => {
            return Err(lost());
        }
        Err(error) => return Err(from_sandbox(error)),
    };
    if size == 0 {
        return Err(lost());
    }
    let end = workload
        .read_file(&path, size.saturating_sub(SEARCHED), SEARCHED)
        .await
        .map_err(from_sandbox)?;
    Ok(crate::protocol::calls_without_result(
        &String::from_utf8_lossy(&end),
    ))
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
