//! The store by the seam's suite, and what only this store has: its keys and files.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use astrabox_conformance::secrets::SecretsFixture;
use astrabox_secrets::{
    Error, ErrorKind, Secret, SecretName, SecretStore, SecretStoreFactory as _, StoreContext,
};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::Local;
use crate::backend::file_name;

const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER: &str = "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

struct Fixture {
    folder: tempfile::TempDir,
    config: Value,
}

impl Fixture {
    fn new(config: Value) -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            config,
        }
    }

    fn value(&self, name: &SecretName) -> PathBuf {
        self.folder.path().join("values").join(file_name(name))
    }
}

fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            bytes.extend(bytes_below(&path));
        } else {
            bytes.extend(fs::read(&path).expect("a file"));
        }
    }
    bytes
}

#[async_trait]
impl SecretsFixture for Fixture {
    fn name(&self) -> String {
        "local".to_owned()
    }

    async fn open(&self) -> Result<Arc<dyn SecretStore>, Error> {
        open(self.folder.path(), self.config.clone()).await
    }

    fn at_rest(&self) -> Option<Vec<u8>> {
        Some(bytes_below(self.folder.path()))
    }

    async fn damage(&self, name: &SecretName) -> bool {
        let path = self.value(name);
        let mut bytes = fs::read(&path).expect("a value");
        *bytes.last_mut().expect("a byte") ^= 1;
        fs::write(&path, bytes).expect("it is written");
        true
    }

    async fn swap(&self, from: &SecretName, to: &SecretName) -> bool {
        fs::copy(self.value(from), self.value(to)).is_ok()
    }

    fn keep_values(&self) -> Option<Box<dyn Any + Send>> {
        let values = fs::read_dir(self.folder.path().join("values")).expect("a folder");
        let kept: BTreeMap<PathBuf, Vec<u8>> = values
            .map(|entry| entry.expect("an entry").path())
            .map(|path| (path.clone(), fs::read(path).expect("a value")))
            .collect();
        Some(Box::new(kept))
    }

    fn restore_values(&self, kept: Box<dyn Any + Send>) {
        let kept = kept
            .downcast::<BTreeMap<PathBuf, Vec<u8>>>()
            .expect("what keep_values gave");
        for (path, bytes) in *kept {
            fs::write(path, bytes).expect("it is written");
        }
    }

    async fn cut_off_rotation(&self, steps: u32) -> Option<bool> {
        let store = Local::open(self.config.clone(), self.folder.path()).expect("it opens");
        Some(store.rotate_until(steps).await.is_err())
    }
}

async fn open(folder: &Path, config: Value) -> Result<Arc<dyn SecretStore>, Error> {
    let state_dir = folder.to_owned();
    Local::build(config, StoreContext { state_dir }).await
}

mod with_a_key_of_its_own {
    use super::*;
    astrabox_conformance::secrets_conformance!(Fixture::new(Value::Null));
}

mod with_a_key_of_the_operator {
    use super::*;
    astrabox_conformance::secrets_conformance!(Fixture::new(json!({ "key": KEY })));
}

fn name(text: &str) -> SecretName {
    SecretName::new(text).expect("a name")
}

async fn put(store: &Arc<dyn SecretStore>, text: &str) {
    let value = Secret::new(b"treasure".to_vec());
    store.put(&name(text), value).await.expect("it is put");
}

async fn assert_holds(store: &Arc<dyn SecretStore>, text: &str) {
    let value = store.get(&name(text)).await.expect("it is there");
    assert!(value.expose() == b"treasure");
}

#[tokio::test]
async fn every_file_is_for_its_owner_only() {
    let fixture = Fixture::new(Value::Null);
    put(&fixture.open().await.expect("it opens"), "a/b").await;
    let folder = fixture.folder.path();
    for file in ["master.key", "ring", "values/v-a~b"] {
        let mode = fs::metadata(folder.join(file)).expect(file).mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[tokio::test]
async fn the_master_key_is_given_by_file_or_value_and_replaces_an_own_one() {
    let fixture = Fixture::new(Value::Null);
    let folder = fixture.folder.path();
    put(&fixture.open().await.expect("it opens"), "a").await;
    // From the store's own key to the operator's.
    let store = open(folder, json!({ "key": KEY })).await.expect("it opens");
    assert_holds(&store, "a").await;
    assert!(!folder.join("master.key").exists());
    // The same from a file.
    let keys = tempfile::tempdir().expect("a folder");
    let file = keys.path().join("key");
    fs::write(&file, format!("{KEY}\n")).expect("it is written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is set");
    let store = open(folder, json!({ "key_file": file })).await;
    assert_holds(&store.expect("it opens"), "a").await;
    // To another one, once, and then without the one before.
    let changed = json!({ "key": OTHER, "previous_key_file": file });
    assert_holds(&open(folder, changed).await.expect("it opens"), "a").await;
    assert_holds(
        &open(folder, json!({ "key": OTHER }))
            .await
            .expect("it opens"),
        "a",
    )
    .await;
    for config in [json!({ "key": KEY }), Value::Null] {
        let error = open(folder, config).await.err().expect("it is refused");
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains("key_file"), "{error}");
    }
}

#[tokio::test]
async fn a_lost_ring_is_not_replaced_by_a_new_one() {
    let fixture = Fixture::new(Value::Null);
    put(&fixture.open().await.expect("it opens"), "a").await;
    fs::remove_file(fixture.folder.path().join("ring")).expect("it is removed");
    let error = fixture.open().await.err().expect("it is refused");
    assert_eq!(error.kind(), ErrorKind::Damaged);
}

#[tokio::test]
async fn wrong_settings_are_refused_without_their_values() {
    let keys = tempfile::tempdir().expect("a folder");
    let file = keys.path().join("key");
    fs::write(&file, KEY).expect("it is written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("it is set");
    for (config, part) in [
        (
            json!({ "key": "hunter2" }),
            "secrets.local.key is not a key",
        ),
        (json!({ "key": format!("{KEY}0") }), "64 hexadecimal digits"),
        (json!({ "key": 7 }), "secrets.local.key must be a text"),
        (json!({ "key": KEY, "key_file": "/hunter2" }), "both given"),
        (json!({ "key_file": "hunter2" }), "absolute path"),
        (json!({ "key_file": file }), "mode 0600"),
        (
            json!({ "key_file": "/nowhere/hunter2" }),
            "cannot read the file of the master key",
        ),
        (json!({ "previous_key": KEY }), "without a key"),
        (json!(["hunter2"]), "must be a table"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let error = open(folder.path(), config).await.err().expect(part);
        let text = error.to_string();
        assert!(text.contains(part), "{text}");
        assert!(!text.contains("hunter2") && !text.contains(KEY), "{text}");
    }
}

#[tokio::test]
async fn a_damaged_value_does_not_keep_the_others_from_a_new_key() {
    let fixture = Fixture::new(Value::Null);
    let store = fixture.open().await.expect("it opens");
    put(&store, "a").await;
    put(&store, "b").await;
    fixture.damage(&name("a")).await;
    store.rotate_key().await.expect("the key is changed");
    assert_holds(&store, "b").await;
    let error = store.get(&name("a")).await.err().expect("it is damaged");
    assert_eq!(error.kind(), ErrorKind::Damaged);
}
