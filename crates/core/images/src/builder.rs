//! The steps of a build.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use astrabox_engine::{ImageRecipe, RecipeCheck};
use astrabox_types::Timestamp;
use tokio::task::spawn_blocking;

use crate::blocking::{follow, joined, ticks};
use crate::client::{InstallJob, Packages};
use crate::digest::recipe_digest;
use crate::error::io_error;
use crate::manifest::{self, FileEntry, Manifest};
use crate::mounts::is_mounted;
use crate::process::{self, Invocation, RunError};
use crate::staging::Staging;
use crate::store::{Image, ImageStore};
use crate::tree::{self, Control, CopyError};
use crate::{Error, Event, ImageName, Progress, Result, Step, image_name, lock, pip, recipe};

const INSTALL_LIMIT: Duration = Duration::from_secs(30 * 60);
const CHECK_LIMIT: Duration = Duration::from_secs(60);
/// How long another build of the same image is waited for: a little longer than it can take.
const WAIT_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The folders of a staging folder.
const PROJECT: &str = "project";
pub(crate) const IMAGE: &str = "image";
const CHECK_HOME: &str = "home";
const CHECK_TMP: &str = "tmp";
const REPLACED: &str = "replaced";

/// One build.
struct Build<'a> {
    store: &'a ImageStore,
    engine: &'a str,
    recipe: &'a ImageRecipe,
    name: ImageName,
    /// The name as text, for messages.
    image: String,
    progress: &'a dyn Progress,
}

/// Makes the image of a recipe, or finds it.
pub(crate) async fn build(
    store: &ImageStore,
    engine: &str,
    recipe: &ImageRecipe,
    progress: &dyn Progress,
) -> Result<Image> {
    recipe::validate(engine, recipe)?;
    let image = image_name(engine, recipe);
    let build = Build {
        name: image.parse()?,
        store,
        engine,
        recipe,
        image,
        progress,
    };
    if let Some(found) = store.complete(&build.name).await? {
        return Ok(found);
    }
    recipe::check_architecture(&build.image, recipe)?;
    recipe::check_commands(recipe, store.environment.search_path())?;
    let _alone = build.take_lock().await?;
    // Whoever had the lock may have built it.
    if let Some(found) = store.complete(&build.name).await? {
        return Ok(found);
    }
    let staging = build.stage().await?;
    build.step(Step::Install, build.install(&staging)).await?;
    let files = build.step(Step::Copy, build.copy(&staging)).await?;
    build.step(Step::Check, build.check(&staging)).await?;
    build
        .step(Step::Publish, build.publish(staging, files))
        .await?;
    let built = store.complete(&build.name).await?;
    built.ok_or_else(|| store.missing(&build.name))
}

