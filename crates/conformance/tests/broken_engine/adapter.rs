//! The adapter of `talk` with one fault.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use astrabox_conformance::doubles::{Talk, talk_open};
use astrabox_engine::{
    Conversation, EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext,
    ImageRecipe, NpmPackage, OptionBlock, PrepareContext, Result, SandboxRequest,
    SandboxRequestContext, StartupMaterialRequest,
};
use astrabox_model::ModelWire;
use astrabox_sandbox::{BoxPath, ProcessName, SpawnSpec, Stdio, Workload};
use astrabox_types::PermissionLevel;
use async_trait::async_trait;

use super::client::BrokenClient;
use super::faults::Fault;
use super::protocol::BrokenProtocol;
use super::workload::{BrokenWorkload, Change};

/// How often the capabilities were looked at.
static LOOKS: AtomicUsize = AtomicUsize::new(0);
/// The box of the last conversation, while it is there.
static LAST: Mutex<Option<Weak<dyn Workload>>> = Mutex::new(None);

#[derive(Debug)]
pub(crate) struct Broken<const F: usize>;

impl<const F: usize> Broken<F> {
    fn has(fault: Fault) -> bool {
        fault as usize == F
    }

    /// The box in which the program is started.
    fn place(context: &EngineStartupContext) -> Arc<dyn Workload> {
        let workload = Arc::clone(&context.workload);
        let change = if Self::has(Fault::SharesABox) {
            let mut last = LAST.lock().expect("nobody panics with it");
            if let Some(first) = last.as_ref().and_then(Weak::upgrade) {
                return first;
            }
            *last = Some(Arc::downgrade(&workload));
            return workload;
        } else if Self::has(Fault::PlaceholderInArguments) {
            Change::AddArgument(context.model_placeholder.clone())
        } else if Self::has(Fault::DecodesPieces) {
            Change::DecodeOutput
        } else {
            return workload;
        };
        Arc::new(BrokenWorkload::new(workload, change))
    }
}

#[async_trait]
impl<const F: usize> EngineAdapter for Broken<F> {
    fn kind(&self) -> &'static str {
        "broken_talk"
    }

    fn capabilities(&self) -> EngineCapabilities {
        let mut capabilities = Talk.capabilities();
        if Self::has(Fault::CapabilitiesChange) {
            let looks = LOOKS.fetch_add(1, Ordering::Relaxed);
            capabilities.steering = looks.is_multiple_of(2);
        }
        if Self::has(Fault::DefaultModeIsUnknown) {
            capabilities.default_permission_mode = Some("nobodys");
        }
        if Self::has(Fault::ProtectedKeyIsOdd) {
            capabilities.option_blocks = &[OptionBlock {
                name: "talk",
                description: "what the program is told at its start",
                protected_keys: &["sandbox."],
            }];
        }
        capabilities
    }

    fn image_recipe(&self) -> ImageRecipe {
        let mut recipe = Talk.image_recipe();
        if Self::has(Fault::RecipeTakesTheLatest) {
            recipe.npm = Some(NpmPackage {
                manifest: r#"{"dependencies": {"talk-program": "latest"}}"#,
                lock: r#"{"lockfileVersion": 3, "packages": {"": {"dependencies": {"talk-program": "latest"}}}}"#,
            });
        }
        if Self::has(Fault::RecipeHasNoHash) {
            recipe.npm = Some(NpmPackage {
                manifest: r#"{"dependencies": {"talk-program": "1.0.0"}}"#,
                lock: r#"{"lockfileVersion": 3, "packages": {
                    "": {"dependencies": {"talk-program": "1.0.0"}},
                    "node_modules/talk-program": {"version": "1.0.0"}}}"#,
            });
        }
        recipe
    }

    fn sandbox_request(&self, context: &SandboxRequestContext) -> Result<SandboxRequest> {
        let mut request = Talk.sandbox_request(context)?;
        if Self::has(Fault::WireDiffers) && context.permission_level == PermissionLevel::Advanced {
            request.model_wire = ModelWire::OpenaiChat;
        }
        Ok(request)
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        Talk.startup_material_request()
    }

    async fn prepare(&self, context: &PrepareContext) -> Result<()> {
        Talk.prepare(context).await
    }

    async fn activate(&self, mut context: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        let workload = Arc::clone(&context.workload);
        context.workload = Self::place(&context);
        let mut again = context.clone();
        again.conversation = Conversation::New;
        let opened = talk_open::<BrokenProtocol<F>>(context).await;
        match opened {
            Ok(client) => Ok(Box::new(BrokenClient::new(client))),
            Err(_) if Self::has(Fault::BeginsAnew) => {
                let client = talk_open::<BrokenProtocol<F>>(again).await?;
                Ok(Box::new(BrokenClient::new(client)))
            }
            Err(error) => {
                if Self::has(Fault::LeavesAProcess) {
                    // The error that is told is the first one.
                    let _ = workload.spawn(helper()).await;
                }
                Err(error)
            }
        }
    }
}

fn helper() -> SpawnSpec {
    SpawnSpec {
        name: ProcessName::new("helper").expect("it is short"),
        argv: vec!["/usr/bin/helper".to_owned()],
        env: [].into(),
        cwd: BoxPath::new("/workspace").expect("it is absolute"),
        stdin: Stdio::Piped,
        wall_limit: None,
    }
}
