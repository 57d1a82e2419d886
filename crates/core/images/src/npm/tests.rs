use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use astrabox_engine::NpmPackage;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{
    Environment, InstallJob, NpmrcFacts, check_version, error_code, failure,
    install as npm_install, plan_env,
};
use crate::client::Packages;
use crate::process::Finished;
use crate::staging::Staging;
use crate::{Error, Result, Silent};

fn ended(code: i32, lines: &[&str]) -> Finished {
    Finished {
        status: ExitStatus::from_raw(code << 8),
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
    }
}

#[test]
fn the_client_gets_the_users_settings_and_nothing_else() {
    let environment = Environment::of([
        ("PATH", OsStr::new("/bin")),
        ("HOME", OsStr::new("/h")),
        ("HTTPS_PROXY", OsStr::new("p")),
        ("no_proxy", OsStr::new("q")),
        ("NPM_CONFIG_REGISTRY", OsStr::new("r")),
        ("npm_config_cafile", OsStr::new("c")),
        ("NAMED", OsStr::new("n")),
        ("NODE_OPTIONS", OsStr::new("--require=x")),
        ("SECRET", OsStr::new("s")),
        ("TMPDIR", OsStr::new("/t")),
        ("npm_package_name", OsStr::new("x")),
    ]);
    let npmrc = NpmrcFacts::of("//r/:_authToken = ${NAMED}\n");
    let env: BTreeMap<_, _> = plan_env(&environment, &npmrc, Path::new("/s/c"), Path::new("/s/t"))
        .into_iter()
        .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
        .collect();
    let expected = [
        ("HOME", "/h"),
        ("HTTPS_PROXY", "p"),
        ("NAMED", "n"),
        ("NPM_CONFIG_REGISTRY", "r"),
        ("PATH", "/bin"),
        ("TMPDIR", "/s/t"),
        ("no_proxy", "q"),
        ("npm_config_cache", "/s/c"),
        ("npm_config_cafile", "c"),
    ];
    let env: Vec<_> = env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(env, expected);
}

#[test]
fn a_cache_that_the_user_chose_is_used() {
    let chosen = |environment: &Environment, npmrc: &str| {
        let facts = NpmrcFacts::of(npmrc);
        let env = plan_env(environment, &facts, Path::new("/s/c"), Path::new("/s/t"));
        !env.iter().any(|(_, value)| value == "/s/c")
    };
    let bare = Environment::default();
    assert!(!chosen(&bare, ""));
    assert!(!chosen(&bare, "cache-min=1\n;cache=/x\n"));
    assert!(chosen(&bare, "registry=x\n cache = /x\n"));
    let set = Environment::of([("NPM_CONFIG_CACHE", OsStr::new("/x"))]);
    assert!(chosen(&set, ""));
}

#[test]
fn variables_of_the_settings_file_are_found() {
    let facts = NpmrcFacts::of("a=${ONE}-${TWO?}\n# ${NOT}\nb=${THREE\nc=$FOUR\n");
    assert_eq!(facts.variables, ["ONE", "TWO"]);
}

#[test]
fn the_settings_file_is_where_npm_looks() {
    let npmrc = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (*name, OsStr::new(*value)));
        Environment::of(pairs).npmrc()
    };
    assert_eq!(npmrc(&[]), None);
    assert_eq!(npmrc(&[("HOME", "/h")]), Some("/h/.npmrc".into()));
    let set = npmrc(&[("HOME", "/h"), ("NPM_CONFIG_USERCONFIG", "/u")]);
    assert_eq!(set, Some("/u".into()));
}

#[test]
fn a_code_is_read_from_old_and_new_clients() {
    assert_eq!(error_code("npm error code E404"), Some("E404"));
    assert_eq!(error_code("npm ERR! code EINTEGRITY"), Some("EINTEGRITY"));
    for line in [
        "npm error 404 Not Found",
        "npm warn code X",
        "npm error code ",
    ] {
        assert_eq!(error_code(line), None, "{line}");
    }
}

