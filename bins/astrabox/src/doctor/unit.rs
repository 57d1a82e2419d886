//! The settings of the systemd unit under which the server runs: what keeps running turns over a restart, and what
//! sandboxes need of a service manager.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;

use super::Check;
use crate::args::Global;
use crate::connect::endpoint;

const SYSTEMCTL_TIMEOUT: Duration = Duration::from_secs(20);

/// One setting that the unit must have.
struct Rule {
    key: &'static str,
    /// How `systemctl show` names it, where that is another name.
    shown_as: &'static str,
    /// What systemd takes when the unit does not say.
    default: &'static str,
    good: Good,
    /// What the unit should say.
    wanted: &'static str,
    required: bool,
    lost: &'static str,
}

/// Which values are well.
enum Good {
    /// One of these.
    Is(&'static [&'static str]),
    /// None of these.
    IsNot(&'static [&'static str]),
    /// A number that is at least this, or `infinity`.
    AtLeast(u64),
}

const NO: &[&str] = &["", "no", "false", "0", "off", "disabled"];

const fn off(key: &'static str, wanted: &'static str, lost: &'static str) -> Rule {
    Rule {
        key,
        shown_as: key,
        default: "no",
        good: Good::Is(NO),
        wanted,
        required: true,
        lost,
    }
}

const RULES: &[Rule] = &[
    Rule {
        key: "KillMode",
        shown_as: "KillMode",
        default: "control-group",
        good: Good::Is(&["process"]),
        wanted: "KillMode=process",
        required: true,
        lost: "stopping or restarting the server ends every sandbox and its running turn",
    },
    Rule {
        key: "Delegate",
        shown_as: "Delegate",
        default: "no",
        good: Good::IsNot(NO),
        wanted: "Delegate=yes",
        required: true,
        lost: "sandboxes get no control groups: no limits of memory, processes and CPU, and no pause",
    },
    Rule {
        key: "DelegateSubgroup",
        shown_as: "DelegateSubgroup",
        default: "",
        good: Good::IsNot(&[""]),
        wanted: "DelegateSubgroup=server",
        required: false,
        lost: "with cgroup v2, sandboxes have no limits of memory, processes and CPU (systemd 254 or newer)",
    },
    Rule {
        key: "RuntimeDirectoryPreserve",
        shown_as: "RuntimeDirectoryPreserve",
        default: "no",
        good: Good::Is(&["yes", "true", "1", "on"]),
        wanted: "RuntimeDirectoryPreserve=yes",
        required: true,
        lost: "a stop removes the sockets of running sandboxes, and the next start cannot reach them",
    },
    Rule {
        key: "OOMPolicy",
        shown_as: "OOMPolicy",
        default: "stop",
        good: Good::Is(&["continue"]),
        wanted: "OOMPolicy=continue",
        required: false,
        lost: "a sandbox that runs out of memory takes the server down with it",
    },
    Rule {
        key: "Restart",
        shown_as: "Restart",
        default: "no",
        good: Good::Is(&["always", "on-failure"]),
        wanted: "Restart=on-failure",
        required: false,
        lost: "a server that crashed stays away; turns go on, but nobody sees them",
    },
    Rule {
        key: "TasksMax",
        shown_as: "TasksMax",
        default: "4915",
        good: Good::AtLeast(16_384),
        wanted: "TasksMax=infinity",
        required: false,
        lost: "all sandboxes together have few processes; each has a limit of its own anyway",
    },
    Rule {
        key: "LimitNOFILE",
        shown_as: "LimitNOFILESoft",
        default: "1024",
        good: Good::AtLeast(16_384),
        wanted: "LimitNOFILE=65536",
        required: false,
        lost: "some hundred live sessions use up the server's file descriptors",
    },
    off("PrivateUsers", "PrivateUsers=no", "no sandbox can be made"),
    off(
        "RestrictNamespaces",
        "RestrictNamespaces=no",
        "no sandbox can be made",
    ),
    off(
        "ProtectControlGroups",
        "ProtectControlGroups=no",
        "sandboxes get no control groups",
    ),
    off(
        "PrivateDevices",
        "PrivateDevices=no",
        "no loop devices: disk limits are soft",
    ),
    off(
        "ProtectClock",
        "ProtectClock=no",
        "no loop devices: disk limits are soft",
    ),
    off(
        "ProtectHostname",
        "ProtectHostname=no",
        "no sandbox can be made: it has a host name of its own",
    ),
    off(
        "MemoryDenyWriteExecute",
        "MemoryDenyWriteExecute=no",
        "sandboxes inherit it, and programs that compile at run time (Node.js) fail in them",
    ),
    off(
        "ProtectKernelTunables",
        "ProtectKernelTunables=no",
        "sandboxes cannot have a /proc of their own",
    ),
];

