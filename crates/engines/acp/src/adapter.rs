//! The adapter: declares what any ACP program may have, and carries out its plan.

use std::sync::Arc;

use astrabox_acp_protocol::AcpProtocol;
use astrabox_engine::line::{LineClient, Start};
use astrabox_engine::model::ModelWire;
use astrabox_engine::sandbox::{Signal, SignalScope, Workload};
use astrabox_engine::{
    Conversation, EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, Error,
    ErrorKind, ImageRecipe, NativeStateSpec, PrepareContext, RecordFormat, Result, SandboxRequest,
    SandboxRequestContext, StartupMaterialRequest, StateFiles, check_options, from_sandbox,
};
use astrabox_types::{EngineFeature, SessionKind};
use async_trait::async_trait;

use crate::options::OPTION_BLOCKS;
use crate::plan::{Plan, model_use, process_name};
use crate::protocol::Any;
use crate::recipe;

/// Any program that speaks the Agent Client Protocol on standard input and output.
#[derive(Debug)]
pub struct Acp;

#[async_trait]
impl EngineAdapter for Acp {
    fn kind(&self) -> &'static str {
        "acp"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "ACP",
            program_version: recipe::VERSION,
            session_kinds: &[SessionKind::AgentChat],
            // What the environment's program speaks, it says itself.
            model_wire: ModelWire::AnthropicMessages,
            input_content_types: &["text", "image"],
            // The program tells them when it runs.
            permission_modes: &[],
            default_permission_mode: None,
            option_blocks: OPTION_BLOCKS,
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
                EngineFeature::McpStdio,
                EngineFeature::McpHttp,
            ],
            names_program: true,
        }
    }

    fn image_recipe(&self) -> ImageRecipe {
        recipe::recipe()
    }

    fn sandbox_request(&self, context: &SandboxRequestContext) -> Result<SandboxRequest> {
        demand_agent_chat(context.session_kind, "sandbox request")?;
        let (model_wire, model_paths) = model_use(context.program.as_ref())?;
        Ok(SandboxRequest {
            needs_callback: false,
            model_wire,
            model_paths,
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        StartupMaterialRequest {
            native_state: NativeStateSpec {
                // The environment says.
                directory: "",
                files: &[
                    StateFiles {
                        suffix: ".jsonl",
                        format: RecordFormat::JsonLines,
                    },
                    StateFiles {
                        suffix: "",
                        format: RecordFormat::Opaque,
                    },
                ],
                named_by_key: false,
            },
            secrets: Vec::new(),
        }
    }

    async fn prepare(&self, _context: &PrepareContext) -> Result<()> {
        // What runs is known when a session is.
        Ok(())
    }

    async fn activate(&self, context: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        demand_agent_chat(context.session_kind, "activate")?;
        check_options(&self.capabilities(), &context.agent.engine_options)?;
        let workload = Arc::clone(&context.workload);
        let epoch = context.epoch;
        let start = match &context.conversation {
            Conversation::Attach { checkpoint, .. } => Start::Attach(checkpoint.clone()),
            Conversation::New | Conversation::Resume { .. } => {
                let plan = Plan::of(&context)?;
                end_predecessor(workload.as_ref(), epoch).await?;
                let dialect = Any::new(context.model.model_name.clone());
                let protocol = AcpProtocol::new(plan.settings, dialect, epoch);
                Start::Spawn(plan.spawn, protocol)
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
