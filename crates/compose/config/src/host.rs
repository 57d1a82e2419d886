//! What the defaults depend on: who runs the program, and where that user's folders are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Variables that begin with `ASTRABOX_` and are no settings of the server: the configuration file, and where the
/// command-line client finds a server.
pub const CLIENT_VARIABLES: &[&str] = &[
    "ASTRABOX_CONFIG",
    "ASTRABOX_SOCKET",
    "ASTRABOX_SERVER",
    "ASTRABOX_TOKEN_FILE",
];

/// The user and the environment of a process, as values: nothing in this crate looks at the process by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// The effective user.
    pub uid: u32,
    /// `HOME` and the folders of the XDG base directory specification; empty and relative ones do not count.
    folders: BTreeMap<&'static str, PathBuf>,
}

const FOLDER_VARIABLES: [&str; 5] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
];

impl Host {
    /// A user with these variables.
    #[must_use]
    pub fn new(uid: u32, variables: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let folders = FOLDER_VARIABLES
            .into_iter()
            .filter_map(|name| Some((name, variables(name).filter(|path| path.is_absolute())?)))
            .collect();
        Self { uid, folders }
    }

    /// The user and variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self::new(uid, |name| std::env::var_os(name).map(PathBuf::from))
    }

    fn is_root(&self) -> bool {
        self.uid == 0
    }

    fn folder(&self, variable: &str, below_home: &str) -> Option<PathBuf> {
        let given = self.folders.get(variable).cloned();
        given.or_else(|| self.folders.get("HOME").map(|home| home.join(below_home)))
    }

    /// A folder for a user who has none: named by the user, checked by the server before it is used.
    fn without_home(&self, name: &str) -> PathBuf {
        Path::new("/tmp")
            .join(format!("astrabox-{}", self.uid))
            .join(name)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        if self.is_root() {
            return PathBuf::from("/var/lib/astrabox");
        }
        match self.folder("XDG_STATE_HOME", ".local/state") {
            Some(folder) => folder.join("astrabox"),
            None => self.without_home("state"),
        }
    }

    pub(crate) fn run_dir(&self) -> PathBuf {
        if self.is_root() {
            return PathBuf::from("/run/astrabox");
        }
        match self.folders.get("XDG_RUNTIME_DIR") {
            Some(folder) => folder.join("astrabox"),
            // Below the home it could be too long for a socket.
            None => self.without_home("run"),
        }
    }

    pub(crate) fn cache_dir(&self) -> PathBuf {
        if self.is_root() {
            return PathBuf::from("/var/cache/astrabox");
        }
        match self.folder("XDG_CACHE_HOME", ".cache") {
            Some(folder) => folder.join("astrabox"),
            None => self.without_home("cache"),
        }
    }

    /// The user's own cache, root's too: who builds an image with the command line, and any server of that user,
    /// find the same one.
    pub(crate) fn image_cache_dir(&self) -> PathBuf {
        match self.folder("XDG_CACHE_HOME", ".cache") {
            Some(folder) => folder.join("astrabox/images"),
            None => self.cache_dir().join("images"),
        }
    }

    /// Files to look for when none is named, in order.
    pub(crate) fn config_files(&self) -> Vec<PathBuf> {
        let own = self
            .folder("XDG_CONFIG_HOME", ".config")
            .map(|folder| folder.join("astrabox/config.toml"));
        own.into_iter()
            .chain([PathBuf::from("/etc/astrabox/config.toml")])
            .collect()
    }
}
