//! Builds with a client that writes a small program, in caches of their own.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use astrabox_engine::{ImageRecipe, NpmPackage, RecipeCheck, RecipeCopy};
use async_trait::async_trait;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::{Notify, Semaphore};

use crate::client::{Environment, InstallJob, PackageClient};
use crate::{Error, Event, Image, ImageStore, Listed, Progress, Result, Silent, Step, image_name};

const ENGINE: &str = "fake";
const PROGRAM: &str = "#!/bin/sh\necho fake tool 1.0.0\n";

fn recipe() -> ImageRecipe {
    ImageRecipe {
        version: "1.0.0",
        architectures: &["x86_64", "aarch64"],
        commands: &["sh"],
        npm: Some(NpmPackage {
            manifest: "{}",
            lock: "{}",
        }),
        python: None,
        copies: &[
            RecipeCopy {
                from: "node_modules/tool/bin/tool",
                to: "bin/tool",
            },
            RecipeCopy {
                from: "node_modules/tool/share",
                to: "share",
            },
        ],
        check: RecipeCheck {
            program: "bin/tool",
            arguments: &["--version"],
            expect: "tool 1.0.0",
        },
        licence: "Apache-2.0",
    }
}

/// Writes the packages of the recipe, when it may.
struct Fake {
    installs: AtomicUsize,
    started: Notify,
    gate: Semaphore,
    program: &'static str,
    spoil: fn(&Path),
}

impl Fake {
    fn open() -> Self {
        Self {
            installs: AtomicUsize::new(0),
            started: Notify::new(),
            gate: Semaphore::new(100),
            program: PROGRAM,
            spoil: |_| (),
        }
    }

