//! SB13: a process is started once, as it was asked for, and inherits nothing.

use astrabox_sandbox::ErrorKind;

use super::bench::{TOKEN, path, wait_until};
use super::reading::PATIENCE;
use super::{Probe, SandboxBench};
use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<SandboxBench>> {
    cases![
        the_same_request_gives_the_running_process [SB13],
        the_same_request_after_the_end_starts_nothing [SB13],
        another_request_under_a_name_is_refused [SB13],
        a_restarted_server_repeats_a_spawn_without_harm [SB13 SB3],
        a_process_gets_what_it_was_given_and_nothing_of_the_host [SB13 SB17],
        a_program_that_does_not_exist_is_an_error [SB13],
    ]
}

/// How many times the marking process was started, once it was.
async fn marks(sandbox: &astrabox_sandbox::Sandbox, file: &str) -> Result<String, crate::Stop> {
    let file = path(file);
    wait_until(PATIENCE, || async {
        Ok(sandbox
            .workload
            .stat(&file)
            .await
            .is_ok_and(|info| info.size > 0))
    })
    .await
    .doing("the process left no mark")?;
    let text = sandbox.workload.read_file(&file, 0, 100).await;
    Ok(String::from_utf8_lossy(&text.doing("read the marks")?).into_owned())
}

fn marking() -> Probe {
    Probe::Mark {
        path: "/workspace/marks".to_owned(),
    }
}

async fn the_same_request_gives_the_running_process(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let spec = bench.process(&marking())?;
    let first = sandbox.workload.spawn(spec.clone()).await.doing("spawn")?;
    check!(first.pid > 0, "a process has the pid {}", first.pid);
    marks(&sandbox, "/workspace/marks").await?;
    for _ in 0..2 {
        let again = sandbox.workload.spawn(spec.clone()).await;
        let again = again.doing("spawn again")?;
        check_eq!(again.pid, first.pid, "the pid of the same request");
        check_eq!(again.exit, None, "its exit");
    }
    // A second start would have come before this process.
    bench.run(&*sandbox.workload, &Probe::say("")).await?;
    let marks = marks(&sandbox, "/workspace/marks").await?;
    check_eq!(marks, "x", "the marks of one process");
    Ok(())
}

async fn the_same_request_after_the_end_starts_nothing(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let spec = bench.process(&Probe::say("once"))?;
    let done = bench.run_spec(&*sandbox.workload, spec.clone()).await?;
    check_eq!(done.stdout, "once", "what it printed");
    let ended = sandbox.workload.status(&spec.name).await.doing("status")?;
    let again = sandbox.workload.spawn(spec.clone()).await;
    let again = again.doing("spawn again")?;
    check_eq!(
        Some(again.pid),
        ended.map(|ended| ended.pid),
        "the pid of the ended process"
    );
    check_eq!(again.exit, Some(done.exit), "the exit of the ended process");
    Ok(())
}

async fn another_request_under_a_name_is_refused(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let spec = bench.process(&Probe::Wait)?;
    sandbox.workload.spawn(spec.clone()).await.doing("spawn")?;
    let mut other = bench.process(&Probe::say("other"))?;
    other.name = spec.name.clone();
    let mut environment = spec.clone();
    environment.env.insert("MORE".to_owned(), "1".to_owned());
    for (spec, what) in [
        (other, "another program"),
        (environment, "another environment"),
    ] {
        let spawned = sandbox.workload.spawn(spec).await;
        refused(spawned, &[ErrorKind::AlreadyExists], what)?;
    }
    let status = sandbox.workload.status(&spec.name).await.doing("status")?;
    check!(
        status.is_some_and(|status| status.exit.is_none()),
        "the first process is not there any more"
    );
    Ok(())
}

async fn a_restarted_server_repeats_a_spawn_without_harm(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let spec = bench.process(&marking())?;
    let first = sandbox.workload.spawn(spec.clone()).await.doing("spawn")?;
    marks(&sandbox, "/workspace/marks").await?;
    let restarted = bench.restarted().await?;
    let again = restarted.connect(sandbox.id).await.doing("connect")?;
    let second = again.workload.spawn(spec).await.doing("spawn again")?;
    check_eq!(second.pid, first.pid, "the pid after a restart");
    bench.run(&*again.workload, &Probe::say("")).await?;
    let marks = marks(&sandbox, "/workspace/marks").await?;
    check_eq!(marks, "x", "the marks of one process");
    Ok(())
}

async fn a_process_gets_what_it_was_given_and_nothing_of_the_host(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let mut spec = bench.process(&Probe::Surroundings)?;
    spec.env.insert("ODD".to_owned(), "a=b \u{fc}".to_owned());
    let given = spec.env.clone();
    let done = bench.run_spec(&*sandbox.workload, spec).await?;
    let mut lines: Vec<_> = done.stdout.lines().collect();
    check_eq!(lines.pop(), Some("arg=a b"), "the last argument");
    check_eq!(lines.pop(), Some("cwd=/workspace"), "the directory");
    for (name, value) in &given {
        check!(
            lines.contains(&format!("{name}={value}").as_str()),
            "{name} is not {value:?} in {lines:?}"
        );
    }
    // What shells set by themselves.
    let own = ["PWD", "OLDPWD", "SHLVL", "_"];
    for line in lines {
        let name = line.split('=').next().unwrap_or_default();
        check!(
            given.contains_key(name) || own.contains(&name),
            "the process has {line:?}, which nobody gave to it"
        );
    }
    check!(given.contains_key(TOKEN), "the case has no token");
    Ok(())
}

async fn a_program_that_does_not_exist_is_an_error(bench: &SandboxBench) -> Checked {
    let sandbox = bench.create().await?;
    let mut spec = bench.process(&Probe::Wait)?;
    spec.argv = vec!["/nonexistent/program".to_owned()];
    let name = spec.name.clone();
    let spawned = sandbox.workload.spawn(spec).await;
    check!(spawned.is_err(), "a program that is not there was started");
    let status = sandbox.workload.status(&name).await.doing("status")?;
    check!(
        status.is_none_or(|status| status.exit.is_some()),
        "a process runs that has no program"
    );
    Ok(())
}
