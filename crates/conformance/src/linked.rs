//! Every suite over everything that is linked into the calling program.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use astrabox_identity::Evidence;
use astrabox_registry::inventory::Collect;
use astrabox_registry::{DuplicateName, Registration, Registry};
use serde::Deserialize;
use serde_json::Value;

use crate::engine::EngineFixtures;
use crate::identity::IdentityFixture;
use crate::model::RegisteredModels;
use crate::registered_secrets::RegisteredSecrets;
use crate::registration::RegistrationBench;
use crate::sandbox::RegisteredProvider;
use crate::{Filter, Report, engine, identity, model, registration, sandbox, secrets, seed};

/// What the suites must be told about linked adapters, by name: what no registration has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Sandbox providers.
    pub sandbox: BTreeMap<String, SandboxSettings>,
    /// Model endpoint providers.
    pub model: BTreeMap<String, ModelSettings>,
    /// Identity providers.
    pub identity: BTreeMap<String, IdentitySettings>,
    /// Secret stores.
    pub secrets: BTreeMap<String, SecretsSettings>,
    /// Stand-ins for the engines' programs; an engine without one has no whole conversations.
    #[serde(skip)]
    pub engines: EngineFixtures,
}

/// What the suites must be told about a sandbox provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSettings {
    /// Its configuration block.
    pub config: Value,
    /// Whether its sandboxes are processes of this Linux host, so that the suite looks from outside as well.
    pub on_this_host: bool,
}

/// What the suites must be told about a model endpoint provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// A configuration block with an endpoint, which nobody calls.
    pub config: Option<Value>,
    /// A block with an endpoint without TLS, where TLS is demanded.
    pub plaintext: Option<Value>,
    /// A model that the configured one has.
    pub model: Option<String>,
}

/// What the suites must be told about a secret store.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretsSettings {
    /// Its configuration block.
    pub config: Value,
}

/// What the suites must be told about an identity provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentitySettings {
    /// Its configuration block.
    pub config: Value,
    /// Whether it accepts the user of this process at the other end of a unix socket.
    pub accepts_own_user: bool,
}

/// Everything that is linked.
#[derive(Debug, Clone)]
pub struct Linked {
    /// Engines.
    pub engines: Registry<astrabox_engine::Registration>,
    /// Sandbox providers.
    pub sandboxes: Registry<astrabox_sandbox::Registration>,
    /// Model endpoint providers.
    pub models: Registry<astrabox_model::Registration>,
    /// Secret stores.
    pub secrets: Registry<astrabox_secrets::Registration>,
    /// Identity providers.
    pub identities: Registry<astrabox_identity::Registration>,
}

fn linked<R: Registration + Collect>() -> Result<Registry<R>, DuplicateName> {
    Registry::linked()
}

impl Linked {
    /// Looks at what is linked.
    ///
    /// # Errors
    /// When two registrations of one seam have one name.
    pub fn new() -> Result<Self, DuplicateName> {
        Ok(Self {
            engines: linked()?,
            sandboxes: linked()?,
            models: linked()?,
            secrets: linked()?,
            identities: linked()?,
        })
    }

    /// The crates that registered anything.
    #[must_use]
    pub fn origins(&self) -> BTreeSet<&'static str> {
        fn of<R: Registration>(registry: &Registry<R>) -> impl Iterator<Item = &'static str> {
            registry.iter().map(Registration::origin)
        }
        of(&self.engines)
            .chain(of(&self.sandboxes))
            .chain(of(&self.models))
            .chain(of(&self.secrets))
            .chain(of(&self.identities))
            .collect()
    }

    /// Runs every suite over everything that is linked, and the seed contract over the fixture engines as well. What
    /// needs a fixture that no registration has (how to damage what a secret store keeps) is run by the adapters' own
    /// tests.
    pub async fn run(&self, settings: &Settings, filter: &Filter) -> Vec<Report> {
        let mut reports = Vec::new();
        reports.extend(self.unknown_settings(settings));
        for bench in self.registrations() {
            reports.push(registration::suite(bench).run(filter).await);
        }
        let providers: Vec<_> = self.sandboxes.names().map(str::to_owned).collect();
        let fixtures = seed::fixture_engines();
        for engine in self.engines.iter().chain(&fixtures) {
            let suite = seed::suite(*engine, providers.clone());
            reports.push(suite.run(filter).await);
        }
        for engine in self.engines.iter() {
            let fixture = settings.engines.get(engine.name());
            reports.push(engine::run_registered(engine, fixture, filter).await);
        }
        for provider in self.sandboxes.iter() {
            reports.push(sandboxes(provider, settings, filter).await);
        }
        for provider in self.models.iter() {
            let told = settings.model.get(provider.name());
            let told = told.cloned().unwrap_or_default();
            let fixture = RegisteredModels {
                registration: *provider,
                configured: told.config,
                plaintext: told.plaintext,
                model: told.model.unwrap_or_else(|| "spec-model".to_owned()),
            };
            reports.push(model::suite(Arc::new(fixture)).run(filter).await);
        }
        for store in self.secrets.iter() {
            reports.push(stores(store, settings, filter).await);
        }
        for provider in self.identities.iter() {
            reports.push(identities(provider, settings, filter).await);
        }
        reports.retain(|report| !report.cases.is_empty());
        reports
    }

    fn registrations(&self) -> Vec<RegistrationBench> {
        let mut all = Vec::new();
        all.extend(self.engines.iter().map(RegistrationBench::without_settings));
        all.extend(self.sandboxes.iter().map(registration::of_sandbox));
        all.extend(self.models.iter().map(registration::of_model));
        all.extend(self.secrets.iter().map(registration::of_secrets));
        all.extend(self.identities.iter().map(registration::of_identity));
        all
    }

    /// Settings for what is not linked are settings that nobody reads.
    fn unknown_settings(&self, settings: &Settings) -> Vec<Report> {
        let sandbox = settings.sandbox.keys();
        let sandbox = sandbox.filter(|name| self.sandboxes.get(name).is_none());
        let model = settings.model.keys();
        let model = model.filter(|name| self.models.get(name).is_none());
        let identity = settings.identity.keys();
        let identity = identity.filter(|name| self.identities.get(name).is_none());
        let secrets = settings.secrets.keys();
        let secrets = secrets.filter(|name| self.secrets.get(name).is_none());
        let engine = settings.engines.kinds();
        let engine = engine.filter(|kind| self.engines.get(kind).is_none());
        sandbox
            .map(|name| format!("sandbox provider {name}"))
            .chain(model.map(|name| format!("model endpoint provider {name}")))
            .chain(identity.map(|name| format!("identity provider {name}")))
            .chain(secrets.map(|name| format!("secret store {name}")))
            .chain(engine.map(|kind| format!("engine {kind}")))
            .map(|suite| {
                let text = "there are settings for it, and it is not linked";
                Report::broken(suite, "what_has_settings_is_linked", text)
            })
            .collect()
    }
}