    fn count(&self) -> usize {
        self.installs.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl PackageClient for Fake {
    async fn install(&self, job: &InstallJob<'_>) -> Result<()> {
        self.installs.fetch_add(1, Ordering::SeqCst);
        self.started.notify_one();
        let _open = self.gate.acquire().await.unwrap();
        let tool = job.project.join("node_modules/tool");
        for dir in ["bin", "share/deep", "left-out"] {
            fs::create_dir_all(tool.join(dir)).unwrap();
        }
        fs::write(tool.join("bin/tool"), self.program).unwrap();
        fs::set_permissions(tool.join("bin/tool"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(tool.join("share/deep/data"), "data").unwrap();
        fs::write(tool.join("left-out/big"), "big").unwrap();
        (self.spoil)(&tool);
        Ok(())
    }
}

/// A cache of its own.
struct Cache {
    dir: TempDir,
    client: Arc<Fake>,
    store: ImageStore,
}

impl Cache {
    async fn of(client: Fake) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let client = Arc::new(client);
        let store = open(dir.path(), Arc::clone(&client)).await;
        Self { dir, client, store }
    }

    async fn built() -> (Self, Image) {
        let cache = Self::of(Fake::open()).await;
        let image = cache.build().await.unwrap();
        (cache, image)
    }

    async fn build(&self) -> Result<Image> {
        self.store.build(ENGINE, &recipe(), &Silent).await
    }

    /// Whether there is no image and no folder of a build.
    fn is_clean(&self) -> bool {
        self.has_no_staging() && !self.dir.path().join(ENGINE).exists()
    }

    fn has_no_staging(&self) -> bool {
        let staging = fs::read_dir(self.dir.path().join(".staging")).unwrap();
        staging
            .flatten()
            .all(|entry| entry.file_type().unwrap().is_file())
    }
}

async fn open(dir: &Path, client: Arc<Fake>) -> ImageStore {
    let environment = Environment::of([("PATH", "/usr/bin:/bin".as_ref())]);
    ImageStore::open_with(dir, client, environment)
        .await
        .unwrap()
}

/// Keeps what a build tells.
#[derive(Default)]
struct Told {
    steps: Mutex<Vec<String>>,
    waiting: Notify,
}

impl Progress for Told {
    fn report(&self, event: Event<'_>) {
        let text = match event {
            Event::Started(Step::Wait) => {
                self.waiting.notify_one();
                "wait".to_owned()
            }
            Event::Started(step) => format!("{step:?}"),
            Event::Finished(step, _) => format!("{step:?} done"),
            Event::Output(line) => line.to_owned(),
            Event::Bytes { .. } => return,
        };
        self.steps.lock().unwrap().push(text);
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn an_image_holds_what_its_recipe_lists_for_everybody_to_read() {
    let (cache, image) = Cache::built().await;
    assert_eq!(image.name, image_name(ENGINE, &recipe()));
    assert!(image.name.starts_with("fake:1.0.0-"));
    assert_eq!(image.name.len(), "fake:1.0.0-".len() + 12);
    assert_eq!(
        (image.engine.as_str(), image.version.as_str()),
        ("fake", "1.0.0")
    );
    assert_eq!(image.bytes, PROGRAM.len() as u64 + 4);
    let expected = [("bin/tool", 0o555), ("share/deep/data", 0o444)];
    for (path, expected) in expected {
        assert_eq!(mode(&image.root.join(path)), expected, "{path}");
    }
    for dir in ["", "bin", "share", "share/deep", "..", "../.."] {
        assert_eq!(mode(&image.root.join(dir)), 0o755, "{dir}");
    }
    assert_eq!(fs::read_dir(&image.root).unwrap().count(), 2);
    assert!(cache.has_no_staging());
    cache.store.verify(&image.name).await.unwrap();
}

#[tokio::test]
async fn a_second_build_does_nothing() {
    let cache = Cache::of(Fake::open()).await;
    let told = Told::default();
    let first = cache.store.build(ENGINE, &recipe(), &told).await.unwrap();
    let steps = std::mem::take(&mut *told.steps.lock().unwrap());
    let expected = [
        "Install",
        "Install done",
        "Copy",
        "Copy done",
        "Check",
        "fake tool 1.0.0",
        "Check done",
        "Publish",
        "Publish done",
    ];
    assert_eq!(steps, expected);
    let second = cache.store.build(ENGINE, &recipe(), &told).await.unwrap();
    assert_eq!(second, first);
    assert_eq!(*told.steps.lock().unwrap(), [""; 0]);
    assert_eq!(cache.client.count(), 1);
}

#[tokio::test]
async fn two_builds_at_once_install_once() {
    let cache = Cache::of(Fake {
        gate: Semaphore::new(0),
        ..Fake::open()
    })
    .await;
    // As another process would: with a store of its own.
    let other = open(cache.dir.path(), Arc::clone(&cache.client)).await;
    let told = Told::default();
    let recipe = recipe();
    let (first, second, ()) = tokio::join!(
        cache.build(),
        async {
            cache.client.started.notified().await;
            other.build(ENGINE, &recipe, &told).await
        },
        async {
            told.waiting.notified().await;
            cache.client.gate.add_permits(1);
        }
    );
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(*told.steps.lock().unwrap(), ["wait", "Wait done"]);
    assert_eq!(cache.client.count(), 1);
}

#[tokio::test]
async fn a_build_that_fails_leaves_nothing() {
    type Is = fn(&Error) -> bool;
    let is_check: Is = |error| matches!(error, Error::CheckFailed { .. });
    let is_recipe: Is = |error| matches!(error, Error::Recipe { .. });
    let fake = Fake::open;
    let cases: Vec<(Fake, Is, &str)> = vec![
        (
            Fake {
                program: "#!/bin/sh\necho 2.0.0\n",
                ..fake()
            },
            is_check,
            "did not say `tool 1.0.0`",
        ),
        (
            Fake {
                program: "#!/bin/sh\necho tool 1.0.0\nexit 9\n",
                ..fake()
            },
            is_check,
            "exit status: 9",
        ),
        (
            Fake {
                program: "#!/nonexistent/shell\n",
                ..fake()
            },
            is_check,
            "did not start",
        ),
        (
            Fake {
                spoil: |tool| fs::remove_file(tool.join("bin/tool")).unwrap(),
                ..fake()
            },
            is_recipe,
            "has no `node_modules/tool/bin/tool`",
        ),
        (
            Fake {
                spoil: |tool| symlink("/etc", tool.join("share/etc")).unwrap(),
                ..fake()
            },
            is_recipe,
            "`node_modules/tool/share/etc` is neither a file nor a folder",
        ),
    ];
    for (client, is, text) in cases {
        let cache = Cache::of(client).await;
        let error = cache.build().await.unwrap_err();
        assert!(is(&error), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(text), "{message}");
        assert!(
            !message.contains(cache.dir.path().to_str().unwrap()),
            "{message}"
        );
        assert!(cache.is_clean(), "{message}");
        assert!(cache.store.list().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_recipe_that_cannot_work_is_refused_before_anything_runs() {
    let copies = |copies| ImageRecipe { copies, ..recipe() };
    const OUTSIDE: &[RecipeCopy] = &[RecipeCopy {
        from: "a",
        to: "../b",
    }];
    let cases = [
        (
            ImageRecipe {
                architectures: &["s390x"],
                ..recipe()
            },
            format!("is for s390x and this host is {}", std::env::consts::ARCH),
        ),
        (
            ImageRecipe {
                commands: &["sh", "no-such-command"],
                ..recipe()
            },
            "the command `no-such-command` is not on the PATH: install the package".to_owned(),
        ),
        (
            copies(OUTSIDE),
            "`../b` is not a path below a folder".to_owned(),
        ),
        (copies(&[]), "it copies nothing".to_owned()),
        (
            ImageRecipe {
                npm: None,
                ..recipe()
            },
            "it installs nothing".to_owned(),
        ),
        (
            ImageRecipe {
                version: "../1",
                ..recipe()
            },
            "is not a version".to_owned(),
        ),
    ];
    let cache = Cache::of(Fake::open()).await;
    for (recipe, text) in cases {
        let error = cache
            .store
            .build(ENGINE, &recipe, &Silent)
            .await
            .unwrap_err();
        assert!(error.to_string().contains(&text), "{error}");
    }
    assert!(cache.store.build("../x", &recipe(), &Silent).await.is_err());
    assert!(cache.is_clean());
    assert_eq!(cache.client.count(), 0);
}

#[tokio::test]
async fn two_copies_to_one_place_are_refused() {
    const TWICE: &[RecipeCopy] = &[
        RecipeCopy {
            from: "node_modules/tool/bin/tool",
            to: "bin/tool",
        },
        RecipeCopy {
            from: "node_modules/tool/share",
            to: "bin/tool",
        },
    ];
    let cache = Cache::of(Fake::open()).await;
    let recipe = ImageRecipe {
        copies: TWICE,
        ..recipe()
    };
    let error = cache
        .store
        .build(ENGINE, &recipe, &Silent)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("two copies go to"), "{error}");
    assert!(cache.is_clean());
}

#[tokio::test]
async fn a_cancelled_build_leaves_nothing() {
    let cache = Cache::of(Fake {
        gate: Semaphore::new(0),
        ..Fake::open()
    })
    .await;
    {
        let recipe = recipe();
        let building = cache.store.build(ENGINE, &recipe, &Silent);
        tokio::select! {
            _ = building => panic!("the client waits"),
            () = cache.client.started.notified() => {}
        }
    }
    assert!(cache.is_clean());
    cache.client.gate.add_permits(1);
    cache.build().await.unwrap();
    assert_eq!(cache.client.count(), 2);
}

#[tokio::test]
async fn opening_removes_what_a_killed_build_left() {
    let cache = Cache::of(Fake::open()).await;
    let left = cache
        .dir
        .path()
        .join(".staging/build-left/project/node_modules");
    fs::create_dir_all(&left).unwrap();
    open(cache.dir.path(), Arc::clone(&cache.client)).await;
    assert!(cache.is_clean());
}

#[tokio::test]
async fn a_cache_that_everybody_may_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = ImageStore::open(dir.path()).await.err().unwrap();
    assert!(error.to_string().contains("everybody may write"), "{error}");
}

#[tokio::test]
async fn an_image_is_found_by_name_and_by_engine() {
    let (cache, image) = Cache::built().await;
    for reference in [image.name.as_str(), ENGINE] {
        assert_eq!(
            cache.store.find(reference).await.unwrap(),
            Some(image.clone())
        );
        assert_eq!(cache.store.require(reference).await.unwrap(), image);
    }
    for (reference, message) in [
        (
            "codex",
            "image `codex` is missing: build it with `astrabox image build codex`",
        ),
        (
            "codex:0.1-ab",
            "image `codex:0.1-ab` is missing: build it with `astrabox image build codex`",
        ),
    ] {
        assert_eq!(cache.store.find(reference).await.unwrap(), None);
        let error = cache.store.require(reference).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let error = cache.store.find("../x:1").await.unwrap_err();
    assert!(matches!(error, Error::BadName { .. }));
}

#[tokio::test]
async fn of_two_images_of_an_engine_the_newer_is_its_image_and_both_are_listed() {
    let (cache, older) = Cache::built().await;
    let licence = "MIT";
    let other = ImageRecipe {
        licence,
        ..recipe()
    };
    let newer = cache.store.build(ENGINE, &other, &Silent).await.unwrap();
    assert_ne!(newer.name, older.name);
    assert_eq!(cache.store.find(ENGINE).await.unwrap(), Some(newer.clone()));
    let mut expected = [older, newer];
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    let listed = cache.store.list().await.unwrap();
    assert_eq!(listed, expected.map(Listed::Complete));
}

#[tokio::test]
async fn a_removed_image_is_gone() {
    let (cache, image) = Cache::built().await;
    cache.store.remove(&image.name).await.unwrap();
    assert!(!image.root.exists());
    assert!(cache.has_no_staging());
    assert_eq!(cache.store.find(ENGINE).await.unwrap(), None);
    let again = cache.store.remove(&image.name).await.unwrap_err();
    assert!(matches!(again, Error::Missing { .. }), "{again:?}");
}

#[tokio::test]
async fn a_leased_image_is_not_removed() {
    let (cache, image) = Cache::built().await;
    let lease = cache.store.lease(&image.name).await.unwrap();
    let second = cache.store.lease(&image.name).await.unwrap();
    assert_eq!(lease.image(), &image);
    drop(lease);
    let error = cache.store.remove(&image.name).await.unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    assert!(image.root.exists());
    drop(second);
    cache.store.remove(&image.name).await.unwrap();
    let error = cache.store.lease(&image.name).await.unwrap_err();
    assert!(matches!(error, Error::Missing { .. }), "{error:?}");
}

#[tokio::test]
async fn an_image_that_a_sandbox_has_mounted_is_not_removed() {
    let (cache, image) = Cache::built().await;
    let mut holder = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(r#"mount --bind "$0" /mnt && echo mounted && read line"#)
        .arg(&image.root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    if lines.next_line().await.unwrap().as_deref() != Some("mounted") {
        println!("skipped: user namespaces with mounts are not to be had here");
        return;
    }
    let error = cache.store.remove(&image.name).await.unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    assert!(image.root.exists());
    drop(holder.stdin.take());
    holder.wait().await.unwrap();
    cache.store.remove(&image.name).await.unwrap();
}

#[tokio::test]
async fn verify_tells_each_difference() {
    type Spoil = fn(&Path);
    let cases: [(Spoil, &str); 5] = [
        (
            |root| {
                let path = root.join("share/deep/data");
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
                let mut file = OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all(b"D").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
            },
            "share/deep/data: has other content",
        ),
        (
            |root| fs::remove_file(root.join("share/deep/data")).unwrap(),
            "share/deep/data: missing",
        ),
        (
            |root| fs::write(root.join("share/more"), "x").unwrap(),
            "share/more: not part of it",
        ),
        (
            |root| {
                let path = root.join("share/deep/data");
                fs::set_permissions(path, fs::Permissions::from_mode(0o4555)).unwrap();
            },
            "share/deep/data: has other permissions",
        ),
        (
            |root| {
                let path = root.join("share/deep/data");
                fs::remove_file(&path).unwrap();
                symlink("/etc/passwd", &path).unwrap();
            },
            "share/deep/data: is no longer a file",
        ),
    ];
    for (spoil, expected) in cases {
        let (cache, image) = Cache::built().await;
        spoil(&image.root);
        let error = cache.store.verify(&image.name).await.unwrap_err();
        let Error::Damaged { problems, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(problems, &[expected]);
        let message = error.to_string();
        let remedy = format!("`astrabox image remove {}`", image.name);
        assert!(
            message.contains(expected) && message.contains(&remedy),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_damaged_image_is_listed_not_used_and_built_again() {
    type Spoil = fn(&Path);
    let cases: [Spoil; 3] = [
        |root| fs::remove_file(root.join("bin/tool")).unwrap(),
        |root| fs::remove_file(root.with_file_name("manifest.json")).unwrap(),
        |root| {
            let manifest = root.with_file_name("manifest.json");
            fs::remove_file(&manifest).unwrap();
            fs::write(manifest, r#"{"name":"fake"}"#).unwrap();
        },
    ];
    for spoil in cases {
        let (cache, image) = Cache::built().await;
        spoil(&image.root);
        let error = cache.store.require(&image.name).await.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
        assert!(
            !error
                .to_string()
                .contains(cache.dir.path().to_str().unwrap())
        );
        let listed = cache.store.list().await.unwrap();
        assert!(matches!(&listed[..], [Listed::Damaged { name, .. }] if *name == image.name));
        assert_eq!(cache.store.find(ENGINE).await.unwrap(), None);
        let again = cache.build().await.unwrap();
        assert_eq!(cache.client.count(), 2);
        cache.store.verify(&again.name).await.unwrap();
        assert!(cache.has_no_staging());
    }
}

#[tokio::test]
async fn a_damaged_image_can_be_removed() {
    let (cache, image) = Cache::built().await;
    fs::remove_file(image.root.with_file_name("manifest.json")).unwrap();
    cache.store.remove(&image.name).await.unwrap();
    assert!(cache.store.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_folder_becomes_an_image_that_is_named_after_its_content() {
    let cache = Cache::of(Fake::open()).await;
    let folder = tempfile::tempdir().unwrap();
    let import = |version: &'static str| cache.store.import("acp", version, folder.path(), &Silent);
    let empty = import("1.0").await.unwrap_err().to_string();
    assert!(empty.contains("is empty"), "{empty}");
    fs::create_dir_all(folder.path().join("bin")).unwrap();
    fs::write(folder.path().join("bin/agent"), PROGRAM).unwrap();
    let mode = fs::Permissions::from_mode(0o750);
    fs::set_permissions(folder.path().join("bin/agent"), mode).unwrap();
    let image = import("1.0").await.unwrap();
    assert!(image.name.starts_with("acp:1.0-"), "{}", image.name);
    let mode = fs::metadata(image.root.join("bin/agent"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o555);
    cache.store.verify(&image.name).await.unwrap();
    assert_eq!(import("1.0").await.unwrap(), image);
    fs::write(folder.path().join("bin/other"), "x").unwrap();
    assert_ne!(import("1.0").await.unwrap().name, image.name);
    symlink("/etc", folder.path().join("etc")).unwrap();
    for (version, text) in [
        ("1.0", "`etc` is neither"),
        ("../1", "version"),
        ("", "version"),
    ] {
        let error = import(version).await.unwrap_err().to_string();
        assert!(error.contains(text), "{version}: {error}");
    }
    assert!(cache.has_no_staging());
}
