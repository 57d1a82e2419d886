//! Which server to talk to.

use std::path::PathBuf;

use astrabox_client::{Client, Endpoint};
use astrabox_config::{Config, Inputs};

use crate::args::Global;
use crate::exit::Failure;

/// What to do when nobody answers.
const REMEDY: &str =
    "; start the server with `astraboxd`, or name another one with --socket or --server";

/// The configuration, as the server of this user would read it.
pub(crate) fn config(global: &Global) -> anyhow::Result<Config> {
    let mut inputs = Inputs::of_process();
    inputs.file = global.config.clone();
    Ok(inputs.load()?)
}

/// Connects to the server that the options, the environment or the configuration name.
pub(crate) async fn connect(global: &Global) -> anyhow::Result<Client> {
    let connected = Client::connect(endpoint(global)?).await;
    Ok(connected.map_err(|mut error| {
        if error.is_unreachable() {
            error.message.push_str(REMEDY);
        }
        error
    })?)
}

/// Where the server is.
pub(crate) fn endpoint(global: &Global) -> anyhow::Result<Endpoint> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let token_file = global
        .token_file
        .clone()
        .or_else(|| variable("ASTRABOX_TOKEN_FILE").map(PathBuf::from));
    // An option wins over a variable, whichever of the two places it names.
    if let Some(socket) = &global.socket {
        return Ok(Endpoint::unix(socket));
    }
    if let Some(server) = &global.server {
        return tcp(server, token_file);
    }
    if let Some(socket) = variable("ASTRABOX_SOCKET") {
        return Ok(Endpoint::unix(socket));
    }
    if let Some(server) = variable("ASTRABOX_SERVER") {
        return tcp(&server.to_string_lossy(), token_file);
    }
    Ok(Endpoint::unix(config(global)?.socket()))
}

fn tcp(server: &str, token_file: Option<PathBuf>) -> anyhow::Result<Endpoint> {
    match token_file {
        Some(file) => Ok(Endpoint::tcp(server, file)),
        None => Err(Failure::usage(format!(
            "{server} needs a token: give --token-file, or set ASTRABOX_TOKEN_FILE"
        ))),
    }
}
