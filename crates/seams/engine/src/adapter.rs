//! The adapter: what is constant about an engine, and the way to a running conversation.

use std::fmt;

use astrabox_registry::Registration as _;
use async_trait::async_trait;

use crate::{
    EngineCapabilities, EngineClient, EngineStartupContext, ImageRecipe, PrepareContext, Result,
    SandboxRequest, SandboxRequestContext, StartupMaterialRequest,
};

/// One engine. A stateless singleton (EN1).
#[async_trait]
pub trait EngineAdapter: Send + Sync + 'static {
    /// Its kind, as `codex`: the name in environments and in the registry.
    fn kind(&self) -> &'static str;

    /// What it can do (EN2).
    fn capabilities(&self) -> EngineCapabilities;

    /// How its image is made.
    fn image_recipe(&self) -> ImageRecipe;

    /// What it needs of a sandbox for this session.
    fn sandbox_request(&self, context: &SandboxRequestContext) -> Result<SandboxRequest>;

    /// What it needs to be given at a start: its native state, secrets by name.
    fn startup_material_request(&self) -> StartupMaterialRequest;

    /// Readies a sandbox that no session has yet, so that `activate` is quick. May do nothing.
    async fn prepare(&self, context: &PrepareContext) -> Result<()>;

    /// Starts the program, or reaches the one that runs (EN3).
    async fn activate(&self, context: EngineStartupContext) -> Result<Box<dyn EngineClient>>;
}

/// One linked engine.
#[derive(Clone, Copy)]
pub struct Registration {
    kind: &'static str,
    summary: &'static str,
    origin: &'static str,
    adapter: &'static dyn EngineAdapter,
}

impl Registration {
    /// Registers `adapter` under `kind`; `origin` is `env!("CARGO_PKG_NAME")`.
    ///
    /// The type must have no size: an adapter with state does not compile (EN1).
    #[must_use]
    pub const fn new<A: EngineAdapter>(
        kind: &'static str,
        summary: &'static str,
        origin: &'static str,
        adapter: &'static A,
    ) -> Self {
        const {
            assert!(
                size_of::<A>() == 0,
                "an engine adapter is stateless: its type has no fields"
            )
        };
        Self {
            kind,
            summary,
            origin,
            adapter,
        }
    }

    /// The adapter.
    #[must_use]
    pub fn adapter(&self) -> &'static dyn EngineAdapter {
        self.adapter
    }
}

impl astrabox_registry::Registration for Registration {
    const SEAM: &'static str = "engine";
    fn name(&self) -> &'static str {
        self.kind
    }
    fn summary(&self) -> &'static str {
        self.summary
    }
    fn origin(&self) -> &'static str {
        self.origin
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("kind", &self.name())
            .field("origin", &self.origin())
            .finish()
    }
}

astrabox_registry::inventory::collect!(Registration);
