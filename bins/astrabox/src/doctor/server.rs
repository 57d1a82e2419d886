//! The images, the server, and whether it knows who asks.

use astrabox_client::{Client, v1};

use super::Check;
use crate::args::Global;
use crate::connect::{connect, endpoint};
use crate::image;

/// Whether the image of each engine is built.
pub(super) async fn images(global: &Global) -> Vec<Check> {
    let states = match image::state(global).await {
        Ok(states) => states,
        Err(error) => {
            let check = Check::failed("image", format!("{error:#}"));
            return vec![
                check
                    .lost("no image is found, and no session starts")
                    .mend("set images.cache_dir to a folder of this user"),
            ];
        }
    };
    let check = |(kind, name, built): (&str, String, bool)| {
        let title = format!("image.{kind}");
        if built {
            return Check::good(title, format!("{name} is built"));
        }
        Check::weak(title, format!("{name} is not built"))
            .lost(format!("sessions of {kind} do not start"))
            .mend(format!("astrabox image build {kind}"))
    };
    states.into_iter().map(check).collect()
}

/// Whether a server answers, and this caller.
pub(super) async fn checks(global: &Global) -> Vec<Check> {
    let weak = |error: String, remedy: &str| {
        let check = Check::weak("server", error);
        vec![check.lost("nothing runs now").mend(remedy)]
    };
    let place = match endpoint(global) {
        Ok(endpoint) => endpoint.describe(),
        Err(error) => {
            return weak(
                format!("{error:#}"),
                "say which server with --socket or --server",
            );
        }
    };
    let client = match connect(global).await {
        Ok(client) => client,
        Err(_) => {
            return weak(
                format!("none answers at {place}"),
                "astraboxd, or sudo systemctl start astraboxd.service",
            );
        }
    };
    match client.is_serving().await {
        Ok(true) => vec![
            Check::good("server", format!("{place} serves")),
            caller(&client).await,
        ],
        Ok(false) => weak(
            format!("{place} is shutting down"),
            "start it again: astraboxd",
        ),
        Err(error) => weak(
            error.to_string(),
            "look at its log: journalctl -u astraboxd.service",
        ),
    }
}

async fn caller(client: &Client) -> Check {
    match client.list_engines(v1::ListEnginesRequest {}).await {
        Ok(answer) => {
            let engines: Vec<_> = answer.engines.iter().map(|engine| engine.kind.as_str()).collect();
            Check::good(
                "caller",
                format!("the server knows you; engines: {}", engines.join(", ")),
            )
        }
        Err(error) => Check::weak("caller", error.to_string())
            .lost("this user cannot use the server")
            .mend("add your uid (id -u) to identity.local.allowed_uids, or give a token with --token-file"),
    }
}
