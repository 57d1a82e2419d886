//! The settings, one struct a component.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use astrabox_types::ResourceLimits;
use serde::{Deserialize, Serialize};

use crate::{Block, Host, duration};

/// All settings. Made by [`crate::Inputs::load`], or by [`Config::defaults`] and changed by hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Durable state: the store, the sandboxes' volumes, the audit log.
    pub state_dir: PathBuf,
    /// Sockets and locks; short, because socket paths are limited, and emptied by a reboot.
    pub run_dir: PathBuf,
    /// What can be made again.
    pub cache_dir: PathBuf,
    /// Listeners and the end.
    pub server: ServerSettings,
    /// The store.
    pub store: StoreSettings,
    /// Sandbox providers.
    pub sandbox: SandboxSettings,
    /// Model endpoint providers.
    pub model: ModelSettings,
    /// Who callers are.
    pub identity: IdentitySettings,
    /// Where secrets are kept.
    pub secrets: SecretsSettings,
    /// The egress proxy.
    pub egress: EgressSettings,
    /// How long things of a session may take.
    pub sessions: SessionSettings,
    /// What a sandbox may use when its environment does not say.
    pub limits: ResourceLimits,
    /// Images.
    pub images: ImageSettings,
    /// The log.
    pub log: LogSettings,
}

/// Listeners and the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// The unix socket; `astrabox.sock` in `run_dir` when absent.
    #[serde(default)]
    pub socket: Option<PathBuf>,
    /// An address to listen at as well; callers need tokens there.
    #[serde(default)]
    pub tcp: Option<SocketAddr>,
    /// Whether `tcp` may be other than loopback although nothing encrypts it.
    pub allow_plaintext: bool,
    /// Where programs in sandboxes can call back.
    #[serde(default)]
    pub callback_address: Option<String>,
    /// How long running calls get when the server ends.
    #[serde(with = "duration")]
    pub drain_timeout: Duration,
}

/// The store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    /// The database file; `astrabox.db` in `state_dir` when absent.
    #[serde(default)]
    pub path: Option<PathBuf>,
}

/// Sandbox providers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxSettings {
    /// What this server owns on a shared host; made from `state_dir` when absent.
    #[serde(default)]
    pub root_id: Option<String>,
    /// The provider of environments that name none.
    pub default: String,
    /// The providers' own blocks, by their names.
    #[serde(flatten)]
    pub providers: BTreeMap<String, Block>,
}

/// Model endpoint providers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// The provider of environments that name none.
    pub default: String,
    /// The providers' own blocks, by their names.
    #[serde(flatten)]
    pub providers: BTreeMap<String, Block>,
}

/// Who callers are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IdentitySettings {
    /// The provider.
    pub provider: String,
    /// The providers' own blocks, by their names.
    #[serde(flatten)]
    pub providers: BTreeMap<String, Block>,
}

/// Where secrets are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecretsSettings {
    /// The secret store.
    pub provider: String,
    /// The stores' own blocks, by their names.
    #[serde(flatten)]
    pub providers: BTreeMap<String, Block>,
}

/// The egress proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EgressSettings {
    /// The program that runs the egress role; the server's own when absent.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// The proxy's own settings.
    #[serde(flatten)]
    pub proxy: Block,
}

/// How long things of a session may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSettings {
    /// From the begin of a start until the engine's conversation is bound.
    #[serde(with = "duration")]
    pub start_timeout: Duration,
    /// How long a turn may be silent before it fails as `engine_stalled`. A line that is still coming is no silence.
    #[serde(with = "duration")]
    pub stall_timeout: Duration,
    /// Each step of an interrupt: the program's own way, a signal, a kill.
    #[serde(with = "duration")]
    pub interrupt_timeout: Duration,
    /// How long a session may be idle before its sandbox is released.
    #[serde(with = "duration")]
    pub idle_timeout: Duration,
    /// How long an interaction may wait for an answer.
    #[serde(with = "duration")]
    pub interaction_timeout: Duration,
    /// How many inputs may wait in one session.
    pub max_queued_inputs: usize,
}

/// Images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageSettings {
    /// Where built images are.
    pub cache_dir: PathBuf,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// A level, or levels by target: `info`, `warn,astrabox_platform=debug`.
    pub level: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Config {
    /// The settings of this host when nobody says anything.
    #[must_use]
    pub fn defaults(host: &Host) -> Self {
        Self {
            state_dir: host.state_dir(),
            run_dir: host.run_dir(),
            cache_dir: host.cache_dir(),
            server: ServerSettings {
                socket: None,
                tcp: None,
                allow_plaintext: false,
                callback_address: None,
                drain_timeout: Duration::from_secs(30),
            },
            store: StoreSettings { path: None },
            sandbox: SandboxSettings {
                root_id: None,
                default: "local".to_owned(),
                providers: BTreeMap::new(),
            },
            model: ModelSettings {
                default: "direct".to_owned(),
                providers: BTreeMap::new(),
            },
            identity: IdentitySettings {
                provider: "local".to_owned(),
                providers: BTreeMap::new(),
            },
            secrets: SecretsSettings {
                provider: "local".to_owned(),
                providers: BTreeMap::new(),
            },
            egress: EgressSettings {
                program: None,
                proxy: Block::default(),
            },
            sessions: SessionSettings::default(),
            limits: ResourceLimits::default(),
            images: ImageSettings {
                cache_dir: host.image_cache_dir(),
            },
            log: LogSettings {
                level: "info".to_owned(),
                format: LogFormat::Text,
            },
        }
    }

    /// The settings with everything below one folder, as tests and embedders want them: nothing of the host's own
    /// folders is used but the cache of images.
    #[must_use]
    pub fn below(folder: &std::path::Path, host: &Host) -> Self {
        Self {
            state_dir: folder.join("state"),
            run_dir: folder.join("run"),
            cache_dir: folder.join("cache"),
            ..Self::defaults(host)
        }
    }

    /// Where the unix socket is.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.server
            .socket
            .clone()
            .unwrap_or_else(|| self.run_dir.join("astrabox.sock"))
    }

    /// Where the database is.
    #[must_use]
    pub fn store_path(&self) -> PathBuf {
        self.store
            .path
            .clone()
            .unwrap_or_else(|| self.state_dir.join("astrabox.db"))
    }

    /// The sandbox root: given, or made from the state folder, so that a server finds its own again and two servers
    /// never take each other's.
    #[must_use]
    pub fn root_id(&self) -> String {
        use std::fmt::Write as _;
        use std::os::unix::ffi::OsStrExt as _;

        use sha2::Digest as _;

        if let Some(root_id) = &self.sandbox.root_id {
            return root_id.clone();
        }
        let digest = sha2::Sha256::digest(self.state_dir.as_os_str().as_bytes());
        digest[..5].iter().fold("r".to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(600),
            interrupt_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30 * 60),
            interaction_timeout: Duration::from_secs(24 * 3600),
            max_queued_inputs: 100,
        }
    }
}
