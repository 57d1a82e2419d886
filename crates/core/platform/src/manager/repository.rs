//! The agent's repository, put into an empty workspace. Git runs inside the sandbox: what it fetches is not trusted, and
//! its way out is the sandbox's.

use std::collections::BTreeMap;
use std::time::Duration;

use astrabox_sandbox::{
    BoxPath, ErrorKind, HOME, OutputEvent, ProcessName, SpawnSpec, Stdio, WORKSPACE, Workload,
};
use astrabox_startup::Refusal;
use astrabox_types::{ErrorReason, Repository};
use futures::StreamExt as _;

/// How long git may take.
const CLONE_TIMEOUT: Duration = Duration::from_secs(600);
/// How much longer the runner may take to say so.
const GRACE: Duration = Duration::from_secs(30);
/// How much of what git says last is told.
const TOLD: usize = 2000;
/// Where a clone grows, and where it is when it is whole: in the workspace, because a tree moves only within a mount.
const GROWING: &str = ".astrabox-clone.partial";
const WHOLE: &str = ".astrabox-clone";
/// Its entry moves last: with it there, the checkout is whole.
const GIT: &str = ".git";

type Outcome<T> = Result<T, Refusal>;

/// Clones the repository into the workspace when that is empty; a checkout, or anything else, that is there stays. A
/// clone that was cut off begins anew, one that was cut off while it moved in goes on.
///
/// # Errors
/// `REPOSITORY_UNAVAILABLE`, with what git said last.
pub(super) async fn clone(
    workload: &dyn Workload,
    repository: &Repository,
    env: &BTreeMap<String, String>,
    epoch: u64,
) -> Outcome<()> {
    let workspace = path(WORKSPACE)?;
    let (growing, whole) = (below(&workspace, GROWING)?, below(&workspace, WHOLE)?);
    let there = names(workload, &workspace).await?;
    if there.iter().any(|name| name == WHOLE) {
        return move_in(workload, &whole, &workspace).await;
    }
    if there.iter().any(|name| name != GROWING) {
        return Ok(());
    }
    workload.remove(&growing).await.map_err(sandbox)?;
    run_git(workload, repository, env, &growing, epoch).await?;
    workload.rename(&growing, &whole).await.map_err(sandbox)?;
    move_in(workload, &whole, &workspace).await
}

async fn move_in(workload: &dyn Workload, whole: &BoxPath, workspace: &BoxPath) -> Outcome<()> {
    let mut all = names(workload, whole).await?;
    all.sort_by_key(|name| name == GIT);
    for name in all {
        let (from, to) = (below(whole, &name)?, below(workspace, &name)?);
        workload.rename(&from, &to).await.map_err(sandbox)?;
    }
    workload.remove(whole).await.map_err(sandbox)
}

async fn run_git(
    workload: &dyn Workload,
    repository: &Repository,
    env: &BTreeMap<String, String>,
    target: &BoxPath,
    epoch: u64,
) -> Outcome<()> {
    let name =
        ProcessName::new(format!("clone-{epoch}")).map_err(|error| odd(error.to_string()))?;
    let spec = SpawnSpec {
        name: name.clone(),
        argv: arguments(repository, target),
        env: env.clone(),
        cwd: path(HOME)?,
        stdin: Stdio::Null,
        wall_limit: Some(CLONE_TIMEOUT),
    };
    workload.spawn(spec).await.map_err(sandbox)?;
    let mut output = workload.attach(&name, 0, 0).await.map_err(sandbox)?;
    let mut said = Vec::new();
    let exit = async {
        while let Some(event) = output.next().await {
            match event.map_err(sandbox)? {
                OutputEvent::Output(output) => {
                    said.extend_from_slice(&output.bytes);
                    said.drain(..said.len().saturating_sub(TOLD));
                }
                OutputEvent::Exited(exit) => return Ok(exit),
            }
        }
        Err(odd("the sandbox did not say how git ended"))
    };
    let exit = tokio::time::timeout(CLONE_TIMEOUT + GRACE, exit).await;
    let exit = exit.map_err(|_| odd("git did not end"))??;
    if exit.code == Some(0) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    Err(Refusal::new(
        ErrorReason::RepositoryUnavailable,
        format!(
            "`{}` could not be cloned ({}): {}; check the address, the branch, the environment's networking and the \
             http_basic credential in the agent's vaults",
            repository.url,
            exit.code.map_or_else(
                || exit.reason.code().to_owned(),
                |code| format!("exit code {code}")
            ),
            said.trim()
        ),
    ))
}

fn arguments(repository: &Repository, target: &BoxPath) -> Vec<String> {
    let mut argv: Vec<String> = ["/usr/bin/git", "clone", "--quiet"]
        .map(str::to_owned)
        .to_vec();
    if let Some(branch) = &repository.branch {
        argv.extend(["--branch".to_owned(), branch.clone()]);
    }
    if let Some(depth) = repository.depth {
        argv.extend(["--depth".to_owned(), depth.to_string()]);
    }
    argv.extend([
        "--".to_owned(),
        repository.url.clone(),
        target.as_str().to_owned(),
    ]);
    argv
}

/// What is in a directory; nothing where there is none.
async fn names(workload: &dyn Workload, folder: &BoxPath) -> Outcome<Vec<String>> {
    match workload.list_files(folder).await {
        Ok(files) => Ok(files.into_iter().map(|file| file.name).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(sandbox(error)),
    }
}

fn path(text: impl Into<String>) -> Outcome<BoxPath> {
    BoxPath::new(text).map_err(|error| odd(error.to_string()))
}

fn below(folder: &BoxPath, name: &str) -> Outcome<BoxPath> {
    folder.join(name).map_err(|error| odd(error.to_string()))
}

fn odd(why: impl Into<String>) -> Refusal {
    Refusal::new(ErrorReason::RepositoryUnavailable, why)
}

fn sandbox(error: astrabox_sandbox::Error) -> Refusal {
    odd(format!("the sandbox did not take the repository: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_say_what_the_agent_says() {
        let target = BoxPath::new("/t").expect("a path");
        let mut repository = Repository {
            url: "https://git.test/a/b.git".to_owned(),
            branch: None,
            depth: None,
        };
        let line = |repository: &Repository| arguments(repository, &target).join(" ");
        assert_eq!(
            line(&repository),
            "/usr/bin/git clone --quiet -- https://git.test/a/b.git /t"
        );
        repository.branch = Some("side".to_owned());
        repository.depth = Some(3);
        assert_eq!(
            line(&repository),
            "/usr/bin/git clone --quiet --branch side --depth 3 -- https://git.test/a/b.git /t"
        );
    }
}
