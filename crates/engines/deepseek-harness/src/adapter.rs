//! The adapter: declares DeepSeek Harness, and carries out its plan.

use std::sync::Arc;

use astrabox_acp_protocol::AcpProtocol;
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

use crate::options::{DEFAULT_MODE, OPTION_BLOCKS, PERMISSION_MODES};
use crate::plan::{Plan, PlannedFile, SESSION_FILE, SESSIONS, process_name, session_log};
use crate::protocol::DshDialect;
use crate::recipe;

/// DeepSeek Harness, driven through `dsh --profile acp` with a plugin of ours.
#[derive(Debug)]
pub struct DeepseekHarness;

#[async_trait]
impl EngineAdapter for DeepseekHarness {
    fn kind(&self) -> &'static str {
        "deepseek_harness"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "DeepSeek Harness",
            program_version: recipe::VERSION,
            session_kinds: &[SessionKind::AgentChat],
            model_wire: ModelWire::AnthropicMessages,
            // The program itself takes pictures from DeepSeek's own models only, and not over ACP from any other.
            input_content_types: &["text"],
            permission_modes: &PERMISSION_MODES,
            default_permission_mode: Some(DEFAULT_MODE),
            option_blocks: OPTION_BLOCKS,
            // It refuses a prompt while another one runs.
            steering: false,
            features: &[
                EngineFeature::SystemPrompt,
                EngineFeature::Reasoning,
                EngineFeature::Usage,
                EngineFeature::FileChanges,
                EngineFeature::ToolApproval,
                EngineFeature::Question,
                EngineFeature::ModeChange,
                EngineFeature::ChildRuns,
                EngineFeature::ChildRunStop,
                EngineFeature::BackgroundWork,
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
            model_wire: ModelWire::AnthropicMessages,
            model_paths: vec![ModelPath {
                method: "POST",
                path: "/v1/messages",
            }],
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        StartupMaterialRequest {
            native_state: NativeStateSpec {
                directory: SESSIONS,
                files: &[StateFiles {
                    suffix: SESSION_FILE,
                    format: RecordFormat::JsonLines,
                }],
                // Sub-agents are sessions of their own, each in a folder of its id, and can be spoken to again.
                named_by_key: false,
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
            Conversation::New => spawn(&context).await?,
            Conversation::Resume { native_key } => {
                demand_log(workload.as_ref(), native_key).await?;
                spawn(&context).await?
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

async fn spawn(context: &EngineStartupContext) -> Result<Start<AcpProtocol<DshDialect>>> {
    let workload = context.workload.as_ref();
    let plan = Plan::of(context)?;
    end_predecessor(workload, context.epoch).await?;
    for path in &plan.removed {
        workload.remove(path).await.map_err(from_sandbox)?;
    }
    write_files(workload, &plan.files).await?;
    let protocol = AcpProtocol::new(plan.settings, DshDialect::default(), context.epoch);
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

/// Demands that the log of the conversation is there. Calls without a result in it, which a killed program leaves, the
/// program closes itself when it resumes.
///
/// # Errors
/// `ConversationLost` when there is none: logs of sub-agents alone resume nothing.
async fn demand_log(workload: &dyn Workload, native_key: &str) -> Result<()> {
    let there = match workload.stat(&session_log(native_key)?).await {
        Ok(info) => info.size > 0,
        Err(error) if error.kind() == astrabox_engine::sandbox::ErrorKind::NotFound => false,
        Err(error) => return Err(from_sandbox(error)),
    };
    if there {
        return Ok(());
    }
    let text = "the log of the conversation is missing or empty";
    Err(Error::new(ErrorKind::ConversationLost, "resume", text))
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
