//! The adapter of `parrot`.

use astrabox_engine::line::{LineClient, Start};
use astrabox_engine::model::ModelWire;
use astrabox_engine::sandbox::{BoxPath, IMAGE_ROOT, ProcessName, SpawnSpec, Stdio, WORKSPACE};
use astrabox_engine::{
    Conversation, EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, Error,
    ErrorKind, ImageRecipe, ModelPath, NativeStateSpec, PrepareContext, RecipeCheck, RecordFormat,
    Result, SandboxRequest, SandboxRequestContext, StartupMaterialRequest, StateFiles,
};
use astrabox_types::SessionKind;
use async_trait::async_trait;

use crate::protocol::ParrotProtocol;

const VERSION: &str = "2.1.0";

/// The engine.
#[derive(Debug)]
pub struct Parrot;

#[async_trait]
impl EngineAdapter for Parrot {
    fn kind(&self) -> &'static str {
        "parrot"
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "Parrot",
            program_version: VERSION,
            session_kinds: &[SessionKind::AgentChat],
            model_wire: ModelWire::OpenaiChat,
            input_content_types: &["text"],
            permission_modes: &[],
            default_permission_mode: None,
            option_blocks: &[],
            steering: false,
            features: &[],
            names_program: false,
        }
    }

    fn image_recipe(&self) -> ImageRecipe {
        ImageRecipe {
            version: VERSION,
            architectures: &["x86_64"],
            commands: &[],
            npm: None,
            python: None,
            copies: &[],
            check: RecipeCheck {
                program: "bin/parrot",
                arguments: &["--version"],
                expect: VERSION,
            },
            licence: "Apache-2.0",
        }
    }

    fn sandbox_request(&self, _context: &SandboxRequestContext) -> Result<SandboxRequest> {
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
                directory: ".parrot",
                files: &[StateFiles {
                    suffix: ".log",
                    format: RecordFormat::Opaque,
                }],
                named_by_key: true,
            },
            secrets: Vec::new(),
        }
    }

    async fn prepare(&self, _context: &PrepareContext) -> Result<()> {
        Ok(())
    }

    async fn activate(&self, context: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        let start = match context.conversation {
            Conversation::Attach { checkpoint, .. } => Start::Attach(checkpoint),
            Conversation::New => Start::Spawn(program(&context, None)?, ParrotProtocol::default()),
            Conversation::Resume { ref native_key } => {
                let spec = program(&context, Some(native_key))?;
                Start::Spawn(spec, ParrotProtocol::default())
            }
        };
        let client = LineClient::open(context.workload, context.epoch, start).await?;
        Ok(Box::new(client))
    }
}

fn program(context: &EngineStartupContext, resume: Option<&str>) -> Result<SpawnSpec> {
    let invalid = |text: String| Error::new(ErrorKind::StartFailed, "activate", text);
    let mut argv = vec![format!("{IMAGE_ROOT}/bin/parrot")];
    argv.extend(resume.map(|key| format!("--resume={key}")));
    let name = ProcessName::new(format!("parrot-{}", context.epoch));
    Ok(SpawnSpec {
        name: name.map_err(|error| invalid(error.to_string()))?,
        argv,
        env: context.env.clone(),
        cwd: BoxPath::new(WORKSPACE).map_err(|error| invalid(error.to_string()))?,
        stdin: Stdio::Piped,
        wall_limit: None,
    })
}