async fn sandboxes(
    provider: &astrabox_sandbox::Registration,
    settings: &Settings,
    filter: &Filter,
) -> Report {
    let told = settings.sandbox.get(provider.name());
    let told = told.cloned().unwrap_or_default();
    match RegisteredProvider::new(*provider, told.config, told.on_this_host) {
        Ok(fixture) => sandbox::run(Arc::new(fixture), filter).await,
        Err(error) => {
            let name = format!("sandbox provider {}", provider.name());
            Report::broken(name, "the_provider_can_be_built", error.to_string())
        }
    }
}

async fn stores(
    store: &astrabox_secrets::Registration,
    settings: &Settings,
    filter: &Filter,
) -> Report {
    let told = settings.secrets.get(store.name());
    let config = told.cloned().unwrap_or_default().config;
    match RegisteredSecrets::new(*store, config) {
        Ok(fixture) => secrets::suite(Arc::new(fixture)).run(filter).await,
        Err(error) => {
            let name = format!("secret store {}", store.name());
            Report::broken(name, "there_is_a_folder_for_it", error.to_string())
        }
    }
}

async fn identities(
    provider: &astrabox_identity::Registration,
    settings: &Settings,
    filter: &Filter,
) -> Report {
    let told = settings.identity.get(provider.name());
    let told = told.cloned().unwrap_or_default();
    let name = provider.name().to_owned();
    let built = match provider.build(told.config).await {
        Ok(built) => built,
        Err(error) => {
            let name = format!("identity provider {name}");
            return Report::broken(name, "the_provider_can_be_built", error.to_string());
        }
    };
    let own = Evidence {
        peer_uid: sandbox::own_uid(),
        bearer: None,
    };
    let fixture = IdentityFixture {
        name,
        provider: built,
        accepted: if told.accepts_own_user {
            vec![own]
        } else {
            Vec::new()
        },
    };
    identity::suite(fixture).run(filter).await
}

/// Runs everything that is linked and prints a table; for the `main` of a `conformance` program. `true` when no case
/// failed and something ran.
///
/// # Errors
/// When the output cannot be written.
///
/// # Panics
/// When the operating system gives no threads, or inside of an asynchronous context.
pub fn run_and_print(
    settings: &Settings,
    filter: &Filter,
    more: Vec<Report>,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let runtime = crate::suite::runtime();
    let reports = match Linked::new() {
        Ok(linked) => {
            let mut reports = more;
            reports.extend(runtime.block_on(linked.run(settings, filter)));
            reports
        }
        Err(error) => vec![Report::broken(
            "linked adapters",
            "every_name_is_registered_once",
            error.to_string(),
        )],
    };
    // A case that computes without an end holds its thread; nobody waits for it.
    runtime.shutdown_background();
    print(&reports, out)
}

/// Prints reports and their sum. `true` when no case failed and something ran.
///
/// # Errors
/// When the output cannot be written.
pub fn print(reports: &[Report], out: &mut dyn Write) -> io::Result<bool> {
    for report in reports {
        write!(out, "{report}")?;
    }
    let sum = |count: fn(&Report) -> usize| reports.iter().map(count).sum::<usize>();
    let (passed, failed) = (sum(Report::passed), sum(Report::failed));
    let skipped = sum(Report::skipped);
    writeln!(out, "{passed} passed, {failed} failed, {skipped} skipped")?;
    Ok(failed == 0 && passed > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CaseReport, Verdict};

    #[test]
    fn the_last_line_has_the_sums() {
        let case = |name, verdict| CaseReport {
            name,
            clauses: &["X1"],
            verdict,
            took: std::time::Duration::ZERO,
        };
        let good = Report {
            suite: "one".to_owned(),
            cases: vec![
                case("a", Verdict::Passed),
                case("b", Verdict::Skipped("no moon".to_owned())),
            ],
        };
        let mut out = Vec::new();
        assert!(print(std::slice::from_ref(&good), &mut out).expect("memory takes it"));
        let bad = Report::broken("two", "c", "for a reason");
        assert!(!print(&[good, bad], &mut out).expect("memory takes it"));
        assert!(!print(&[], &mut out).expect("memory takes it"));
        let text = String::from_utf8(out).expect("it is text");
        for line in [
            "1 passed, 0 failed, 1 skipped",
            "1 passed, 1 failed, 1 skipped",
            "test one: b [X1] ... ignored, no moon",
            "test two: c [] ... FAILED, for a reason",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
