//! What may be put into the requests of one sandbox: the plan, and the values by credential. In memory only.

use std::sync::Arc;

use astrabox_egress::{CredentialPlan, Host};
use astrabox_sandbox::CredentialValues;

/// A plan with its values. Cheap to clone. It has no Debug and no Serialize.
#[derive(Clone, Default)]
pub(crate) struct Credentials(Arc<Held>);

#[derive(Default)]
struct Held {
    plan: CredentialPlan,
    values: CredentialValues,
}

impl Credentials {
    pub(crate) fn new(plan: CredentialPlan, values: CredentialValues) -> Self {
        Self(Arc::new(Held { plan, values }))
    }

    pub(crate) fn plan(&self) -> &CredentialPlan {
        &self.0.plan
    }

    pub(crate) fn values(&self) -> &CredentialValues {
        &self.0.values
    }

    /// The value of a credential; a plan may name one that has none.
    pub(crate) fn value(&self, credential_id: &str) -> Option<&[u8]> {
        let mut values = self.0.values.iter();
        let (_, value) = values.find(|(id, _)| *id == credential_id)?;
        Some(value.expose())
    }

    /// Whether a credential may go to this host and port.
    pub(crate) fn reach(&self, host: &Host, port: u16) -> bool {
        self.0.plan.reaches(host, port)
    }
}
