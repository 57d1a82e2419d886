//! The image cache of one user.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use astrabox_engine::ImageRecipe;
use astrabox_types::Timestamp;
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::blocking::{follow, joined};
use crate::builder::{self, ROOT};
use crate::client::{Clients, Environment, PackageClient};
use crate::error::io_error;
use crate::import;
use crate::manifest::Manifest;
use crate::mounts::is_mounted;
use crate::name::is_engine_kind;
use crate::staging::{self, Staging};
use crate::tree::{self, Control};
use crate::{Error, ImageName, Progress, Result, lock};

const LOCKS: &str = ".locks";
const STAGING: &str = ".staging";

/// The images that this user has built.
///
/// Every call may come from several processes at once; what one build makes, all find.
#[derive(Clone)]
pub struct ImageStore {
    cache: PathBuf,
    pub(crate) client: Arc<dyn PackageClient>,
    pub(crate) environment: Environment,
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Image {
    /// Its name, as `codex:0.169.0-0123456789ab`.
    pub name: String,
    /// The engine's kind.
    pub engine: String,
    /// The program's version.
    pub version: String,
    /// Where its tree is on this host. Nobody writes there; everybody may read it who reaches it.
    pub root: PathBuf,
    /// The size of all its files.
    pub bytes: u64,
    /// When it was built.
    pub built_at: Timestamp,
    /// The program's licence.
    pub licence: String,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Listed {
    /// An image that can be used.
    Complete(Image),
    /// An image that cannot be used, but removed or built again.
    Damaged {
        /// Its name.
        name: String,
        /// What is wrong, by file.
        problems: Vec<String>,
    },
}

/// An image that is held: while this lives, nobody removes or replaces it.
#[derive(Debug)]
pub struct Lease {
    image: Image,
    _lock: File,
}

impl Lease {
    /// The image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }
}

impl ImageStore {
    /// Opens the cache in this folder, makes it where it is missing, and removes what broken-off builds left.
    ///
    /// # Errors
    /// `Cache` when the folder is another user's or writable by everybody; `Io`.
    pub async fn open(cache_dir: &Path) -> Result<Self> {
        Self::open_with(cache_dir, Arc::new(Clients), Environment::of_process()).await
    }

    /// The cache folder of this user: `astrabox/images` in `$XDG_CACHE_HOME`, or in `~/.cache`.
    ///
    /// # Errors
    /// `Cache` when the environment names no home.
    pub fn default_dir() -> Result<PathBuf> {
        let variable = |name| std::env::var_os(name).unwrap_or_default();
        default_dir(&variable("XDG_CACHE_HOME"), &variable("HOME"))
    }

    pub(crate) async fn open_with(
        cache_dir: &Path,
        client: Arc<dyn PackageClient>,
        environment: Environment,
    ) -> Result<Self> {
        let cache = cache_dir.to_owned();
        joined(spawn_blocking(move || prepare(&cache))).await?;
        Ok(Self {
            cache: cache_dir.to_owned(),
            client,
            environment,
        })
    }

    /// Makes the image of this recipe; one that is there already is given back at once.
    ///
    /// Dropping the future ends the build and leaves nothing behind. The package client runs in a process
    /// group of its own, so a command-line program must drop the future when it is interrupted.
    ///
    /// # Errors
    /// Whatever makes a build fail; nothing of the image is kept then.
    pub async fn build(
        &self,
        engine: &str,
        recipe: &ImageRecipe,
        progress: &dyn Progress,
    ) -> Result<Image> {
        builder::build(self, engine, recipe, progress).await
    }

    /// Makes an image of the engine out of everything in a folder, for programs that have no recipe. It is named after
    /// its content; the same content gives the same image.
    ///
    /// # Errors
    /// `Import` for a folder with links or other than plain files, or a bad version; `InUse` while the same one is being
    /// made.
    pub async fn import(
        &self,
        engine: &str,
        version: &str,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<Image> {
        import::import(self, engine, version, folder, progress).await
    }

    /// The image of this name, or, for an engine's kind, the one of this engine that was built last.
    ///
    /// # Errors
    /// `BadName`; `Damaged` when the named image is there and cannot be used.
    pub async fn find(&self, reference: &str) -> Result<Option<Image>> {
        if !is_engine_kind(reference) {
            let name: ImageName = reference.parse()?;
            let store = self.clone();
            return joined(spawn_blocking(move || store.read(&name))).await;
        }
        let listed = self.list().await?;
        let images = listed.into_iter().filter_map(|listed| match listed {
            Listed::Complete(image) if image.engine == reference => Some(image),
            _ => None,
        });
        Ok(images.max_by_key(|image| image.built_at))
    }

    /// As `find`, where the image must be there.
    ///
    /// # Errors
    /// As `find`, and `Missing`, which names the command that builds the image.
    pub async fn require(&self, reference: &str) -> Result<Image> {
        let found = self.find(reference).await?;
        found.ok_or_else(|| Error::Missing {
            image: reference.to_owned(),
            engine: reference.split(':').next().unwrap_or_default().to_owned(),
        })
    }

    /// Holds an image, from before it is looked up until, say, a sandbox has it mounted.
    ///
    /// # Errors
    /// `BadName`, `Missing`, `Damaged`; `InUse` while it is being built or removed.
    pub async fn lease(&self, name: &str) -> Result<Lease> {
        let name: ImageName = name.parse()?;
        let store = self.clone();
        let work = spawn_blocking(move || {
            let lock = store.share(&name)?;
            let image = store.read(&name)?;
            let image = image.ok_or_else(|| store.missing(&name))?;
            Ok(Lease { image, _lock: lock })
        });
        joined(work).await
    }

    /// All images, in name order.
    ///
    /// # Errors
    /// `Io` when the cache cannot be read.
    pub async fn list(&self) -> Result<Vec<Listed>> {
        let store = self.clone();
        joined(spawn_blocking(move || store.read_all())).await
    }

    /// Removes an image, complete or damaged.
    ///
    /// # Errors
    /// `BadName`, `Missing`; `InUse` while it is leased, built, or mounted by a sandbox of this user.
    pub async fn remove(&self, name: &str) -> Result<()> {
        let name: ImageName = name.parse()?;
        let store = self.clone();
        joined(spawn_blocking(move || store.remove_now(&name))).await
    }

    /// Reads every file of an image and compares it with what was built.
    ///
    /// # Errors
    /// `BadName`, `Missing`; `Damaged` with each difference.
    pub async fn verify(&self, name: &str) -> Result<()> {
        let name: ImageName = name.parse()?;
        let control = Arc::new(Control::default());
        let work = spawn_blocking({
            let (store, control) = (self.clone(), Arc::clone(&control));
            move || {
                let _shared = store.share(&name)?;
                let manifest = store.manifest(&name)?;
                let manifest = manifest.ok_or_else(|| store.missing(&name))?;
                let root = store.image_dir(&name).join(ROOT);
                let problems = tree::verify(&root, &manifest.files, &control)
                    .map_err(io_error(&manifest.name, "read the image"))?;
                sound(&name, problems)
            }
        });
        follow(work, control, &|_, _| ()).await
    }

    /// The image, if it is there and can be used.
    pub(crate) async fn complete(&self, name: &ImageName) -> Result<Option<Image>> {
        let (store, name) = (self.clone(), name.clone());
        match joined(spawn_blocking(move || store.read(&name))).await {
            Err(Error::Damaged { .. }) => Ok(None),
            other => other,
        }
    }

    pub(crate) fn missing(&self, name: &ImageName) -> Error {
        Error::Missing {
            image: name.to_string(),
            engine: name.engine().to_owned(),
        }
    }

    pub(crate) fn image_dir(&self, name: &ImageName) -> PathBuf {
        self.cache.join(name.engine()).join(name.tag())
    }

    pub(crate) fn staging_dir(&self) -> PathBuf {
        self.cache.join(STAGING)
    }

    pub(crate) fn lock_file(&self, name: &ImageName) -> Result<File> {
        // An engine's kind has no dot, so no two names share a file.
        let file = format!("{}.{}.lock", name.engine(), name.tag());
        lock::open(&self.cache.join(LOCKS).join(file)).map_err(lock_failed(name))
    }

    /// Takes an image's lock together with others who use it.
    fn share(&self, name: &ImageName) -> Result<File> {
        if !self.image_dir(name).exists() {
            return Err(self.missing(name));
        }
        let lock = self.lock_file(name)?;
        if lock::try_shared(&lock).map_err(lock_failed(name))? {
            Ok(lock)
        } else {
            Err(in_use(name))
        }
    }

    fn read(&self, name: &ImageName) -> Result<Option<Image>> {
        let Some(manifest) = self.manifest(name)? else {
            return Ok(None);
        };
        let root = self.image_dir(name).join(ROOT);
        sound(name, tree::glance(&root, &manifest.files))?;
        Ok(Some(Image {
            bytes: manifest.bytes(),
            name: manifest.name,
            engine: manifest.engine,
            version: manifest.version,
            root,
            built_at: manifest.built_at,
            licence: manifest.licence,
        }))
    }

    fn manifest(&self, name: &ImageName) -> Result<Option<Manifest>> {
        let manifest = match Manifest::read(&self.image_dir(name)) {
            Ok(manifest) => manifest,
            Err(problem) => return Err(damaged(name, vec![problem])),
        };
        match manifest {
            Some(manifest) if manifest.name != name.to_string() => {
                let problem = "manifest.json: is that of another image".to_owned();
                Err(damaged(name, vec![problem]))
            }
            other => Ok(other),
        }
    }

    fn read_all(&self) -> Result<Vec<Listed>> {
        let refused = |error| io_error("", "read the image cache")(error);
        let mut names = Vec::new();
        for engine in folders(&self.cache).map_err(refused)? {
            for tag in folders(&self.cache.join(&engine)).map_err(refused)? {
                // What has no image's name was not put there by us.
                names.extend(format!("{engine}:{tag}").parse::<ImageName>().ok());
            }
        }
        names.sort();
        let mut listed = Vec::new();
        for name in names {
            match self.read(&name) {
                Ok(Some(image)) => listed.push(Listed::Complete(image)),
                // Removed just now.
                Ok(None) => {}
                Err(Error::Damaged { image, problems }) => listed.push(Listed::Damaged {
                    name: image,
                    problems,
                }),
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }

    fn remove_now(&self, name: &ImageName) -> Result<()> {
        let dir = self.image_dir(name);
        if !dir.exists() {
            return Err(self.missing(name));
        }
        let lock = self.lock_file(name)?;
        if !lock::try_exclusive(&lock).map_err(lock_failed(name))? || is_mounted(&dir) {
            return Err(in_use(name));
        }
        let refused = || {
            let failed = io_error(&name.to_string(), "remove the image");
            |error: io::Error| match error.kind() {
                io::ErrorKind::NotFound => self.missing(name),
                _ => failed(error),
            }
        };
        // In one step, so that nobody finds half of it; then the folder goes with the staging folder.
        let staging = Staging::create(&self.staging_dir()).map_err(refused())?;
        fs::rename(&dir, staging.path().join("removed")).map_err(refused())
    }
}

fn default_dir(cache_home: &OsStr, home: &OsStr) -> Result<PathBuf> {
    let base = match (Path::new(cache_home), Path::new(home)) {
        (cache_home, _) if cache_home.is_absolute() => cache_home.to_owned(),
        (_, home) if home.is_absolute() => home.join(".cache"),
        _ => {
            return Err(Error::Cache {
                what: "neither XDG_CACHE_HOME nor HOME is an absolute path: set one",
            });
        }
    };
    Ok(base.join("astrabox").join("images"))
}

fn prepare(cache: &Path) -> Result<()> {
    let refused = || io_error("", "open the image cache");
    let make = |dir: &Path, mode| DirBuilder::new().recursive(true).mode(mode).create(dir);
    make(cache, 0o755).map_err(refused())?;
    let found = fs::metadata(cache).map_err(refused())?;
    // Whoever can write here decides what every sandbox runs.
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::Cache {
            what: "it belongs to another user: set XDG_CACHE_HOME to a folder of your own",
        });
    }
    if found.mode() & 0o002 != 0 {
        return Err(Error::Cache {
            what: "everybody may write into it: take that permission away",
        });
    }
    make(&cache.join(LOCKS), 0o700).map_err(refused())?;
    make(&cache.join(STAGING), 0o700).map_err(refused())?;
    staging::sweep(&cache.join(STAGING)).map_err(refused())?;
    Ok(())
}

/// The names of the folders in a folder, but for hidden ones.
fn folders(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && !name.starts_with('.')
            && entry.file_type()?.is_dir()
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn sound(name: &ImageName, problems: Vec<String>) -> Result<()> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(damaged(name, problems))
    }
}

fn damaged(name: &ImageName, problems: Vec<String>) -> Error {
    Error::Damaged {
        image: name.to_string(),
        problems,
    }
}

fn in_use(name: &ImageName) -> Error {
    Error::InUse {
        image: name.to_string(),
    }
}

fn lock_failed(name: &ImageName) -> impl FnOnce(io::Error) -> Error + use<> {
    io_error(&name.to_string(), "lock the image")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::default_dir;

    #[test]
    fn the_cache_is_the_users_own() {
        for (cache_home, home, expected) in [
            ("/c", "/h", Some("/c/astrabox/images")),
            ("", "/h", Some("/h/.cache/astrabox/images")),
            ("relative", "/h", Some("/h/.cache/astrabox/images")),
            ("", "", None),
            ("", "h", None),
        ] {
            let found = default_dir(OsStr::new(cache_home), OsStr::new(home));
            assert_eq!(found.ok(), expected.map(Into::into), "{cache_home} {home}");
        }
    }
}