/// The settings that decide, by their names in a unit.
type Settings = BTreeMap<String, String>;

/// Checks the unit that is named, or the one of the running server.
pub(super) async fn checks(global: &Global, unit: Option<&str>, user: bool) -> Vec<Check> {
    let (name, user, found) = match unit {
        Some(unit) if unit.contains('/') || Path::new(unit).is_file() => {
            let read = std::fs::read_to_string(unit)
                .with_context(|| format!("{unit} cannot be read"))
                .map(|text| parse(&text));
            (unit.to_owned(), user, read)
        }
        Some(unit) => (unit.to_owned(), user, shown(unit, user).await),
        None => match running(global).await {
            Some((unit, user)) => {
                let found = shown(&unit, user).await;
                (unit, user, found)
            }
            None => return Vec::new(),
        },
    };
    match found {
        Ok(settings) => judge(&name, user, &settings),
        Err(error) => vec![
            Check::failed("unit", format!("{error:#}"))
                .lost("whether a restart keeps running turns is not known")
                .mend("install the unit of docs/systemd, or name a unit or a file with --unit"),
        ],
    }
}

fn judge(unit: &str, user: bool, settings: &Settings) -> Vec<Check> {
    RULES
        .iter()
        .map(|rule| {
            let value = settings.get(rule.key).map_or(rule.default, String::as_str);
            rule.judge(unit, user, value)
        })
        .collect()
}

impl Rule {
    fn judge(&self, unit: &str, user: bool, value: &str) -> Check {
        let name = format!("unit.{}", self.key);
        let detail = format!("{unit}: {}={value}", self.key);
        if self.good.holds(value) {
            return Check {
                required: self.required,
                ..Check::good(name, detail)
            };
        }
        let check = if self.required {
            Check::failed
        } else {
            Check::weak
        };
        let edit = if user {
            "systemctl --user edit"
        } else {
            "sudo systemctl edit"
        };
        check(name, detail).lost(self.lost).mend(format!(
            "{edit} {unit}, and put {} below [Service]",
            self.wanted
        ))
    }
}

impl Good {
    fn holds(&self, value: &str) -> bool {
        match self {
            Self::Is(values) => values.contains(&value),
            Self::IsNot(values) => !values.contains(&value),
            // A pair is soft:hard.
            Self::AtLeast(least) => {
                let soft = value.split(':').next().unwrap_or(value);
                soft == "infinity" || soft.parse::<u64>().is_ok_and(|value| value >= *least)
            }
        }
    }
}

/// The settings of `[Service]` in a unit file. The last one counts, as for systemd.
fn parse(text: &str) -> Settings {
    let mut settings = Settings::new();
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
        } else if section == "Service"
            && let Some((key, value)) = line.split_once('=')
        {
            settings.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    settings
}

/// What the service manager says of a unit.
async fn shown(unit: &str, user: bool) -> anyhow::Result<Settings> {
    let names: Vec<&str> = RULES.iter().map(|rule| rule.shown_as).collect();
    let answer = systemctl(user, unit, &format!("LoadState,{}", names.join(","))).await?;
    if answer
        .get("LoadState")
        .is_some_and(|state| state != "loaded")
    {
        anyhow::bail!("there is no unit {unit}");
    }
    let renamed = RULES.iter().filter_map(|rule| {
        let value = answer.get(rule.shown_as)?;
        Some((rule.key.to_owned(), value.clone()))
    });
    Ok(renamed.collect())
}

