//! The adapter: declares Hermes, and carries out its plan.

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
use crate::plan::{Plan, SAVED_DIR, process_name};
use crate::protocol::Hosted;
use crate::recipe;

const fn file(suffix: &'static str, format: RecordFormat) -> StateFiles {
    StateFiles { suffix, format }
}

/// The conversation, what the agent noted of itself and of its user, and what a person allowed for always.
const SAVED: &[StateFiles] = &[
    file("state.db", RecordFormat::Sqlite),
    file(".md", RecordFormat::Opaque),
    file("allowlist.json", RecordFormat::Opaque),
];

/// Hermes Agent, driven through its ACP server on standard input and output.
#[derive(Debug)]
pub struct Hermes;

#[async_trait]
impl EngineAdapter for Hermes {
    fn kind(&self) -> &'static str {
        "hermes"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "Hermes Agent",
            program_version: recipe::VERSION,
            session_kinds: &[SessionKind::AgentChat],
            model_wire: ModelWire::OpenaiChat,
            input_content_types: &["text", "image"],
            permission_modes: &PERMISSION_MODES,
            default_permission_mode: Some(DEFAULT_MODE),
            option_blocks: OPTION_BLOCKS,
            // A prompt that comes while a turn runs is queued by the program itself, in memory.
            steering: false,
            features: &[
                EngineFeature::SystemPrompt,
                EngineFeature::Reasoning,
                EngineFeature::Usage,
                EngineFeature::FileChanges,
                EngineFeature::ToolApproval,
                EngineFeature::ApprovalForSession,
                EngineFeature::DeclineAndStop,
                EngineFeature::ModeChange,
                EngineFeature::ChildRuns,
                EngineFeature::ChildRunStop,
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
            // The host's copy of what a conversation is made of. The program's own database is not readable from
            // outside while it runs.
            native_state: NativeStateSpec {
                directory: SAVED_DIR,
                files: SAVED,
                named_by_key: false,
            },
            secrets: Vec::new(),
        }
    }

    async fn prepare(&self, _context: &PrepareContext) -> Result<()> {
        // Its start is the import of its modules, which only its own process can do; its files depend on the agent.
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
                for path in &plan.removed {
                    workload.remove(path).await.map_err(from_sandbox)?;
                }
                write_files(workload.as_ref(), &plan).await?;
                let protocol = AcpProtocol::new(plan.settings, Hosted, epoch);
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

async fn write_files(workload: &dyn Workload, plan: &Plan) -> Result<()> {
    for file in &plan.files {
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
