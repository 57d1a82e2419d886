//! What every connection of the role shares.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::audit::AuditSender;
use crate::config::EgressConfig;
use crate::resolve::Resolver;
use crate::tls::Interception;

/// Settings, resolver, audit log, and both sides of TLS.
pub(crate) struct Services {
    settings: RwLock<Arc<EgressConfig>>,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) audit: AuditSender,
    pub(crate) interception: Interception,
    next_id: AtomicU64,
}

impl Services {
    pub(crate) fn new(
        settings: EgressConfig,
        resolver: Arc<dyn Resolver>,
        audit: AuditSender,
        interception: Interception,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings: RwLock::new(Arc::new(settings)),
            resolver,
            audit,
            interception,
            next_id: AtomicU64::new(1),
        })
    }

    /// The settings of this moment.
    pub(crate) fn settings(&self) -> Arc<EgressConfig> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_settings(&self, settings: EgressConfig) {
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// A number for the next decision.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}