async fn systemctl(user: bool, unit: &str, properties: &str) -> anyhow::Result<Settings> {
    let mut command = tokio::process::Command::new("systemctl");
    if user {
        command.arg("--user");
    }
    command
        .args(["show", "--no-pager", "--property", properties, "--", unit])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(SYSTEMCTL_TIMEOUT, command.output()).await;
    let output = output.context("systemctl does not answer")?;
    let output = output.context("systemctl cannot be run")?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        anyhow::bail!("systemctl: {}", told.lines().next().unwrap_or("it failed"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    Ok(pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect())
}

/// The unit whose main process the running server is.
async fn running(global: &Global) -> Option<(String, bool)> {
    let place = endpoint(global).ok()?.describe();
    let socket = std::os::unix::net::UnixStream::connect(place.strip_prefix("unix:")?).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&socket).ok()?;
    let pid = peer.pid.as_raw_nonzero();
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let (unit, user) = unit_of(&groups)?;
    let shown = systemctl(user, &unit, "MainPID").await.ok()?;
    (shown.get("MainPID")? == &pid.to_string()).then_some((unit, user))
}

/// The innermost service in the names of a process's groups, and whether it is one of a user's manager.
fn unit_of(groups: &str) -> Option<(String, bool)> {
    let path = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        matches!(controllers, "" | "name=systemd")
            .then_some(path)
            .filter(|path| path.contains(".service"))
    })?;
    let unit = path
        .split('/')
        .rfind(|part| part.ends_with(".service") && !part.starts_with("user@"))?;
    Some((unit.to_owned(), path.contains("/user@")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: &[(&str, &str)] = &[
        (
            "system",
            include_str!("../../../../docs/systemd/astraboxd.service"),
        ),
        (
            "user",
            include_str!("../../../../docs/systemd/user/astraboxd.service"),
        ),
    ];

    #[test]
    fn the_units_that_ship_have_every_setting_that_the_doctor_demands() {
        for (name, text) in UNITS {
            let settings = parse(text);
            for check in judge(name, false, &settings) {
                assert!(check.ok, "{check:?}");
            }
            // Said, rather than left to what a version of systemd takes when nothing is said.
            for rule in RULES.iter().filter(|rule| !rule.good.holds(rule.default)) {
                assert!(settings.contains_key(rule.key), "{name}: {}", rule.wanted);
            }
            assert!(
                settings["ExecStart"].ends_with("/astraboxd"),
                "{settings:?}"
            );
        }
    }

    #[test]
    fn a_unit_that_says_nothing_would_lose_running_turns() {
        let checks = judge("x.service", false, &parse("[Service]\nExecStart=/x\n"));
        let failed: Vec<&str> = checks
            .iter()
            .filter(|check| !check.ok && check.required)
            .map(|check| check.name.as_str())
            .collect();
        assert_eq!(
            failed,
            [
                "unit.KillMode",
                "unit.Delegate",
                "unit.RuntimeDirectoryPreserve"
            ]
        );
        assert!(
            checks
                .iter()
                .all(|check| check.ok == check.remedy.is_empty())
        );
        assert_eq!(
            checks[0].remedy,
            "sudo systemctl edit x.service, and put KillMode=process below [Service]"
        );
    }

    #[test]
    fn every_remedy_is_what_the_rule_takes() {
        for rule in RULES {
            let (key, value) = rule.wanted.split_once('=').expect("a setting");
            assert_eq!(key, rule.key);
            assert!(rule.good.holds(value), "{}", rule.wanted);
        }
    }

    #[test]
    fn a_unit_file_is_read_as_systemd_reads_it() {
        let text = "[Unit]\nKillMode=none\n[Service]\n# KillMode=mixed\nKillMode = mixed\nKillMode=process\n";
        assert_eq!(parse(text)["KillMode"], "process");
    }

    #[test]
    fn the_servers_unit_is_found_by_its_group() {
        for (groups, found) in [
            (
                "0::/system.slice/astraboxd.service/server\n",
                Some(("astraboxd.service", false)),
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/astraboxd.service/server\n",
                Some(("astraboxd.service", true)),
            ),
            (
                "5:memory:/x.service\n1:name=systemd:/system.slice/a.service\n0::/\n",
                Some(("a.service", false)),
            ),
            ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
            ("0::/user.slice/user@1000.service/app.slice/x.scope\n", None),
        ] {
            let found = found.map(|(unit, user)| (unit.to_owned(), user));
            assert_eq!(unit_of(groups), found, "{groups}");
        }
    }
}
