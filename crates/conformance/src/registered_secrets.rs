//! A linked secret store as a fixture: built from its registration over a folder of its own.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use astrabox_registry::Registration as _;
use astrabox_secrets::{Error, Registration, SecretStore, StoreContext};
use async_trait::async_trait;
use serde_json::Value;

use crate::secrets::SecretsFixture;

/// A store that is built anew for each `open`, over the same folder.
pub(crate) struct RegisteredSecrets {
    registration: Registration,
    config: Value,
    folder: tempfile::TempDir,
}

impl RegisteredSecrets {
    pub(crate) fn new(registration: Registration, config: Value) -> std::io::Result<Self> {
        Ok(Self {
            registration,
            config,
            folder: tempfile::tempdir()?,
        })
    }
}

#[async_trait]
impl SecretsFixture for RegisteredSecrets {
    fn name(&self) -> String {
        self.registration.name().to_owned()
    }

    async fn open(&self) -> Result<Arc<dyn SecretStore>, Error> {
        let context = StoreContext {
            state_dir: self.folder.path().to_owned(),
        };
        self.registration.build(self.config.clone(), context).await
    }

    fn at_rest(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        gather(self.folder.path(), &mut bytes).ok()?;
        // A store that keeps nothing here keeps it where nobody can look.
        (!bytes.is_empty()).then_some(bytes)
    }
}

fn gather(folder: &Path, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, bytes)?;
        } else {
            bytes.extend(fs::read(path)?);
        }
    }
    Ok(())
}
