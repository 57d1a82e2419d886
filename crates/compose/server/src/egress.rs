//! The egress role of an App.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use astrabox_config::Config;
use astrabox_egress::Host;
use astrabox_egress_proxy::{
    EgressConfig, EgressGateClient, EgressRole, GateOptions, RoleConfig, RoleError, SystemResolver,
};
use astrabox_oauth::{TokenClient, roots_of_pem};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// The program that has the role, and its first argument.
const PROGRAM: &str = "astraboxd";
const ROLE: &str = "egress";

/// Where the egress role runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EgressMode {
    /// In a process of its own, unprivileged, which outlives this one: the model streams of running turns go on while
    /// the server is away.
    #[default]
    Process,
    /// In this process, with all its rights: for embedders without a program for it, and for tests. Sandboxes reach
    /// nothing while the process is away.
    Embedded,
}

/// The gate, and the role where it is embedded.
pub(crate) struct Egress {
    pub(crate) gate: Arc<EgressGateClient>,
    embedded: JoinSet<()>,
    stop: CancellationToken,
}

impl Egress {
    /// Finds or starts the role.
    ///
    /// # Errors
    /// When its settings are wrong or it does not start.
    pub(crate) async fn start(config: &Config, mode: EgressMode) -> Result<Self, Error> {
        let role = RoleConfig {
            run_dir: config.run_dir.join("egress"),
            audit_dir: config.state_dir.join("egress"),
            authority_dir: config.state_dir.join("egress-authority"),
            egress: settings(config)?,
        };
        let mut embedded = JoinSet::new();
        let stop = CancellationToken::new();
        let argv = match mode {
            EgressMode::Process => Some(argv(config)?),
            EgressMode::Embedded => {
                embed(&role, &mut embedded, &stop)?;
                None
            }
        };
        let gate = EgressGateClient::connect(GateOptions::new(role, argv)).await;
        let gate = gate.map_err(|error| Error::adapter("egress", error))?;
        Ok(Self {
            gate: Arc::new(gate),
            embedded,
            stop,
        })
    }

    /// Leaves the role: one of its own goes on for the sandboxes that live, and ends when there are none.
    pub(crate) async fn leave(mut self) {
        if let Err(error) = self.gate.drain().await {
            tracing::warn!(%error, "the egress role was not told that the server ends");
        }
        self.gate.disconnect().await;
        self.stop.cancel();
        while self.embedded.join_next().await.is_some() {}
    }
}

/// The proxy's settings.
///
/// # Errors
/// When a key is unknown or a value cannot be meant, by its path.
pub(crate) fn settings(config: &Config) -> Result<EgressConfig, Error> {
    let wrong = |message: String| Error::Setting {
        setting: "egress",
        message,
    };
    let settings: EgressConfig = serde_json::from_value(config.egress.proxy.value())
        .map_err(|error| wrong(error.to_string()))?;
    settings.check().map_err(|error| {
        let text = error.to_string();
        wrong(text.strip_prefix("egress.").unwrap_or(&text).to_owned())
    })?;
    Ok(settings)
}

/// How the platform itself reaches token endpoints: by the same rules as sandboxes.
///
/// # Errors
/// As [`settings`].
pub(crate) fn token_client(config: &Config) -> Result<TokenClient, Error> {
    let EgressConfig {
        allow_private,
        deny,
        static_hosts,
        extra_roots,
        ..
    } = settings(config)?;
    let mut roots = Vec::new();
    for path in &extra_roots {
        let pem = std::fs::read(path).map_err(Error::io(format!(
            "read {} of egress.extra_roots",
            path.display()
        )))?;
        roots.extend(roots_of_pem(&pem));
    }
    let stated = Arc::new(move |host: &Host, port| static_hosts.find(host, port));
    Ok(TokenClient::new(allow_private, stated, roots).denying(deny))
}

fn embed(
    role: &RoleConfig,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let resolver = Arc::new(SystemResolver::default());
    let role = match EgressRole::build_embedded(role.clone(), resolver) {
        Ok(role) => role,
        // As good as one of our own.
        Err(RoleError::AlreadyRunning) => return Ok(()),
        Err(error) => return Err(Error::adapter("egress", error)),
    };
    let stop = stop.clone();
    tasks.spawn(async move {
        if let Err(error) = role.run(stop).await {
            tracing::error!(%error, "the egress role failed");
        }
    });
    Ok(())
}

fn argv(config: &Config) -> Result<Vec<OsString>, Error> {
    let program = match &config.egress.program {
        Some(program) => Some(program.clone()),
        None => std::env::current_exe()
            .ok()
            .and_then(|own| program_near(&own)),
    };
    let program = program.ok_or(Error::NoEgressProgram)?;
    Ok(vec![program.into_os_string(), ROLE.into()])
}

/// This program when it has the role, else the one beside it, or one folder up as cargo lays out test programs.
fn program_near(own: &Path) -> Option<PathBuf> {
    if own.file_name()? == PROGRAM {
        return Some(own.to_owned());
    }
    let folder = own.parent()?;
    [Some(folder), folder.parent()]
        .into_iter()
        .flatten()
        .map(|folder| folder.join(PROGRAM))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use astrabox_config::Host;

    use super::*;

    #[test]
    fn the_program_is_this_one_or_near_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        assert_eq!(program_near(&path("astraboxd")), Some(path("astraboxd")));
        assert_eq!(program_near(&path("deps/test-1234")), None);
        std::fs::write(path("astraboxd"), "").expect("it is written");
        assert_eq!(program_near(&path("other")), Some(path("astraboxd")));
        assert_eq!(
            program_near(&path("deps/test-1234")),
            Some(path("astraboxd"))
        );
    }

    #[test]
    fn wrong_settings_are_told_by_their_path() {
        for (key, value, part) in [
            (
                "orphan_graze",
                serde_json::json!("1m"),
                "egress: unknown field `orphan_graze`",
            ),
            (
                "max_connections",
                serde_json::json!(0),
                "egress: max_connections: must be",
            ),
        ] {
            let mut config = Config::below(Path::new("/srv/x"), &Host::default());
            config.egress.proxy.set(key, value);
            let error = settings(&config).expect_err("it is refused").to_string();
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn the_documentation_has_every_setting_of_the_proxy() {
        let document = include_str!("../../../../docs/configuration.md");
        let settings = serde_json::to_value(EgressConfig::default()).expect("it is JSON");
        for key in settings.as_object().expect("a table").keys() {
            let row = format!("| `egress.{key}` |");
            assert!(
                document.contains(&row),
                "docs/configuration.md does not have {row}"
            );
        }
    }
}
