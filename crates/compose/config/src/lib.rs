//! Configuration layers: defaults, file, environment, command line.
//!
//! Invariant: knows no adapter; the block of an adapter is carried as it stands and read by the adapter itself.
//!
//! A later layer wins over an earlier one, setting by setting:
//!
//! 1. the defaults of this host and user ([`Host`]);
//! 2. one file, TOML: the one that is named, by the command line or by `ASTRABOX_CONFIG`, and must be there; else the
//!    first that exists of `$XDG_CONFIG_HOME/astrabox/config.toml` (or `~/.config/...`) and
//!    `/etc/astrabox/config.toml`. The current folder is never searched: a server that is started in somebody's
//!    checkout does not take its settings;
//! 3. variables `ASTRABOX_<SECTION>__<KEY>`; one without `__` that names no setting belongs to another program;
//! 4. overrides `section.key=value` of the command line.
//!
//! A key that nobody knows is refused with its source, as is a value of the wrong type.

mod block;
mod check;
mod dump;
mod duration;
mod error;
mod host;
mod keys;
mod layers;
mod load;
mod model;

#[cfg(test)]
mod tests;

pub use block::Block;
pub use error::ConfigError;
pub use host::{CLIENT_VARIABLES, Host};
pub use keys::{KEYS, Key, Kind, reference};
pub use load::Inputs;
pub use model::{
    Config, EgressSettings, IdentitySettings, ImageSettings, LogFormat, LogSettings, ModelSettings,
    SandboxSettings, ServerSettings, SessionSettings, StoreSettings,
};
