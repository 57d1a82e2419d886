use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use astrabox_engine::PythonPackages;
use sha2::{Digest as _, Sha256};

use super::{Cause, failure, install, plan_env};
use crate::client::{Environment, InstallJob, Packages};
use crate::digest::hex;
use crate::process::Finished;
use crate::staging::Staging;
use crate::{Error, Result, Silent};

#[test]
fn the_client_gets_the_users_settings_but_none_that_change_what_is_installed() {
    let environment = Environment::of([
        ("PATH", OsStr::new("/bin")),
        ("HOME", OsStr::new("/h")),
        ("PIP_INDEX_URL", OsStr::new("i")),
        ("PIP_TARGET", OsStr::new("/elsewhere")),
        ("PIP_NO_BINARY", OsStr::new(":all:")),
        ("PYTHONPATH", OsStr::new("/x")),
        ("https_proxy", OsStr::new("p")),
        ("SECRET", OsStr::new("s")),
    ]);
    let mut env = plan_env(&environment, Path::new("/s/c"), Path::new("/s/t"));
    env.sort();
    let env: Vec<_> = env
        .iter()
        .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
        .collect();
    let expected = [
        ("HOME", "/h"),
        ("PATH", "/bin"),
        ("PIP_CACHE_DIR", "/s/c"),
        ("PIP_INDEX_URL", "i"),
        ("PYTHONNOUSERSITE", "1"),
        ("TMPDIR", "/s/t"),
        ("https_proxy", "p"),
    ];
    assert_eq!(env, expected);
}

#[test]
fn what_pip_says_tells_the_remedy() {
    let hash = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.";
    let broken =
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'";
    let missing = "ERROR: No matching distribution found for x==1";
    type Is = fn(&Error) -> bool;
    let cases: [(&[&str], Is); 6] = [
        (&[hash], |e| matches!(e, Error::HashMismatch { .. })),
        // A connection that broke ends as a distribution that was not found.
        (&[broken, missing], |e| matches!(e, Error::NoNetwork { .. })),
        (&[missing], |e| matches!(e, Error::RegistryRefused { .. })),
        (
            &[
                "... SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]')) after connection broken by",
            ],
            |e| matches!(e, Error::Untrusted { .. }),
        ),
        (&["OSError: [Errno 28] No space left on device"], |e| {
            matches!(e, Error::NoSpace { .. })
        }),
        (&["Segmentation fault"], |e| {
            matches!(e, Error::InstallFailed { .. })
        }),
    ];
    for (lines, is) in cases {
        let cause = lines.iter().filter_map(|line| Cause::of(line)).max();
        let ended = Finished {
            status: ExitStatus::from_raw(1 << 8),
            lines: Vec::new(),
        };
        let error = failure("hermes:1-a", cause, ended);
        assert!(is(&error), "{lines:?}: {error:?}");
    }
}

/// A wheel with one module, made by hand: a zip archive with a record.
fn wheel(dir: &Path) -> String {
    let files = dir.join("files");
    let info = files.join("tried-1.0.dist-info");
    fs::create_dir_all(&info).unwrap();
    fs::write(files.join("tried.py"), "print('tried')\n").unwrap();
    fs::write(
        info.join("METADATA"),
        "Metadata-Version: 2.1\nName: tried\nVersion: 1.0\n",
    )
    .unwrap();
    fs::write(
        info.join("WHEEL"),
        "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    )
    .unwrap();
    fs::write(
        info.join("RECORD"),
        "tried.py,,\ntried-1.0.dist-info/METADATA,,\ntried-1.0.dist-info/WHEEL,,\ntried-1.0.dist-info/RECORD,,\n",
    )
    .unwrap();
    let path = dir.join("tried-1.0-py3-none-any.whl");
    let made = Command::new(super::PYTHON)
        .args(["-m", "zipfile", "-c"])
        .arg(&path)
        .arg(files.join("tried.py"))
        .arg(&info)
        .status()
        .unwrap();
    assert!(made.success());
    hex(&Sha256::digest(fs::read(path).unwrap()))
}

async fn installed(dir: &Path, hash: &str, runs_in_box: bool) -> Result<()> {
    // A recipe's text is constant; a test's is made up.
    let requirements: &'static str = format!("tried==1.0 --hash=sha256:{hash}\n").leak();
    let packages = PythonPackages {
        requirements,
        runs_in_box,
    };
    let staging = Staging::create(dir).unwrap();
    let project = dir.join("project");
    fs::create_dir_all(&project).unwrap();
    let environment = Environment::of([
        ("PATH", "/usr/bin:/bin".as_ref()),
        ("PIP_NO_INDEX", "1".as_ref()),
        ("PIP_FIND_LINKS", dir.as_os_str()),
    ]);
    let job = InstallJob {
        image: "tried:1-a",
        packages: Packages::Python(&packages),
        project: &project,
        staging: &staging,
        environment: &environment,
        limit: Duration::from_secs(120),
        progress: &Silent,
    };
    install(&job, &packages).await
}

#[tokio::test]
async fn a_wheel_is_installed_and_compiled_when_its_hash_is_the_pinned_one() {
    let dir = tempfile::tempdir().unwrap();
    let hash = wheel(dir.path());
    installed(dir.path(), &hash, true).await.unwrap();
    let python = dir.path().join("project/python");
    assert!(python.join("tried.py").is_file());
    let compiled = fs::read_dir(python.join("__pycache__")).unwrap();
    assert_eq!(compiled.count(), 1);
}

#[tokio::test]
async fn a_wheel_with_another_hash_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let hash = wheel(dir.path());
    let mut file = File::options()
        .append(true)
        .open(dir.path().join("tried-1.0-py3-none-any.whl"))
        .unwrap();
    file.write_all(b"more").unwrap();
    let error = installed(dir.path(), &hash, false).await.unwrap_err();
    assert!(matches!(error, Error::HashMismatch { .. }), "{error:?}");
    assert!(!dir.path().join("project/python/tried.py").exists());
}
