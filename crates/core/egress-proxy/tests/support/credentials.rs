//! Credentials of the tests.

use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, MintKey, Placeholder, Places,
};
use astrabox_sandbox::{CredentialValues, EgressCredentials};
use astrabox_types::Secret;

use super::secure::{Root, Secure, Trusting, roots};
use super::{Sandbox, Stand, hosts};

/// What must be on a wire where it is allowed, and nowhere else.
pub(crate) const CANARY: &str = "canary-0f3b1c9d-value";

/// The placeholder of a credential of a test.
pub(crate) fn placeholder(id: &str) -> String {
    Placeholder::mint(&MintKey::new([7; 32]), "sbx", id).to_string()
}

/// A credential that may stand in any header of any request to the hosts.
pub(crate) fn grant(id: &str, hosts: &[&str]) -> CredentialGrant {
    CredentialGrant {
        credential_id: id.to_owned(),
        handle: id.to_owned(),
        placeholder: placeholder(id).parse().unwrap(),
        hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        anywhere: false,
        methods: Vec::new(),
        paths: Vec::new(),
        places: Places {
            header: HeaderPlace::Any,
            body: BodyPlace::Refuse,
            websocket: false,
        },
        cleartext: false,
    }
}

pub(crate) fn in_body(mut grant: CredentialGrant, body: BodyPlace) -> CredentialGrant {
    grant.places.body = body;
    grant
}

impl Stand {
    /// Gives a sandbox credentials, each with the value.
    pub(crate) async fn grant(&self, sandbox: &Sandbox, grants: &[CredentialGrant], value: &str) {
        let mut values = CredentialValues::default();
        for grant in grants {
            values.insert(&grant.credential_id, Secret::new(value.as_bytes().to_vec()));
        }
        let plan = CredentialPlan {
            environment: grants.to_vec(),
            ..CredentialPlan::default()
        };
        self.gate
            .set_credentials(sandbox.id, plan, values)
            .await
            .unwrap();
    }

    /// A client that trusts the role's authority.
    pub(crate) async fn trusting(&self, protocols: &[&[u8]]) -> Trusting {
        Trusting::new(&self.gate.authority().await.unwrap(), protocols)
    }
}

/// A role whose operator trusts the root, and knows the upstreams by their names.
pub(crate) async fn stand_for(root: &Root, upstreams: &[(&str, &Secure)]) -> Stand {
    let known: Vec<_> = upstreams
        .iter()
        .map(|(name, upstream)| (*name, upstream.address))
        .collect();
    let mut config = hosts(&known);
    config.extra_roots = roots(root);
    Stand::start(config).await
}