impl Build<'_> {
    async fn step<T>(&self, step: Step, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.progress.report(Event::Started(step));
        let begun = Instant::now();
        let done = work.await?;
        self.progress.report(Event::Finished(step, begun.elapsed()));
        Ok(done)
    }

    async fn take_lock(&self) -> Result<File> {
        let refused = || io_error(&self.image, "lock the image");
        let file = self.store.lock_file(&self.name)?;
        if lock::try_exclusive(&file).map_err(refused())? {
            return Ok(file);
        }
        let wait = async {
            let taken = lock::exclusive(&file, WAIT_LIMIT).await;
            match taken.map_err(refused())? {
                true => Ok(()),
                false => Err(Error::Deadline {
                    image: self.image.clone(),
                    step: Step::Wait,
                    limit: WAIT_LIMIT,
                }),
            }
        };
        self.step(Step::Wait, wait).await?;
        Ok(file)
    }

    async fn stage(&self) -> Result<Arc<Staging>> {
        let parent = self.store.staging_dir();
        let made = spawn_blocking(move || {
            let staging = Staging::create(&parent)?;
            for name in [PROJECT, CHECK_HOME, CHECK_TMP] {
                staging.subdir(name)?;
            }
            Ok(Arc::new(staging))
        });
        let made = joined(made).await;
        made.map_err(io_error(&self.image, "make the folder of the build"))
    }

    async fn install(&self, staging: &Arc<Staging>) -> Result<()> {
        let ImageRecipe { npm, python, .. } = self.recipe;
        if let Some(package) = npm {
            self.install_packages(staging, Packages::Npm(package))
                .await?;
        }
        if let Some(packages) = python {
            self.install_packages(staging, Packages::Python(packages))
                .await?;
        }
        Ok(())
    }

    async fn install_packages(&self, staging: &Arc<Staging>, packages: Packages<'_>) -> Result<()> {
        let project = staging.path().join(PROJECT);
        let job = InstallJob {
            image: &self.image,
            packages,
            project: &project,
            staging,
            environment: &self.store.environment,
            limit: INSTALL_LIMIT,
            progress: self.progress,
        };
        let mut installed = pin!(self.store.client.install(&job));
        let mut ticks = ticks();
        loop {
            tokio::select! {
                done = &mut installed => return done,
                _ = ticks.tick() => {}
            }
            let dir = staging.path().to_owned();
            let mut size = spawn_blocking(move || tree::size_below(&dir));
            tokio::select! {
                done = &mut installed => return done,
                done = joined(&mut size) => {
                    self.progress.report(Event::Bytes { done, total: None });
                }
            }
        }
    }

    async fn copy(&self, staging: &Arc<Staging>) -> Result<Vec<FileEntry>> {
        let control = Arc::new(Control::default());
        let copies = self.recipe.copies;
        let work = spawn_blocking({
            let (staging, control) = (Arc::clone(staging), Arc::clone(&control));
            move || {
                let image = staging.path().join(IMAGE);
                let root = image.join(ROOT);
                for dir in [&image, &root] {
                    make_open_dir(dir).map_err(|error| CopyError::Io(String::new(), error))?;
                }
                tree::copy(&staging.path().join(PROJECT), copies, &root, &control)
            }
        });
        let tell = |done, total| {
            let total = Some(total);
            self.progress.report(Event::Bytes { done, total });
        };
        let copied = follow(work, control, &tell).await;
        copied.map_err(|error| match error {
            CopyError::Recipe(what) => Error::Recipe {
                engine: self.engine.to_owned(),
                what,
            },
            CopyError::Io(path, error) => {
                io_error(&self.image, &format!("copy `{path}` into the image"))(error)
            }
        })
    }

    /// Tries the program on this host, without the user's environment and home.
    async fn check(&self, staging: &Arc<Staging>) -> Result<()> {
        let RecipeCheck {
            program,
            arguments,
            expect,
        } = self.recipe.check;
        let failed = |what: String, output: Vec<String>| Error::CheckFailed {
            image: self.image.clone(),
            program: program.to_owned(),
            what,
            output,
        };
        let home = staging.path().join(CHECK_HOME);
        let root = staging.path().join(IMAGE).join(ROOT);
        let in_box = self.recipe.python.is_some_and(|python| python.runs_in_box);
        let mut arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        let program_path = if in_box && program == pip::IN_BOX {
            // Not by PYTHONPATH: what the host has Python load at every start would find the packages, and some such
            // code writes into them.
            arguments.push(root.join(pip::TARGET).into());
            pip::PYTHON.into()
        } else {
            root.join(program)
        };
        let invocation = Invocation {
            program: program_path,
            arguments,
            env: vec![
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("HOME".into(), home.clone().into()),
                ("TMPDIR".into(), staging.path().join(CHECK_TMP).into()),
            ],
            dir: home,
            stdin: staging
                .stdin()
                .map_err(io_error(&self.image, "open the input of the check"))?,
            limit: CHECK_LIMIT,
        };
        let told = |line: &str| self.progress.report(Event::Output(line));
        match process::run(invocation, &told).await {
            Ok(ended) if !ended.status.success() => Err(failed(
                format!("it ended with {}", ended.status),
                ended.lines,
            )),
            Ok(ended) if !ended.lines.iter().any(|line| line.contains(expect)) => {
                Err(failed(format!("it did not say `{expect}`"), ended.lines))
            }
            Ok(_) => Ok(()),
            Err(RunError::Limit) => Err(Error::Deadline {
                image: self.image.clone(),
                step: Step::Check,
                limit: CHECK_LIMIT,
            }),
            Err(RunError::Start(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                let what = "it may not be executed; is the cache on a file system mounted noexec?";
                Err(failed(what.to_owned(), Vec::new()))
            }
            Err(RunError::Start(error)) => {
                Err(failed(format!("it did not start: {error}"), Vec::new()))
            }
            Err(RunError::Io(error)) => Err(io_error(&self.image, "read the check")(error)),
        }
    }

    async fn publish(&self, staging: Arc<Staging>, files: Vec<FileEntry>) -> Result<()> {
        let described = Described {
            engine: self.engine,
            version: self.recipe.version,
            digest: recipe_digest(self.engine, self.recipe),
            licence: self.recipe.licence,
        };
        publish(self.store, &self.name, described, staging, files).await
    }
}

/// What a manifest tells besides the files.
pub(crate) struct Described<'a> {
    pub(crate) engine: &'a str,
    pub(crate) version: &'a str,
    pub(crate) digest: String,
    pub(crate) licence: &'a str,
}

/// Gives a finished image its name. Takes the staging folder over, which goes with what is left in it.
pub(crate) async fn publish(
    store: &ImageStore,
    name: &ImageName,
    described: Described<'_>,
    staging: Arc<Staging>,
    files: Vec<FileEntry>,
) -> Result<()> {
    let image = name.to_string();
    let manifest = Manifest {
        name: image.clone(),
        engine: described.engine.to_owned(),
        version: described.version.to_owned(),
        recipe_digest: described.digest,
        architecture: std::env::consts::ARCH.to_owned(),
        licence: described.licence.to_owned(),
        built_at: Timestamp::now(),
        files,
    };
    let target = store.image_dir(name);
    if is_mounted(&target) {
        // A damaged image that is still run: replacing it would pull it from under its sandboxes.
        return Err(Error::InUse { image });
    }
    joined(spawn_blocking(move || {
        publish_dir(&staging, &manifest, &target)
    }))
    .await
    .map_err(io_error(&image, "give the image its name"))
}

/// The tree of an image, beside its manifest.
pub(crate) const ROOT: &str = "root";

/// Gives a finished image its name, in one step, and makes it durable before.
fn publish_dir(staging: &Staging, manifest: &Manifest, target: &Path) -> io::Result<()> {
    let image = staging.path().join(IMAGE);
    let mut file = File::create_new(image.join(manifest::FILE))?;
    serde_json::to_writer_pretty(&mut file, manifest)?;
    file.write_all(b"\n")?;
    file.set_permissions(Permissions::from_mode(0o444))?;
    file.sync_all()?;
    File::open(&image)?.sync_all()?;
    if let Some(engine) = target.parent() {
        make_open_dir(engine)?;
    }
    match fs::rename(target, staging.path().join(REPLACED)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::rename(&image, target)?;
    match target.parent() {
        Some(engine) => File::open(engine)?.sync_all(),
        None => Ok(()),
    }
}

/// Makes a folder that everybody may read, whatever the umask is; an existing one stays as it is.
pub(crate) fn make_open_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(dir) {
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(0o755)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
