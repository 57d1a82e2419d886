//! What is wrong with a configuration.

use std::path::PathBuf;

/// What is wrong with a configuration. The texts name the source and the key, and no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {} cannot be read: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        why: String,
    },
    /// The file is not TOML.
    #[error("{} is not valid TOML: {why}", file.display())]
    NotToml {
        /// The file.
        file: PathBuf,
        /// Where and what.
        why: String,
    },
    /// An override is not `key=value`.
    #[error("`{0}` is not `section.key=value`")]
    NotAnOverride(String),
    /// A key that nobody knows.
    #[error("unknown key `{key}` in {source_name}; {hint}")]
    UnknownKey {
        /// The key, as `server.sokcet`.
        key: String,
        /// Where it stands.
        source_name: String,
        /// What there is instead.
        hint: String,
    },
    /// A value of the wrong type.
    #[error("`{key}` in {source_name}: {why}")]
    WrongValue {
        /// The key.
        key: String,
        /// Where it stands.
        source_name: String,
        /// What is wanted.
        why: String,
    },
    /// Values that cannot be meant.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
}
