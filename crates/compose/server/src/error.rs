//! Why an App cannot be built or started.

use std::path::PathBuf;

use astrabox_config::ConfigError;
use astrabox_registry::DuplicateName;

/// Why an App cannot be built or started. Each text names the setting and the remedy; the whole story is the text
/// with those of its sources.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be meant.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Two adapters have one name.
    #[error(transparent)]
    Duplicate(#[from] DuplicateName),
    /// The configuration names an adapter that is not linked.
    #[error("{setting}: no {seam} is called `{name}`; there {}", known_names(.known))]
    UnknownAdapter {
        /// The setting that names it.
        setting: String,
        /// Which kind of adapter.
        seam: &'static str,
        /// The name.
        name: String,
        /// What is linked.
        known: Vec<&'static str>,
    },
    /// An adapter refuses its block, or cannot work on this host.
    #[error("{setting} cannot be used")]
    Adapter {
        /// The block's path.
        setting: String,
        /// The adapter's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A setting of a component is wrong.
    #[error("{setting}: {message}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong and what to do.
        message: String,
    },
    /// TCP is asked for, and callers could not be told apart.
    #[error(
        "server.tcp is set, and the identity provider `{provider}` takes no tokens: give it some (for `local`, set \
         identity.local.token_file), or leave server.tcp out"
    )]
    TcpWithoutTokens {
        /// The identity provider.
        provider: String,
    },
    /// Another server has the folder.
    #[error("another server uses {setting} {}: stop it, or give this one its own", folder.display())]
    InUse {
        /// The setting.
        setting: &'static str,
        /// The folder.
        folder: PathBuf,
    },
    /// Another server answers at the socket.
    #[error("another server answers at {}: stop it, or set server.socket", socket.display())]
    SocketInUse {
        /// The socket.
        socket: PathBuf,
    },
    /// Something that is no socket is in the socket's place.
    #[error("{} is in the way and is no socket: remove it, or set server.socket", path.display())]
    NotASocket {
        /// What is there.
        path: PathBuf,
    },
    /// Others could change what is in the folder.
    #[error("{setting} {} belongs to or can be written by other users: make it yours, with mode 0700", folder.display())]
    Exposed {
        /// The setting.
        setting: &'static str,
        /// The folder.
        folder: PathBuf,
    },
    /// No program for the egress role was found.
    #[error(
        "the program of the egress role was not found: set egress.program to `astraboxd`, or embed the role \
         (EgressMode::Embedded)"
    )]
    NoEgressProgram,
    /// The system refuses something.
    #[error("cannot {what}")]
    Io {
        /// What it refuses.
        what: String,
        /// How.
        source: std::io::Error,
    },
    /// The store cannot be used.
    #[error("store.path cannot be used")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The platform does not start.
    #[error("the platform does not start")]
    Platform(#[source] astrabox_platform::Error),
}

impl Error {
    pub(crate) fn adapter(
        setting: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Adapter {
            setting: setting.into(),
            source: Box::new(source),
        }
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            what: what.into(),
            source,
        }
    }
}

fn known_names(known: &[&str]) -> String {
    match known {
        [] => "is none".to_owned(),
        [one] => format!("is `{one}`"),
        many => format!("are {}", many.join(", ")),
    }
}
