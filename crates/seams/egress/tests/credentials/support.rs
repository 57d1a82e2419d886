//! Plans, requests and values to judge.

use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, MintKey, Placeholder, Places, Refusal,
    RefusalReason, RequestFacts, RequestRules, RequestScheme, Values,
};

/// The placeholder of a credential in the sandbox of these tests.
pub(crate) fn placeholder(credential_id: &str) -> Placeholder {
    Placeholder::mint(&MintKey::new([7; 32]), "sbx_1", credential_id)
}

/// The placeholder of the same credential in another sandbox.
pub(crate) fn stolen(credential_id: &str) -> Placeholder {
    Placeholder::mint(&MintKey::new([7; 32]), "sbx_2", credential_id)
}

/// A grant for everything at a host.
pub(crate) fn grant(credential_id: &str, host: &str) -> CredentialGrant {
    CredentialGrant {
        credential_id: credential_id.into(),
        handle: "TOKEN".into(),
        placeholder: placeholder(credential_id),
        hosts: vec![host.parse().expect(host)],
        anywhere: false,
        methods: Vec::new(),
        paths: Vec::new(),
        places: Places {
            header: HeaderPlace::Any,
            body: BodyPlace::Replace,
            websocket: true,
        },
        cleartext: false,
    }
}

pub(crate) fn plan(environment: Vec<CredentialGrant>) -> Arc<CredentialPlan> {
    Arc::new(CredentialPlan {
        environment,
        ..CredentialPlan::default()
    })
}

/// A request, `POST https://api.test/v1/x` unless said otherwise.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) scheme: RequestScheme,
    pub(crate) host: &'static str,
    pub(crate) port: u16,
    pub(crate) method: &'static str,
    pub(crate) target: &'static str,
    pub(crate) overrides_method: bool,
}

pub(crate) const POST: Request = Request {
    scheme: RequestScheme::Https,
    host: "api.test",
    port: 443,
    method: "POST",
    target: "/v1/x",
    overrides_method: false,
};

impl Request {
    pub(crate) fn judged(self, plan: &Arc<CredentialPlan>) -> Result<RequestRules, Refusal> {
        self.with_target(self.target, plan)
    }

    pub(crate) fn with_target(
        self,
        target: &str,
        plan: &Arc<CredentialPlan>,
    ) -> Result<RequestRules, Refusal> {
        plan.judge(&RequestFacts {
            scheme: self.scheme,
            host: &self.host.parse().expect(self.host),
            port: self.port,
            method: self.method,
            target,
            overrides_method: self.overrides_method,
        })
    }

    pub(crate) fn rules(self, plan: &Arc<CredentialPlan>) -> RequestRules {
        self.judged(plan).expect("no placeholder stands in it")
    }
}

/// The values of the credentials that have one.
#[derive(Default)]
pub(crate) struct Lent(BTreeMap<String, Vec<u8>>);

impl Lent {
    pub(crate) fn of(values: &[(&str, &str)]) -> Self {
        Self::bytes(values.iter().map(|(id, value)| (*id, value.as_bytes())))
    }

    pub(crate) fn bytes<'a>(values: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let own = |(id, value): (&str, &[u8])| (id.to_owned(), value.to_vec());
        Self(values.into_iter().map(own).collect())
    }
}

impl Values for Lent {
    fn value(&self, credential_id: &str) -> Option<&[u8]> {
        self.0.get(credential_id).map(Vec::as_slice)
    }
}

/// What a header becomes, as text; `None` when it goes through as it is.
pub(crate) fn header(
    rules: &RequestRules,
    name: &str,
    value: &str,
    values: &Lent,
) -> Result<Option<String>, RefusalReason> {
    match rules.header(name, value.as_bytes(), values) {
        Ok(None) => Ok(None),
        Ok(Some(replaced)) => Ok(Some(
            String::from_utf8(replaced.value.to_vec()).expect("the values are text"),
        )),
        Err(refusal) => Err(refusal.reason),
    }
}
