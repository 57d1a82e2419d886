//! The package clients with which images are built, and what each engine's recipe wants.

use std::process::Stdio;
use std::time::Duration;

use super::Check;
use super::host::on_path;
use crate::image::engines;

const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// A package client.
struct Client {
    program: &'static str,
    /// The oldest major version that will do.
    least: u64,
    /// How Debian and Ubuntu have it.
    package: &'static str,
    /// The recipe command for whose sake it is looked at.
    serves: &'static str,
}

const CLIENTS: &[Client] = &[
    Client {
        program: "node",
        least: 18,
        package: "nodejs",
        serves: "npm",
    },
    Client {
        program: "npm",
        least: 9,
        package: "npm",
        serves: "npm",
    },
    Client {
        program: "python3",
        least: 3,
        package: "python3",
        serves: "pip",
    },
    Client {
        program: "pip3",
        least: 21,
        package: "python3-pip",
        serves: "pip",
    },
];

/// Names under which recipes ask for what serves as pip.
const PIP: &[&str] = &["pip", "pip3", "python", "python3"];

pub(super) async fn checks() -> anyhow::Result<Vec<Check>> {
    let (mut checks, wanted) = recipes()?;
    for client in CLIENTS {
        let needed = wanted.iter().any(|command| match client.serves {
            "pip" => PIP.contains(command),
            serves => *command == serves,
        });
        checks.push(judge(client, needed, version(client.program).await));
    }
    Ok(checks)
}

/// A check for each recipe, and the commands that they want.
fn recipes() -> anyhow::Result<(Vec<Check>, Vec<&'static str>)> {
    let mut checks = Vec::new();
    let mut wanted = Vec::new();
    for engine in engines()?.iter() {
        let adapter = engine.adapter();
        let recipe = adapter.image_recipe();
        wanted.extend(recipe.commands);
        let name = format!("recipe.{}", adapter.kind());
        let lost = format!("the image of {} cannot be built", adapter.kind());
        let missing: Vec<&str> = recipe
            .commands
            .iter()
            .filter(|command| on_path(command).is_none())
            .copied()
            .collect();
        let here = std::env::consts::ARCH;
        checks.push(if !recipe.architectures.contains(&here) {
            let detail = format!("{} does not run on {here}", adapter.kind());
            let remedy = format!("use a host with {}", recipe.architectures.join(" or "));
            Check::weak(name, detail).lost(lost).mend(remedy)
        } else if missing.is_empty() {
            Check::good(
                name,
                format!("commands found: {}", recipe.commands.join(", ")),
            )
        } else {
            let missing = missing.join(", ");
            let packages = CLIENTS
                .iter()
                .filter(|client| recipe.commands.contains(&client.serves))
                .map(|client| client.package);
            let packages = packages.collect::<Vec<_>>().join(" ");
            let remedy = match packages.as_str() {
                "" => format!("install {missing}"),
                packages => format!("sudo apt-get install {packages}"),
            };
            Check::weak(name, format!("not on the PATH: {missing}"))
                .lost(lost)
                .mend(remedy)
        });
    }
    Ok((checks, wanted))
}

fn judge(client: &Client, needed: bool, version: Option<String>) -> Check {
    let Client {
        program,
        least,
        package,
        ..
    } = client;
    let name = format!("packages.{program}");
    let detail = match &version {
        Some(version) if major(version).is_some_and(|major| major >= *least) => {
            return Check::good(name, version);
        }
        Some(version) => format!("{version} is older than {least}"),
        None => "not found".to_owned(),
    };
    if !needed {
        return Check::good(
            name,
            format!("{detail}; no engine of this program needs it"),
        );
    }
    Check::weak(name, detail)
        .lost("images cannot be built here; those that are built work")
        .mend(format!("sudo apt-get install {package}"))
}

/// What the program says of its version, from the first digit on.
async fn version(program: &str) -> Option<String> {
    on_path(program)?;
    let mut command = tokio::process::Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(VERSION_TIMEOUT, command.output()).await;
    let output = output.ok()?.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.split_whitespace().find_map(|word| {
        let word = word.trim_start_matches('v');
        word.starts_with(|c: char| c.is_ascii_digit())
            .then(|| word.to_owned())
    });
    first.filter(|_| output.status.success())
}

fn major(version: &str) -> Option<u64> {
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_well_when_it_is_new_enough_or_nobody_needs_it() {
        let node = &CLIENTS[0];
        let told = |needed, version: Option<&str>| judge(node, needed, version.map(str::to_owned));
        assert!(told(true, Some("22.1.0")).ok);
        assert!(told(false, None).ok);
        for bad in [
            told(true, Some("16.20.2")),
            told(true, None),
            told(true, Some("x")),
        ] {
            assert!(!bad.ok && !bad.required && bad.remedy == "sudo apt-get install nodejs");
        }
    }
}
