//! The store: one file a value.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use astrabox_secrets::{
    Error, ErrorKind, KeyVersion, Secret, SecretName, SecretStore, SecretStoreFactory, StoreContext,
};
use async_trait::async_trait;

use crate::config::Config;
use crate::error::{damaged, io as failed};
use crate::files;
use crate::master::Master;
use crate::ring::Ring;

const MAGIC: &[u8] = b"ABXSECR1";
const VALUES: &str = "values";
/// What stands before the name of each value's file, so that none is `.` or `..`.
const FILE: &str = "v-";

/// The local secret store.
pub struct Local(Arc<Mutex<Inner>>);

struct Inner {
    values: PathBuf,
    master: Master,
    ring: Ring,
}

#[async_trait]
impl SecretStoreFactory for Local {
    const NAME: &'static str = "local";
    const SUMMARY: &'static str =
        "Encrypted files on this host, with a key from a file, a variable, or made here";

    async fn build(
        config: serde_json::Value,
        context: StoreContext,
    ) -> Result<Arc<dyn SecretStore>, Error> {
        let store = blocking("build", move || Self::open(config, &context.state_dir)).await?;
        Ok(Arc::new(store))
    }
}

impl Local {
    pub(crate) fn open(config: serde_json::Value, folder: &Path) -> Result<Self, Error> {
        let config = Config::parse(config)?;
        let values = folder.join(VALUES);
        let cannot = |error| failed("build", "open the folder of the store")(error);
        files::folder(&values).map_err(cannot)?;
        // Removes what was cut off as well.
        files::names(folder).map_err(cannot)?;
        let used = !files::names(&values).map_err(cannot)?.is_empty();
        let (master, ring) = Master::open(folder, config, used)?;
        let mut inner = Inner {
            values,
            master,
            ring,
        };
        if inner.ring.is_changing() {
            inner.finish_change(&mut || Ok(()))?;
        }
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    /// Runs work that waits for the disk on a thread of its own. It goes to its end although nobody waits for it.
    async fn with<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Inner) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let inner = Arc::clone(&self.0);
        blocking(operation, move || {
            work(&mut inner.lock().unwrap_or_else(PoisonError::into_inner))
        })
        .await
    }

    /// A change of the key that ends after this many steps, as the end of the process ends it.
    #[cfg(test)]
    pub(crate) async fn rotate_until(&self, steps: u32) -> Result<KeyVersion, Error> {
        let mut left = steps;
        self.with("rotate_key", move |inner| {
            inner.change_key(&mut || {
                left = left.checked_sub(1).ok_or_else(|| {
                    Error::new(ErrorKind::Unavailable, "rotate_key", "it is cut off")
                })?;
                Ok(())
            })
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        let text = "the store's thread failed";
        Err(Error::new(ErrorKind::Unavailable, operation, text))
    })
}

#[async_trait]
impl SecretStore for Local {
    async fn put(&self, name: &SecretName, value: Secret) -> Result<(), Error> {
        let name = name.clone();
        self.with("put", move |inner| inner.put(&name, value.expose()))
            .await
    }

    async fn get(&self, name: &SecretName) -> Result<Secret, Error> {
        let name = name.clone();
        self.with("get", move |inner| inner.get(&name)).await
    }

    async fn remove(&self, name: &SecretName) -> Result<(), Error> {
        let name = name.clone();
        self.with("remove", move |inner| {
            files::remove(&inner.values, &file_name(&name))
                .map_err(failed("remove", "remove the value"))
        })
        .await
    }

    async fn rotate_key(&self) -> Result<KeyVersion, Error> {
        self.with("rotate_key", |inner| inner.change_key(&mut || Ok(())))
            .await
    }
}

impl Inner {
    fn put(&self, name: &SecretName, value: &[u8]) -> Result<(), Error> {
        let (version, key) = self.ring.newest();
        let write = || {
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&version.to_be_bytes());
            bytes.extend_from_slice(&key.close(&bound(version, name), value)?);
            files::write(&self.values, &file_name(name), &bytes)
        };
        write().map_err(failed("put", "write the value"))
    }

    fn get(&self, name: &SecretName) -> Result<Secret, Error> {
        let kept = files::read(&self.values.join(file_name(name)))
            .map_err(failed("get", "read the value"))?;
        let Some(kept) = kept else {
            let text = format!("no secret is called `{}`", name.as_str());
            return Err(Error::new(ErrorKind::NotFound, "get", text));
        };
        let wrong = |what| damaged("get", &format!("`{}` {what}", name.as_str()));
        let (version, closed) = kept
            .strip_prefix(MAGIC)
            .and_then(|rest| rest.split_first_chunk::<4>())
            .ok_or_else(|| wrong("is not in the form of this store"))?;
        let version = u32::from_be_bytes(*version);
        let key = self
            .ring
            .get(version)
            .ok_or_else(|| wrong("was closed with a key that is gone"))?;
        let mut value = key
            .open(&bound(version, name), closed)
            .map_err(|_| wrong("was changed, or belongs to another name"))?;
        Ok(Secret::new(std::mem::take(&mut *value)))
    }

    /// One step is one change on disk. Every value opens after each of them.
    fn change_key(
        &mut self,
        step: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<KeyVersion, Error> {
        let cannot = |error| failed("rotate_key", "keep the key ring")(error);
        if !self.ring.is_changing() {
            step()?;
            let ring = self.ring.with_next().map_err(cannot)?;
            self.master.keep(&ring).map_err(cannot)?;
            self.ring = ring;
        }
        self.finish_change(step)
    }

    /// Closes every value with the newest key and drops the others.
    fn finish_change(
        &mut self,
        step: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<KeyVersion, Error> {
        let (version, _) = self.ring.newest();
        let names = files::names(&self.values).map_err(failed("rotate_key", "list the values"))?;
        for name in names.iter().filter_map(|file| secret_name(file)) {
            match self.get(&name) {
                Ok(value) => {
                    step()?;
                    self.put(&name, value.expose())?;
                }
                // It could not be read before; it keeps nobody from a new key.
                Err(error) if error.kind() == ErrorKind::Damaged => {}
                Err(error) => return Err(error),
            }
        }
        step()?;
        let ring = self.ring.newest_only();
        self.master.replace(&ring, step)?;
        self.ring = ring;
        Ok(KeyVersion(version))
    }
}

/// What a value is bound to: the form, the version of its key, its name.
fn bound(version: u32, name: &SecretName) -> Vec<u8> {
    let mut bound = MAGIC.to_vec();
    bound.extend_from_slice(&version.to_be_bytes());
    bound.extend_from_slice(name.as_str().as_bytes());
    bound
}

/// The name of a value's file. `~` is in no secret's name.
pub(crate) fn file_name(name: &SecretName) -> String {
    format!("{FILE}{}", name.as_str().replace('/', "~"))
}

fn secret_name(file: &str) -> Option<SecretName> {
    SecretName::new(file.strip_prefix(FILE)?.replace('~', "/")).ok()
}
