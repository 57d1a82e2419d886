//! Providers with one fault each: the suite finds every fault, by the case that is for it.

use std::sync::Arc;
use std::time::Duration;

use astrabox_conformance::doubles::{FixedModels, KeyIssuer};
use astrabox_conformance::model::{self, Built, ModelFixture};
use astrabox_conformance::{Filter, Report};
use astrabox_model::{
    CredentialKind, CredentialRef, Error, ErrorKind, IssueRequest, IssuedCredential,
    ModelEndpointProvider, ModelList, ModelRequest, ResolvedModelAccess,
};
use astrabox_types::Secret;
use async_trait::async_trait;

const KEY: &str = "sk-the-key-of-the-gateway";

/// What is wrong with a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// `/v1` at the end of the root.
    Root,
    /// Without configuration it answers something.
    Guesses,
    /// Says nothing of TLS.
    TakesPlaintext,
    /// Lists what it does not have.
    ListsMore,
    /// Says that the list is closed, and resolves any name.
    NotClosed,
    /// Names a credential and no kind.
    NoKind,
    /// Declares nothing, and issues.
    Undeclared,
    /// Declares, and issues nothing.
    IssuesNone,
    /// The same credential for every session.
    Shared,
    /// Longer than was asked for.
    TooLong,
    /// The id is the value.
    TellingId,
    /// Revoking does nothing.
    KeepsRevoked,
    /// Revoking one ends all.
    RevokesAll,
    /// Refuses what was revoked before.
    RevokesOnce,
    /// Issues to everybody.
    ForEverybody,
    /// Puts the credential into its error.
    TellsKey,
}

struct Broken {
    fault: Fault,
    inner: KeyIssuer,
    shared: tokio::sync::Mutex<Option<(String, Vec<u8>)>>,
    revoked: tokio::sync::Mutex<Vec<String>>,
    issued: tokio::sync::Mutex<Vec<String>>,
}

impl Broken {
    fn key(&self) -> Secret {
        Secret::new(KEY.as_bytes().to_vec())
    }
}

#[async_trait]
impl ModelEndpointProvider for Broken {
    async fn resolve(&self, request: &ModelRequest) -> Result<ResolvedModelAccess, Error> {
        let known = ModelRequest {
            model: "m".to_owned(),
            ..request.clone()
        };
        match self.fault {
            Fault::Root => {
                let access = self.inner.resolve(request).await?;
                let base_url = format!("{}/v1", access.base_url);
                Ok(ResolvedModelAccess { base_url, ..access })
            }
            Fault::NotClosed => self.inner.resolve(&known).await,
            Fault::NoKind => Ok(ResolvedModelAccess {
                credential_kind: CredentialKind::None,
                ..self.inner.resolve(request).await?
            }),
            _ => self.inner.resolve(request).await,
        }
    }

    fn gateway(&self) -> Option<String> {
        self.inner.gateway()
    }

    fn credential(&self) -> Option<CredentialRef> {
        self.inner.credential()
    }

    async fn list(&self, with: Option<&Secret>) -> Result<ModelList, Error> {
        let mut list = self.inner.list(with).await?;
        if self.fault == Fault::ListsMore {
            list.names.push("more".to_owned());
        }
        Ok(list)
    }

    fn issues_credentials(&self) -> bool {
        self.fault != Fault::Undeclared
    }

    async fn issue(
        &self,
        request: &IssueRequest,
        with: Option<&Secret>,
    ) -> Result<Option<IssuedCredential>, Error> {
        if self.fault == Fault::TellsKey
            && let Some(with) = with
            && with.expose() != KEY.as_bytes()
        {
            let text = String::from_utf8_lossy(with.expose()).into_owned();
            return Err(Error::new(ErrorKind::Denied, "issue", text));
        }
        let key = self.key();
        let with = if self.fault == Fault::ForEverybody {
            Some(&key)
        } else {
            with
        };
        let asked = IssueRequest {
            lifetime: match self.fault {
                Fault::TooLong => request.lifetime + Duration::from_secs(60),
                _ => request.lifetime,
            },
            ..request.clone()
        };
        let Some(mut issued) = self.inner.issue(&asked, with).await? else {
            return Ok(None);
        };
        self.issued.lock().await.push(issued.id.clone());
        match self.fault {
            Fault::IssuesNone => return Ok(None),
            Fault::TellingId => issued.id = String::from_utf8_lossy(issued.secret.expose()).into(),
            Fault::Shared => {
                let mut shared = self.shared.lock().await;
                let (id, value) = shared
                    .get_or_insert_with(|| (issued.id.clone(), issued.secret.expose().to_vec()));
                issued.id = id.clone();
                issued.secret = Secret::new(value.clone());
            }
            _ => {}
        }
        Ok(Some(issued))
    }

