//! An adapter is a stateless singleton: one with a size cannot be registered.

use astrabox_engine::{
    EngineAdapter, EngineCapabilities, EngineClient, EngineStartupContext, ImageRecipe,
    PrepareContext, Registration, Result, SandboxRequest, SandboxRequestContext,
    StartupMaterialRequest,
};
use async_trait::async_trait;

const SIZE: usize = 0;

struct Adapter([u8; SIZE]);

#[async_trait]
impl EngineAdapter for Adapter {
    fn kind(&self) -> &'static str {
        "mine"
    }

    fn capabilities(&self) -> EngineCapabilities {
        panic!("{} bytes of state", self.0.len())
    }

    fn image_recipe(&self) -> ImageRecipe {
        panic!()
    }

    fn sandbox_request(&self, _: &SandboxRequestContext) -> Result<SandboxRequest> {
        panic!()
    }

    fn startup_material_request(&self) -> StartupMaterialRequest {
        panic!()
    }

    async fn prepare(&self, _: &PrepareContext) -> Result<()> {
        panic!()
    }

    async fn activate(&self, _: EngineStartupContext) -> Result<Box<dyn EngineClient>> {
        panic!()
    }
}

const MINE: Registration = Registration::new("mine", "", "", &Adapter([0; SIZE]));

fn main() {
    let _ = MINE;
}
