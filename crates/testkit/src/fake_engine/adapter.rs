//! The adapter of the fake engine.

use std::sync::Arc;

use astrabox_engine::line::{LineClient, Start};
use astrabox_engine::model::ModelWire;
use astrabox_engine::sandbox::{
    BoxPath, IMAGE_ROOT, InvalidPath, ProcessName, SpawnSpec, Stdio, WORKSPACE,
};
use astrabox_engine::{
    Conversation, EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, Error,
    ErrorKind, ImageRecipe, ModelPath, NativeStateSpec, PermissionMode, PrepareContext,
    RecipeCheck, RecordFormat, Registration, Result, SandboxRequest, SandboxRequestContext,
    StartupMaterialRequest, StateFiles,
};
use astrabox_types::{EngineFeature, PermissionLevel, SessionKind};
use async_trait::async_trait;

use super::program::VERSION;
use super::protocol::FakeProtocol;

/// The engine's kind.
pub const KIND: &str = "fake";

/// The one adapter.
pub static FAKE: FakeEngine = FakeEngine;

/// How the fake engine is registered: by hand, it is never linked into a product.
#[must_use]
pub fn registration() -> Registration {
    Registration::new(
        KIND,
        "A fake engine for tests",
        env!("CARGO_PKG_NAME"),
        &FAKE,
    )
}

/// The adapter of the fake engine.
#[derive(Debug, Clone, Copy)]
pub struct FakeEngine;

pub(super) const MODES: &[PermissionMode] = &[
    PermissionMode {
        name: "careful",
        description: "the mode that sessions begin with",
        level: PermissionLevel::Default,
    },
    PermissionMode {
        name: "bold",
        description: "another mode",
        level: PermissionLevel::Default,
    },
    PermissionMode {
        name: "reckless",
        description: "a mode for the advanced level only",
        level: PermissionLevel::Advanced,
    },
];

#[async_trait]
impl EngineAdapter for FakeEngine {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn capabilities(&self) -> EngineCapabilities {
        EngineCapabilities {
            display_name: "Fake",
            program_version: VERSION,
            session_kinds: &[SessionKind::AgentChat],
            model_wire: ModelWire::OpenaiResponses,
            input_content_types: &["text"],
            permission_modes: MODES,
            default_permission_mode: Some("careful"),
            option_blocks: &[],
            steering: false,
            features: &EngineFeature::ALL,
            names_program: false,
        }
    }

    fn image_recipe(&self) -> ImageRecipe {
        ImageRecipe {
            version: VERSION,
            architectures: &["x86_64", "aarch64"],
            commands: &[],
            npm: None,
            python: None,
            copies: &[],
            check: RecipeCheck {
                program: "bin/fake-engine",
                arguments: &["--version"],
                expect: VERSION,
            },
            licence: "Apache-2.0",
        }
    }

    fn sandbox_request(&self, _context: &SandboxRequestContext) -> Result<SandboxRequest> {
        Ok(SandboxRequest {
            needs_callback: false,
            model_wire: ModelWire::OpenaiResponses,
            model_paths: vec![ModelPath {
                method: "POST",
                path: "/v1/responses",
            }],
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        StartupMaterialRequest {
            native_state: NativeStateSpec {
                directory: ".fake",
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
        Ok(())
    }

    async fn activate(&self, context: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        let epoch = context.epoch;
        let start = match context.conversation {
            Conversation::Attach { checkpoint, .. } => Start::Attach(checkpoint),
            Conversation::New | Conversation::Resume { .. } => {
                let spec = SpawnSpec {
                    name: ProcessName::new(format!("engine-{epoch}")).map_err(invalid)?,
                    argv: vec![format!("{IMAGE_ROOT}/bin/fake-engine")],
                    env: context.env,
                    cwd: BoxPath::new(WORKSPACE).map_err(invalid)?,
                    stdin: Stdio::Piped,
                    wall_limit: None,
                };
                Start::Spawn(spec, FakeProtocol::new(epoch, context.permission_mode))
            }
        };
        let client = LineClient::<FakeProtocol>::open(Arc::clone(&context.workload), epoch, start);
        Ok(Box::new(client.await?))
    }
}

fn invalid(error: InvalidPath) -> Error {
    Error::new(ErrorKind::StartFailed, "activate", error.to_string())
}