    async fn revoke(&self, id: &str, with: Option<&Secret>) -> Result<(), Error> {
        match self.fault {
            Fault::KeepsRevoked => self.inner.revoke("of-nobody", with).await,
            Fault::RevokesAll => {
                for id in self.issued.lock().await.drain(..) {
                    self.inner.revoke(&id, with).await?;
                }
                self.inner.revoke(id, with).await
            }
            Fault::RevokesOnce => {
                self.inner.revoke(id, with).await?;
                let mut revoked = self.revoked.lock().await;
                if revoked.iter().any(|known| known == id) {
                    return Err(Error::new(ErrorKind::Invalid, "revoke", "not again"));
                }
                revoked.push(id.to_owned());
                Ok(())
            }
            _ => self.inner.revoke(id, with).await,
        }
    }
}

struct Fixture {
    fault: Fault,
    inner: KeyIssuer,
}

impl Fixture {
    fn new(fault: Fault) -> Self {
        let inner = KeyIssuer::new(models("https://models.test"), KEY);
        Self { fault, inner }
    }

    fn built(&self, inner: KeyIssuer) -> Built {
        Ok(Arc::new(Broken {
            fault: self.fault,
            inner,
            shared: tokio::sync::Mutex::default(),
            revoked: tokio::sync::Mutex::default(),
            issued: tokio::sync::Mutex::default(),
        }))
    }
}

fn models(base_url: &str) -> FixedModels {
    FixedModels {
        base_url: Some(base_url.to_owned()),
        models: vec!["m".to_owned()],
        require_https: true,
    }
}

#[async_trait]
impl ModelFixture for Fixture {
    fn name(&self) -> String {
        format!("{:?}", self.fault)
    }

    async fn unconfigured(&self) -> Built {
        let models = match self.fault {
            Fault::Guesses => models("https://guessed.test"),
            _ => FixedModels::default(),
        };
        self.built(KeyIssuer::new(models, KEY))
    }

    async fn configured(&self) -> Option<Built> {
        Some(self.built(self.inner.clone()))
    }

    async fn plaintext(&self) -> Option<Built> {
        let require_https = self.fault != Fault::TakesPlaintext;
        let models = FixedModels {
            require_https,
            ..models("http://models.test")
        };
        Some(self.built(KeyIssuer::new(models, KEY)))
    }

    fn model(&self) -> String {
        "m".to_owned()
    }

    fn credential(&self) -> Option<Secret> {
        Some(Secret::new(KEY.as_bytes().to_vec()))
    }

    async fn accepts(&self, secret: &Secret) -> Option<bool> {
        Some(self.inner.accepts(secret))
    }
}

async fn report(fault: Fault) -> Report {
    let suite = model::suite(Arc::new(Fixture::new(fault)));
    suite.run(&Filter::all()).await
}

#[tokio::test]
async fn a_provider_without_a_fault_passes_and_nothing_is_left_out() {
    let report = report(Fault::None).await;
    report.assert_passed();
    assert_eq!(report.skipped(), 0, "{report}");
}

#[tokio::test]
async fn each_fault_is_found_by_its_case() {
    for (fault, case) in [
        (Fault::Root, "a_model_is_resolved_to_a_usable_endpoint"),
        (Fault::Guesses, "a_missing_configuration_is_said_and_named"),
        (
            Fault::TakesPlaintext,
            "an_endpoint_without_tls_is_refused_when_tls_is_demanded",
        ),
        (Fault::ListsMore, "every_listed_model_can_be_had"),
        (Fault::NotClosed, "a_model_that_is_not_listed_is_refused"),
        (Fault::NoKind, "a_credential_is_named_with_its_kind"),
        (Fault::Undeclared, "who_issues_nothing_says_so"),
        (Fault::IssuesNone, "no_two_sessions_share_a_credential"),
        (Fault::Shared, "no_two_sessions_share_a_credential"),
        (Fault::TooLong, "no_two_sessions_share_a_credential"),
        (Fault::TellingId, "no_two_sessions_share_a_credential"),
        (
            Fault::KeepsRevoked,
            "a_revoked_credential_is_accepted_no_more",
        ),
        (
            Fault::RevokesAll,
            "a_revoked_credential_is_accepted_no_more",
        ),
        (
            Fault::RevokesOnce,
            "a_revoked_credential_is_accepted_no_more",
        ),
        (
            Fault::ForEverybody,
            "a_call_without_the_right_credential_is_refused",
        ),
        (
            Fault::TellsKey,
            "a_call_without_the_right_credential_is_refused",
        ),
    ] {
        let report = report(fault).await;
        assert!(report.failures().contains(&case), "{fault:?}: {report}");
    }
}
