//! Engines that the seed contract needs and no real engine may be yet: one with assistants, one that calls back.

use astrabox_engine::{
    EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, ImageRecipe,
    PrepareContext, Registration, Result, SandboxRequest, SandboxRequestContext,
    StartupMaterialRequest,
};
use async_trait::async_trait;

use crate::doubles::{TALK, Talk};

/// The engine that needs to be called back.
pub static CALLBACK_ENGINE: CallbackEngine = CallbackEngine;

/// `talk`, which in addition must be able to call the platform.
#[derive(Debug, Clone, Copy)]
pub struct CallbackEngine;

/// The fixture engines: `talk` carries both kinds of session, `calling_talk` needs a callback address.
#[must_use]
pub fn fixture_engines() -> [Registration; 2] {
    let origin = env!("CARGO_PKG_NAME");
    [
        Registration::new("talk", "carries both kinds of session", origin, &TALK),
        Registration::new("calling_talk", "calls back", origin, &CALLBACK_ENGINE),
    ]
}

#[async_trait]
impl EngineAdapter for CallbackEngine {
    fn kind(&self) -> &'static str {
        "calling_talk"
    }

    fn capabilities(&self) -> EngineCapabilities {
        Talk.capabilities()
    }

    fn image_recipe(&self) -> ImageRecipe {
        Talk.image_recipe()
    }

    fn sandbox_request(&self, context: &SandboxRequestContext) -> Result<SandboxRequest> {
        let request = Talk.sandbox_request(context)?;
        Ok(SandboxRequest {
            needs_callback: true,
            ..request
        })
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        Talk.startup_material_request()
    }

    async fn prepare(&self, context: &PrepareContext) -> Result<()> {
        Talk.prepare(context).await
    }

    async fn activate(&self, context: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        Talk.activate(context).await
    }
}
