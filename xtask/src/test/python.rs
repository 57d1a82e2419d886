//! Programs in Python that tests and the bench need: each installed once into the user's cache, from a lock file with
//! hashes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::context::Context;
use super::report::Outcome;

/// One program.
pub(super) struct Program {
    name: &'static str,
    /// The variable that names the interpreter of the installed program, for those who start it.
    variable: &'static str,
    /// What is installed; a copy in the installed folder says that it is whole.
    lock: &'static str,
}

/// A real LiteLLM proxy, for the tests.
pub(super) const LITELLM: Program = Program {
    name: "litellm",
    variable: "ASTRABOX_LITELLM",
    lock: "tests/litellm/requirements.lock",
};

/// Whom the bench compares the egress role with.
pub(super) const MITMPROXY: Program = Program {
    name: "mitmproxy",
    variable: "ASTRABOX_MITMPROXY",
    lock: "tests/mitmproxy/requirements.lock",
};

/// The versions of Python that the lock files have wheels for.
const PYTHONS: [&str; 3] = ["3.11", "3.12", "3.13"];
/// Prints the version, where environments can be made and pip is there to fill them.
const LOOK: &str =
    "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.implementation.name)";

/// Finds the program or installs it, and tells those who start it where it is.
pub(super) fn install(
    context: &mut Context,
    program: &Program,
    limit: Duration,
) -> Result<Outcome> {
    let Program {
        name,
        variable,
        lock,
    } = *program;
    if let Some(given) = std::env::var_os(variable) {
        println!("{variable} is set: {}", given.display());
        return Ok(Outcome::passed());
    }
    let Some((python, version)) = python() else {
        return Ok(Outcome::skipped(format!(
            "no CPython {} with venv and pip is installed, which {name} needs",
            PYTHONS.join(", ")
        )));
    };
    let lock = context.root.join(lock);
    let wanted = fs::read(&lock).with_context(|| format!("cannot read {}", program.lock))?;
    let tools = cache()?.join("tools");
    let folder = tools.join(format!("{name}-py{version}"));
    let outcome = if is_whole(&folder, &wanted) {
        Outcome::passed()
    } else {
        fs::create_dir_all(&tools)?;
        let partial = tools.join(format!("{name}-{}.partial", std::process::id()));
        let outcome = fill(context, python, &partial, &lock, limit)?;
        if outcome.is_passed() {
            fs::write(partial.join("requirements.lock"), &wanted)?;
            put(&partial, &folder, &wanted)?;
        } else {
            remove(&partial)?;
        }
        outcome
    };
    if outcome.is_passed() {
        context.export(variable, folder.join("bin/python"));
    }
    Ok(outcome)
}

/// The first interpreter that will do, and its version.
fn python() -> Option<(&'static str, String)> {
    ["python3", "python3.13", "python3.12", "python3.11"]
        .into_iter()
        .find_map(|name| {
            let output = Command::new(name)
                .args(["-I", "-c", LOOK])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()
                .ok()?;
            let version = fitting(&String::from_utf8_lossy(&output.stdout))?;
            Some((name, version))
        })
}

/// The version in what `LOOK` prints, when there are wheels for it.
fn fitting(printed: &str) -> Option<String> {
    let (version, implementation) = printed.trim().split_once(' ')?;
    let fits = implementation == "cpython" && PYTHONS.contains(&version);
    fits.then(|| version.to_owned())
}

fn is_whole(folder: &Path, wanted: &[u8]) -> bool {
    fs::read(folder.join("requirements.lock")).is_ok_and(|lock| lock == wanted)
}

/// Makes an environment and installs the locked wheels, whose hashes pip checks, and nothing else.
fn fill(
    context: &Context,
    python: &str,
    folder: &Path,
    lock: &Path,
    limit: Duration,
) -> Result<Outcome> {
    let mut make = Command::new(python);
    make.args(["-I", "-m", "venv"]).arg(folder);
    let made = context.outcome(make, limit)?;
    if !made.is_passed() {
        return Ok(made);
    }
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-I", "-m", "pip", "install", "--no-input", "--quiet"])
        .args(["--disable-pip-version-check", "--require-hashes"])
        .args(["--no-deps", "--only-binary", ":all:", "--requirement"])
        .arg(lock);
    context.outcome(pip, limit)
}

/// Puts a whole environment in its place. The interpreter finds its packages from where it is, so it may be moved.
fn put(partial: &Path, folder: &Path, wanted: &[u8]) -> Result<()> {
    if !is_whole(folder, wanted) {
        remove(folder)?;
    }
    match fs::rename(partial, folder) {
        Ok(()) => Ok(()),
        // Another run was quicker.
        Err(_) if is_whole(folder, wanted) => remove(partial),
        Err(error) => Err(error).context("cannot put the program into the cache"),
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The product's folder in the user's cache.
fn cache() -> Result<PathBuf> {
    let absolute = |name| {
        let path: Option<OsString> = std::env::var_os(name);
        path.map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    match cache {
        Some(cache) => Ok(cache.join("astrabox")),
        None => bail!("there is no cache folder: set HOME or XDG_CACHE_HOME"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{LITELLM, MITMPROXY, fitting, is_whole, put};

    #[test]
    fn only_interpreters_with_wheels_fit() {
        for (printed, version) in [
            ("3.11 cpython\n", Some("3.11")),
            ("3.10 cpython\n", None),
            ("3.12 pypy\n", None),
            ("", None),
        ] {
            assert_eq!(fitting(printed).as_deref(), version, "{printed}");
        }
    }

    #[test]
    fn every_locked_package_has_a_version_and_a_hash() {
        for (program, least) in [(LITELLM, 100), (MITMPROXY, 40)] {
            let lock = fs::read_to_string(crate::tree::root().join(program.lock)).unwrap();
            let mut packages = 0;
            for package in lock.replace("\\\n", " ").lines() {
                if package.starts_with('#') {
                    continue;
                }
                assert!(
                    package.contains("==") && package.contains(" --hash=sha256:"),
                    "{package}"
                );
                assert!(!package.contains("://"), "{package}");
                packages += 1;
            }
            assert!(packages > least, "{}: {packages}", program.name);
        }
    }

    #[test]
    fn an_older_environment_gives_way_and_a_whole_one_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("litellm");
        for (partial, lock) in [("a", "old"), ("b", "new"), ("c", "new")] {
            let partial = scratch.path().join(partial);
            fs::create_dir(&partial).unwrap();
            fs::write(partial.join("requirements.lock"), lock).unwrap();
            put(&partial, &folder, lock.as_bytes()).unwrap();
            assert!(is_whole(&folder, lock.as_bytes()) && !partial.exists());
        }
    }
}
