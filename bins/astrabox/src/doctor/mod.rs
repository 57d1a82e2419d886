//! `astrabox doctor`: what this host can and cannot do for agents, and the command that mends each thing.

mod host;
mod kernel;
mod packages;
mod server;
mod space;
mod unit;

use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::args::Global;
use crate::connect::config;
use crate::exit::FAILED;
use crate::out::Out;

/// What `astrabox help doctor` says.
pub(crate) const ABOUT: &str = "\
Looks whether this host and its server can run agents

Ends with 0 when the server can run agents here, and with 1 when something is missing that none can run without \
(FAIL). Where something is only weaker (weak), it says what is lost. Each such line has the command that mends it.";

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Also checks the settings of this systemd unit: a name, or a file of one. Without it, the unit of the running
    /// server
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// --unit is one of this user's own service manager
    #[arg(long, requires = "unit")]
    user: bool,
}

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
    /// What does not work, or is weaker, while it is not well; empty when it is.
    lost: String,
    /// The command that mends it, or what to do; empty when it is well.
    remedy: String,
}

impl Check {
    fn good(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ok: true,
            required: true,
            detail: detail.into(),
            lost: String::new(),
            remedy: String::new(),
        }
    }

    /// Something without which no agent runs.
    fn failed(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            ok: false,
            ..Self::good(name, detail)
        }
    }

    /// Something without which less works.
    fn weak(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            required: false,
            ..Self::failed(name, detail)
        }
    }

    fn lost(self, lost: impl Into<String>) -> Self {
        Self {
            lost: lost.into(),
            ..self
        }
    }

    fn mend(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: remedy.into(),
            ..self
        }
    }
}

pub(crate) async fn run(global: &Global, args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let out = Out::new(global.json);
    let mut checks = vec![configuration(global)];
    checks.extend(kernel::checks());
    checks.extend(host::runner(global).await);
    checks.extend(space::checks(global));
    checks.extend(packages::checks().await?);
    checks.extend(server::images(global).await);
    checks.extend(server::checks(global).await);
    checks.extend(unit::checks(global, args.unit.as_deref(), args.user).await);
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
    let width = checks.iter().map(|check| check.name.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let mark = match (check.ok, check.required) {
            (true, _) => "ok  ",
            (false, true) => "FAIL",
            (false, false) => "weak",
        };
        text.push_str(&format!(
            "{mark}  {:width$}  {}\n",
            check.name, check.detail
        ));
        for (title, told) in [("lost", &check.lost), ("do", &check.remedy)] {
            if !told.is_empty() {
                text.push_str(&format!("      {:width$}  {title}: {told}\n", ""));
            }
        }
    }
    let weak = checks.iter().filter(|check| !check.ok && !check.required);
    text.push_str(&match (well, weak.count()) {
        (true, 0) => "\nThis host can run agents.\n".to_owned(),
        (true, weak) => {
            format!("\nThis host can run agents. Weaker or missing, see above: {weak}.\n")
        }
        (false, _) => "\nThis host cannot run agents yet: see FAIL above.\n".to_owned(),
    });
    text
}

fn configuration(global: &Global) -> Check {
    match config(global) {
        Ok(_) => Check::good("configuration", "it can be read"),
        Err(error) => Check::failed("configuration", format!("{error:#}"))
            .lost("the server does not start")
            .mend("correct it; astraboxd --check-config tells when it is fine"),
    }
}
