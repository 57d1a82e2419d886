//! The command line.

use std::path::PathBuf;

/// Runs the AstraBox server until SIGTERM or SIGINT; a second signal ends it at once.
#[derive(Debug, clap::Parser)]
#[command(name = "astraboxd", version)]
pub(crate) struct Args {
    /// The configuration file [default: $ASTRABOX_CONFIG, then the user's, then /etc/astrabox/config.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Overrides one setting; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Checks the configuration and ends
    #[arg(long)]
    pub(crate) check_config: bool,
    /// Prints the configuration with all defaults and without secrets, and ends
    #[arg(long, conflicts_with = "check_config")]
    pub(crate) dump_config: bool,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Runs the egress role; the server starts it by itself
    #[command(hide = true)]
    Egress {
        /// What the server wrote for it
        #[arg(long, value_name = "FILE")]
        config_file: PathBuf,
    },
}
