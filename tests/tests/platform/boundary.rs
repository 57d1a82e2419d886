//! A boundary that keeps what it is given.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use astrabox_egress::CredentialPlan;
use astrabox_sandbox::{BoundaryState, CredentialValues, EgressCredentials, Result};
use astrabox_types::SandboxId;
use async_trait::async_trait;

/// What one sandbox may put into requests: names of the workload's own, and values.
pub(crate) type Given = BTreeMap<String, String>;

/// Keeps the last credentials of each sandbox.
#[derive(Default)]
pub(crate) struct Boundary(Mutex<BTreeMap<SandboxId, Given>>);

impl Boundary {
    /// What a sandbox has; nothing when it was never given any.
    pub(crate) fn of(&self, sandbox: SandboxId) -> Option<Given> {
        let given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.get(&sandbox).cloned()
    }
}

#[async_trait]
impl EgressCredentials for Boundary {
    async fn set_credentials(
        &self,
        sandbox_id: SandboxId,
        plan: CredentialPlan,
        values: CredentialValues,
    ) -> Result<()> {
        let value = |id: &str| {
            let found = values.iter().find(|(known, _)| *known == id);
            let value =
                found.map(|(_, value)| String::from_utf8_lossy(value.expose()).into_owned());
            value.unwrap_or_default()
        };
        let given = plan
            .grants()
            .map(|grant| (grant.handle.clone(), value(&grant.credential_id)))
            .collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(sandbox_id, given);
        Ok(())
    }

    async fn state(&self, _sandbox_id: SandboxId) -> Result<Option<BoundaryState>> {
        Ok(None)
    }

    async fn authority(&self) -> Result<String> {
        Ok("the certificate of an authority\n".to_owned())
    }
}
