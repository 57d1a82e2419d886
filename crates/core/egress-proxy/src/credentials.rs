//! What may be put into the requests of one sandbox: the plan, and the values by credential. In memory only.

use std::sync::Arc;

use astrabox_egress::{CredentialPlan, Host, Values};
use astrabox_sandbox::CredentialValues;

/// A plan with its values. Cheap to clone. It has no Debug and no Serialize.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    plan: Arc<CredentialPlan>,
    values: Arc<CredentialValues>,
}

impl Credentials {
    /// What each is for, its id, and where it may go; for people.
    pub(crate) fn told(&self) -> Vec<String> {
        let plan = &self.plan;
        let kinds = [
            ("model", &plan.model),
            ("environment", &plan.environment),
            ("mcp", &plan.mcp),
            ("http_basic", &plan.http_basic),
        ];
        let each = kinds.into_iter().flat_map(|(kind, grants)| {
            grants.iter().map(move |grant| {
                let mut hosts: Vec<_> = grant.hosts.iter().map(ToString::to_string).collect();
                hosts.extend(grant.anywhere.then(|| "every host".to_owned()));
                let name = [kind, &grant.handle].join(" ");
                let (id, hosts) = (&grant.credential_id, hosts.join(", "));
                format!("{}: {id}, to {hosts}", name.trim_end())
            })
        });
        each.collect()
    }

    pub(crate) fn new(plan: CredentialPlan, values: CredentialValues) -> Self {
        Self {
            plan: Arc::new(plan),
            values: Arc::new(values),
        }
    }

    pub(crate) fn plan(&self) -> &Arc<CredentialPlan> {
        &self.plan
    }

    pub(crate) fn values(&self) -> &CredentialValues {
        &self.values
    }

    /// Whether both hold the same plan and the same values.
    pub(crate) fn same_as(&self, other: &Self) -> bool {
        let values = |credentials: &'_ Self| credentials.values.iter().count();
        self.plan == other.plan
            && values(self) == values(other)
            && self
                .values
                .iter()
                .all(|(id, value)| other.value(id) == Some(value.expose()))
    }

    /// Whether the credentials allow this destination, whatever the policy says.
    pub(crate) fn allow(&self, host: &Host, port: u16) -> bool {
        self.plan.allows(host, port)
    }

    /// Whether a credential may go to this host and port.
    pub(crate) fn reach(&self, host: &Host, port: u16) -> bool {
        self.plan.reaches(host, port)
    }

    /// Whether one of them may go to this host and port in the clear.
    pub(crate) fn reach_in_the_clear(&self, host: &Host, port: u16) -> bool {
        self.plan.reaches_in_the_clear(host, port)
    }
}

impl Values for Credentials {
    fn value(&self, credential_id: &str) -> Option<&[u8]> {
        let mut values = self.values.iter();
        let (_, value) = values.find(|(id, _)| *id == credential_id)?;
        Some(value.expose())
    }
}
