//! The command line as a whole; each group of commands has its own file.

use std::path::PathBuf;

use crate::{agent, doctor, engine, environment, image, run, sandbox, session, vault};

/// Runs agents in sandboxes: the client of an AstraBox server.
#[derive(Debug, clap::Parser)]
#[command(name = "astrabox", version, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server and output")]
pub(crate) struct Global {
    /// The server's unix socket [default: $ASTRABOX_SOCKET, then what the configuration says]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "server")]
    pub(crate) socket: Option<PathBuf>,
    /// The server's URL, as http://127.0.0.1:7400 [default: $ASTRABOX_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The file with the token for --server [default: $ASTRABOX_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The configuration file, as the server reads it
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Prints JSON: one object, or one a line where a command follows something
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Says something to an agent and shows what it does
    #[command(long_about = run::ABOUT, after_help = EXIT_CODES)]
    Run(Box<run::RunArgs>),
    /// Conversations
    Session {
        #[command(subcommand)]
        command: session::Command,
    },
    /// What to run
    Agent {
        #[command(subcommand)]
        command: Box<agent::Command>,
    },
    /// Where agents run
    Environment {
        #[command(subcommand)]
        command: Box<environment::Command>,
    },
    /// The agent programs that the server can run
    Engine {
        #[command(subcommand)]
        command: engine::Command,
    },
    /// The images of this host
    Image {
        #[command(subcommand)]
        command: image::Command,
    },
    /// The credentials that agents use
    Vault {
        #[command(subcommand)]
        command: Box<vault::Command>,
    },
    /// The sandboxes of the server
    Sandbox {
        #[command(subcommand)]
        command: sandbox::Command,
    },
    /// Looks whether this host and its server can run agents
    #[command(long_about = doctor::ABOUT)]
    Doctor(doctor::DoctorArgs),
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 the server is not reached; 4 not found; \
                          5 refused, or not possible in this state; 6 the turn failed; 130 interrupted.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_documentation_has_every_command() {
        let document = include_str!("../../../docs/cli.md");
        let root = Args::command();
        for group in root.get_subcommands() {
            let name = format!("`astrabox {}`", group.get_name());
            assert!(document.contains(&name), "docs/cli.md does not name {name}");
            for command in group.get_subcommands() {
                let name = format!("`astrabox {} {}`", group.get_name(), command.get_name());
                assert!(document.contains(&name), "docs/cli.md does not name {name}");
            }
        }
    }

    #[test]
    fn the_documentation_has_the_exit_codes_of_the_help() {
        let document = include_str!("../../../docs/cli.md");
        for code in EXIT_CODES
            .trim_start_matches("Exit codes: ")
            .trim_end_matches('.')
            .split("; ")
        {
            let (code, meaning) = code.split_once(' ').expect("a code and its meaning");
            let row = format!("| {code} | {meaning} |");
            assert!(document.contains(&row), "docs/cli.md does not have {row}");
        }
    }
}
