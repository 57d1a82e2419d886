//! The runtime manager: holds everything, owns every session's task. Private to this crate.

mod contract;
mod credentials;
mod reconcile;
mod repository;
mod resources;
mod sandboxes;
mod sessions;
mod vaults;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use astrabox_engine::EngineAdapter;
use astrabox_identity::{Evidence, OpContext};
use astrabox_model::ModelEndpointProvider;
use astrabox_sandbox::SandboxProvider;
use astrabox_store::{Key, Store};
use astrabox_types::{ErrorReason, SessionId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use credentials::{Bearer, Missing};
pub(crate) use reconcile::{destroy_proven, timed};

use crate::parts::PlatformParts;
use crate::session::SessionHandle;
use crate::vault::Keeper;
use crate::{Error, IdempotencyKey, Result};

/// Everything behind the platform's face.
pub(crate) struct Manager {
    pub(crate) parts: PlatformParts,
    sessions: Mutex<HashMap<SessionId, SessionHandle>>,
    tasks: TaskTracker,
    keeper: Arc<Keeper>,
    /// Cancelled when the server drains: owners let go of their sessions and leave what runs running.
    pub(crate) draining: CancellationToken,
    this: Weak<Manager>,
}

impl Manager {
    pub(crate) async fn start(parts: PlatformParts) -> Result<Arc<Self>> {
        let tasks = TaskTracker::new();
        let keeper = Arc::new(Keeper::new(
            parts.store.clone(),
            parts.secrets.clone(),
            parts.settings.token_client.clone(),
            tasks.clone(),
        ));
        let manager = Arc::new_cyclic(|this| Self {
            parts,
            sessions: Mutex::default(),
            tasks,
            keeper,
            draining: CancellationToken::new(),
            this: this.clone(),
        });
        manager.keeper.sweep().await?;
        if manager.parts.boundary.is_some() && manager.parts.secrets.is_some() {
            // Before anybody waits for it who others wait for.
            manager.keeper.mint_key().await?;
        }
        manager.remove_orphans().await;
        for id in manager.store().sessions_to_tend().await? {
            manager.owner_of(id)?;
        }
        Ok(manager)
    }

    pub(crate) async fn drain(&self, within: Duration) {
        self.draining.cancel();
        self.tasks.close();
        if tokio::time::timeout(within, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(tasks = self.tasks.len(), "sessions did not let go in time");
        }
        self.store().close().await;
    }

    pub(crate) fn store(&self) -> &Store {
        &self.parts.store
    }

    pub(crate) async fn identify(&self, evidence: &Evidence) -> Result<OpContext> {
        match self.parts.identity.identify(evidence).await {
            Ok(actor) => Ok(OpContext::of(actor)),
            Err(error) => Err(Error::new(ErrorReason::Unauthenticated, error.to_string())),
        }
    }

    /// The one task that owns this session here, begun when there is none.
    pub(crate) fn owner_of(&self, id: SessionId) -> Result<SessionHandle> {
        if self.draining.is_cancelled() {
            return Err(Error::new(
                ErrorReason::Draining,
                "the server is shutting down; retry",
            ));
        }
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = sessions.get(&id).filter(|handle| !handle.is_ended()) {
            return Ok(handle.clone());
        }
        let manager = self
            .this
            .upgrade()
            .ok_or_else(|| Error::new(ErrorReason::Internal, "the manager is gone"))?;
        let (handle, task) = crate::session::begin(manager, id);
        sessions.retain(|_, handle| !handle.is_ended());
        sessions.insert(id, handle.clone());
        self.tasks.spawn(task);
        Ok(handle)
    }

    pub(crate) fn adapter(&self, engine: &str) -> Result<&'static dyn EngineAdapter> {
        let registration = self.parts.engines.get(engine).ok_or_else(|| {
            let known: Vec<_> = self.parts.engines.names().collect();
            Error::new(
                ErrorReason::EngineUnknown,
                format!(
                    "no engine `{engine}` is linked; there are: {}",
                    known.join(", ")
                ),
            )
        })?;
        Ok(registration.adapter())
    }

    pub(crate) fn sandbox_provider(&self, name: &str) -> Result<&Arc<dyn SandboxProvider>> {
        self.parts.sandboxes.get(name).ok_or_else(|| {
            let known: Vec<_> = self.parts.sandboxes.keys().copied().collect();
            Error::new(
                ErrorReason::SandboxProviderUnknown,
                format!(
                    "no sandbox provider `{name}` is linked; there are: {}",
                    known.join(", ")
                ),
            )
        })
    }

    pub(crate) fn model_provider(&self, name: &str) -> Result<&Arc<dyn ModelEndpointProvider>> {
        self.parts.models.get(name).ok_or_else(|| {
            let known: Vec<_> = self.parts.models.keys().copied().collect();
            Error::new(
                ErrorReason::ModelProviderUnknown,
                format!(
                    "no model provider `{name}` is linked; there are: {}",
                    known.join(", ")
                ),
            )
        })
    }
}

/// The store's form of a caller's key.
pub(crate) fn store_key(
    ctx: &OpContext,
    operation: &'static str,
    key: Option<IdempotencyKey>,
) -> Option<Key> {
    key.map(|IdempotencyKey { key, digest }| Key {
        actor: ctx.actor.subject().to_owned(),
        operation,
        key,
        digest,
    })
}

/// Asserts where the type is visible that the manager keeps the startup contract.
const _: fn() = || {
    fn implements<T: astrabox_startup::EnginePlatform>() {}
    implements::<Manager>();
};