#[test]
fn each_code_has_its_error() {
    type Is = fn(&Error) -> bool;
    let cases: &[(&str, Is)] = &[
        ("EINTEGRITY", |e| matches!(e, Error::HashMismatch { .. })),
        ("ENOSPC", |e| matches!(e, Error::NoSpace { .. })),
        ("ENOTFOUND", |e| matches!(e, Error::NoNetwork { .. })),
        ("ECONNREFUSED", |e| matches!(e, Error::NoNetwork { .. })),
        ("E503", |e| matches!(e, Error::NoNetwork { .. })),
        ("SELF_SIGNED_CERT_IN_CHAIN", |e| {
            matches!(e, Error::Untrusted { .. })
        }),
        ("E401", |e| matches!(e, Error::RegistryRefused { .. })),
        ("E429", |e| matches!(e, Error::RegistryRefused { .. })),
        ("ETARGET", |e| matches!(e, Error::RegistryRefused { .. })),
        ("E4", |e| matches!(e, Error::InstallFailed { .. })),
        ("EUSAGE", |e| matches!(e, Error::InstallFailed { .. })),
    ];
    for (code, is) in cases {
        let error = failure("x:1", Some((*code).to_owned()), ended(1, &["why"]));
        assert!(is(&error), "{code}: {error:?}");
        assert!(error.to_string().contains("`x:1`"), "{code}: {error}");
    }
    let error = failure("x:1", None, ended(1, &["why"]));
    assert!(matches!(error, Error::InstallFailed { .. }));
    assert_eq!(error.output(), ["why"]);
}

#[test]
fn an_old_client_and_one_without_its_interpreter_are_refused() {
    assert!(check_version("x:1", &ended(0, &["11.19.1"])).is_ok());
    assert!(check_version("x:1", &ended(0, &["npm warn", "10.2.3"])).is_ok());
    let old = check_version("x:1", &ended(0, &["6.14.18"])).unwrap_err();
    assert_eq!(
        old.to_string(),
        "`npm` is version 6.14.18, and 7 or later is needed: install a newer one"
    );
    let no_node = check_version("x:1", &ended(127, &["env: node: not found"])).unwrap_err();
    assert_eq!(
        no_node.to_string(),
        "the command `node` is not on the PATH: install the package `nodejs`"
    );
    let broken = check_version("x:1", &ended(1, &["boom"])).unwrap_err();
    assert!(matches!(broken, Error::InstallFailed { .. }));
}

/// A registry on loopback that has one package, `tool` 1.0.0.
struct Registry {
    port: u16,
    integrity: String,
    _server: JoinSet<()>,
}

impl Registry {
    /// Serves the package, or other bytes in its place.
    async fn serve(other: Option<&[u8]>) -> Self {
        let tarball = tarball();
        let integrity = format!("sha512-{}", STANDARD.encode(Sha512::digest(&tarball)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let packument = format!(
            r#"{{"name":"tool","dist-tags":{{"latest":"1.0.0"}},"versions":{{"1.0.0":{{"name":"tool",
            "version":"1.0.0","dist":{{"integrity":"{integrity}",
            "tarball":"http://127.0.0.1:{port}/tool.tgz"}}}}}}}}"#
        );
        let served = other.map_or(tarball, <[u8]>::to_vec);
        let mut server = JoinSet::new();
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = answer(stream, &packument, &served).await;
            }
        });
        Self {
            port,
            integrity,
            _server: server,
        }
    }

    fn package(&self) -> NpmPackage {
        let lock = format!(
            r#"{{"name":"image","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{{
            "":{{"name":"image","version":"1.0.0","dependencies":{{"tool":"1.0.0"}}}},
            "node_modules/tool":{{"version":"1.0.0","integrity":"{}"}}}}}}"#,
            self.integrity
        );
        NpmPackage {
            manifest: r#"{"name":"image","version":"1.0.0","dependencies":{"tool":"1.0.0"}}"#,
            // A recipe is a constant; this one lives as long as the test program.
            lock: lock.leak(),
        }
    }
}

