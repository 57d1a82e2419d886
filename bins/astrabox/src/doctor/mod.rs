//! `astrabox doctor`.

mod host;

use std::process::ExitCode;

use astrabox_client::{Client, v1};
use serde::Serialize;
use serde_json::json;

use crate::args::Global;
use crate::connect::{config, connect, endpoint};
use crate::exit::FAILED;
use crate::image;
use crate::out::Out;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// A short name, stable.
    name: String,
    /// Whether it is well.
    ok: bool,
    /// Whether no agent can run without it.
    required: bool,
    /// What was found.
    detail: String,
    /// What to do if it is not well.
    remedy: String,
}

impl Check {
    fn good(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ok: true,
            required: true,
            detail: detail.into(),
            remedy: String::new(),
        }
    }

    fn bad(
        name: impl Into<String>,
        required: bool,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            ok: false,
            required,
            detail: detail.into(),
            remedy: remedy.into(),
        }
    }
}

pub(crate) async fn run(global: &Global) -> anyhow::Result<ExitCode> {
    let out = Out::new(global.json);
    let mut checks = vec![configuration(global)];
    checks.extend(host::runner(global).await);
    checks.extend(host::recipes()?);
    checks.extend(images(global).await);
    checks.extend(server(global).await);
    let well = checks.iter().all(|check| check.ok || !check.required);
    if out.is_json() {
        out.line(&json!({ "ok": well, "checks": checks }).to_string())?;
    } else {
        out.write(&describe(&checks, well))?;
    }
    Ok(if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}

fn describe(checks: &[Check], well: bool) -> String {
    let width = checks
        .iter()
        .map(|check| check.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for Check {
        name,
        ok,
        required,
        detail,
        remedy,
    } in checks
    {
        let mark = match (ok, required) {
            (true, _) => "ok  ",
            (false, true) => "FAIL",
            (false, false) => "weak",
        };
        text.push_str(&format!("{mark}  {name:width$}  {detail}\n"));
        if !remedy.is_empty() {
            text.push_str(&format!("      {:width$}  -> {remedy}\n", ""));
        }
    }
    text.push_str(if well {
        "\nThis host can run agents.\n"
    } else {
        "\nThis host cannot run agents yet.\n"
    });
    text
}

fn configuration(global: &Global) -> Check {
    match config(global) {
        Ok(_) => Check::good("configuration", "it can be read"),
        Err(error) => Check::bad(
            "configuration",
            true,
            format!("{error:#}"),
            "correct it; see `astraboxd --check-config`",
        ),
    }
}

async fn images(global: &Global) -> Vec<Check> {
    match image::state(global).await {
        Ok(states) => states
            .into_iter()
            .map(|(kind, name, built)| {
                let title = format!("image.{kind}");
                if built {
                    return Check::good(title, format!("{name} is built"));
                }
                let remedy = format!("build it: astrabox image build {kind}");
                Check::bad(title, false, format!("{name} is not built"), remedy)
            })
            .collect(),
        Err(error) => vec![Check::bad(
            "image",
            true,
            format!("{error:#}"),
            "set images.cache_dir",
        )],
    }
}

async fn server(global: &Global) -> Vec<Check> {
    let place = match endpoint(global) {
        Ok(endpoint) => endpoint.describe(),
        Err(error) => {
            return vec![Check::bad(
                "server",
                false,
                format!("{error:#}"),
                "say which server to ask",
            )];
        }
    };
    let client = match connect(global).await {
        Ok(client) => client,
        Err(error) => {
            return vec![Check::bad(
                "server",
                false,
                format!("{error:#}"),
                "start one: astraboxd",
            )];
        }
    };
    match serving(&client).await {
        Ok(true) => vec![
            Check::good("server", format!("{place} serves")),
            caller(&client).await,
        ],
        Ok(false) => vec![Check::bad(
            "server",
            false,
            format!("{place} is shutting down"),
            "start it again",
        )],
        Err(error) => vec![Check::bad(
            "server",
            false,
            format!("{error:#}"),
            "look at its log",
        )],
    }
}

async fn serving(client: &Client) -> anyhow::Result<bool> {
    Ok(client.is_serving().await?)
}

async fn caller(client: &Client) -> Check {
    match client.list_engines(v1::ListEnginesRequest {}).await {
        Ok(answer) => Check::good(
            "caller",
            format!("the server knows you; engines: {}", answer.engines.len()),
        ),
        Err(error) => Check::bad(
            "caller",
            false,
            error.to_string(),
            "add your user to identity.local.allowed_uids, or show a token",
        ),
    }
}