fn tarball() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let package = br#"{"name":"tool","version":"1.0.0","scripts":{"install":"touch ../../ran"}}"#;
    for (path, mode, content) in [
        ("package/package.json", 0o644, &package[..]),
        ("package/bin/tool", 0o755, b"#!/bin/sh\necho tool 1.0.0\n"),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        archive.append_data(&mut header, path, content).unwrap();
    }
    archive.into_inner().unwrap()
}

async fn answer(mut stream: TcpStream, packument: &str, tarball: &[u8]) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await?);
    }
    let target = String::from_utf8_lossy(&request);
    let (status, body) = match target.split(' ').nth(1) {
        Some("/tool") => ("200 OK", packument.as_bytes()),
        Some("/tool.tgz") => ("200 OK", tarball),
        _ => ("404 Not Found", &b"{}"[..]),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}

/// Installs with the real npm from this port; tells what the installed program holds.
async fn install(package: &NpmPackage, port: u16) -> Option<Result<Option<String>>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Err(missing) = super::find_command("npm", &path) {
        println!("skipped: {missing}");
        return None;
    }
    let parent = tempfile::tempdir().unwrap();
    let staging = Staging::create(parent.path()).unwrap();
    let project = staging.subdir("project").unwrap();
    let home = staging.subdir("home").unwrap();
    // Only the settings file names the registry: it must be honoured.
    let npmrc = "registry=${REGISTRY}\nfetch-retries=0\nomit=optional\n";
    std::fs::write(home.join(".npmrc"), npmrc).unwrap();
    let registry = format!("http://127.0.0.1:{port}/");
    let environment = Environment::of([
        ("PATH", path.as_os_str()),
        ("HOME", home.as_os_str()),
        ("REGISTRY", OsStr::new(&registry)),
    ]);
    let job = InstallJob {
        image: "tool:1.0.0-0",
        packages: Packages::Npm(package),
        project: &project,
        staging: &staging,
        environment: &environment,
        limit: Duration::from_secs(120),
        progress: &Silent,
    };
    let done = npm_install(&job, package).await;
    let ran = project.join("ran").exists();
    assert!(!ran, "a package's script ran");
    let left = std::fs::read_dir(&home).unwrap().count();
    assert_eq!(left, 1, "npm writes into no home");
    Some(done.map(|()| std::fs::read_to_string(project.join("node_modules/tool/bin/tool")).ok()))
}

#[tokio::test]
async fn a_locked_package_is_installed_from_the_users_registry_and_no_script_runs() {
    let registry = Registry::serve(None).await;
    if let Some(done) = install(&registry.package(), registry.port).await {
        let program = done.unwrap_or_else(|error| panic!("{error}: {:#?}", error.output()));
        assert_eq!(program.as_deref(), Some("#!/bin/sh\necho tool 1.0.0\n"));
    }
}

#[tokio::test]
async fn a_corrupted_download_is_refused() {
    let mut other = tarball();
    let at = other.windows(6).position(|w| w == b"1.0.0\n").unwrap();
    other[at] = b'2';
    let registry = Registry::serve(Some(&other)).await;
    if let Some(done) = install(&registry.package(), registry.port).await {
        let error = done.unwrap_err();
        assert!(matches!(error, Error::HashMismatch { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_no_network() {
    let registry = Registry::serve(None).await;
    let package = registry.package();
    let port = registry.port;
    drop(registry);
    if let Some(done) = install(&package, port).await {
        let error = done.unwrap_err();
        assert!(matches!(error, Error::NoNetwork { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_package_that_the_registry_does_not_have_is_refused_by_it() {
    let registry = Registry::serve(None).await;
    let NpmPackage { manifest, lock } = registry.package();
    let package = NpmPackage {
        manifest: manifest.replace("tool", "other").leak(),
        lock: lock.replace("tool", "other").leak(),
    };
    if let Some(done) = install(&package, registry.port).await {
        let error = done.unwrap_err();
        assert!(matches!(error, Error::RegistryRefused { .. }), "{error:?}");
        assert!(error.to_string().contains("E404"), "{error}");
    }
}
