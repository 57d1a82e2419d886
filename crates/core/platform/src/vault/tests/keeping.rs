//! The ways of secrets: into the store, refreshed, out, and away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astrabox_oauth::TokenClient;
use astrabox_secrets::{Error as StoreError, ErrorKind, KeyVersion, SecretName, SecretStore};
use astrabox_store::{CredentialWrite, Store};
use astrabox_types::{
    ClientAuthMethod, CredentialId, CredentialSecret, CredentialSpec, ErrorReason, OauthRefresh,
    Secret, Timestamp, Vault, VaultCredential, VaultId,
};
use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::vault::{Keeper, Kept};

/// A secret store in memory that keeps what was put in order.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<SecretName, Vec<u8>>>);

#[async_trait]
impl SecretStore for Memory {
    async fn put(&self, name: &SecretName, value: Secret) -> Result<(), StoreError> {
        let value = value.expose().to_vec();
        self.0
            .lock()
            .expect("nobody failed")
            .insert(name.clone(), value);
        Ok(())
    }

    async fn get(&self, name: &SecretName) -> Result<Secret, StoreError> {
        let value = self.0.lock().expect("nobody failed").get(name).cloned();
        value
            .map(Secret::new)
            .ok_or_else(|| StoreError::new(ErrorKind::NotFound, "get", "it is not there"))
    }

    async fn remove(&self, name: &SecretName) -> Result<(), StoreError> {
        self.0.lock().expect("nobody failed").remove(name);
        Ok(())
    }

    async fn rotate_key(&self) -> Result<KeyVersion, StoreError> {
        Ok(KeyVersion(2))
    }
}

/// A token endpoint that answers one text, and counts.
struct Issuer {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Issuer {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!(
            "http://{}/token",
            listener.local_addr().expect("an address")
        );
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !String::from_utf8_lossy(&request).contains("client_id=client") {
                    if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
                        break;
                    }
                }
                let text = String::from_utf8_lossy(&request).into_owned();
                log.lock().expect("nobody failed").push(text);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self {
            url,
            asked,
            _tasks: tasks,
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody failed").clone()
    }
}

struct World {
    keeper: Arc<Keeper>,
    store: Store,
    secrets: Arc<Memory>,
    vault: VaultId,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("db"))
            .await
            .expect("it opens");
        let secrets = Arc::new(Memory::default());
        let range = "127.0.0.0/8".parse().expect("a range");
        let client = TokenClient::new(vec![range], Arc::new(|_, _| None), Vec::new())
            .with_times(Duration::from_secs(20), Duration::from_secs(10));
        let kept: Arc<dyn SecretStore> = Arc::clone(&secrets) as _;
        let keeper = Keeper::new(store.clone(), Some(kept), client, TaskTracker::new());
        let now = Timestamp::now();
        let vault = Vault {
            id: VaultId::new(),
            display_name: "v".to_owned(),
            metadata: BTreeMap::new(),
            archived_at: None,
            created_at: now,
            updated_at: now,
        };
        let vault = store
            .insert_vault(None, vault)
            .await
            .expect("it is made")
            .id;
        Self {
            keeper: Arc::new(keeper),
            store,
            secrets,
            vault,
            _folder: folder,
        }
    }

    /// An OAuth credential whose token ends in this many seconds.
    async fn oauth(&self, endpoint: Option<&str>, ends_in: Option<i64>) -> CredentialId {
        let now = Timestamp::now();
        let ends = |seconds| Timestamp::from_second(now.as_second() + seconds).expect("a time");
        let expires_at = ends_in.map(ends);
        let credential = VaultCredential {
            id: CredentialId::new(),
            vault_id: self.vault,
            display_name: String::new(),
            spec: CredentialSpec::McpOauth {
                mcp_server_url: format!("https://{}.example", VaultId::new().uuid().simple()),
                expires_at,
                refresh: endpoint.map(|url| OauthRefresh {
                    token_endpoint: url.to_owned(),
                    client_id: "client".to_owned(),
                    auth_method: ClientAuthMethod::None,
                    scope: String::new(),
                }),
            },
            secret_version: 1,
            archived_at: None,
            created_at: now,
            updated_at: now,
        };
        let kept = Kept {
            secret: CredentialSecret {
                value: Secret::new(b"old".to_vec()),
                refresh_token: endpoint.map(|_| Secret::new(b"refresh-1".to_vec())),
                client_secret: None,
            },
            expires_at,
        };
        let id = credential.id;
        let name = self.keeper.keep(id, &kept).await.expect("it is kept");
        let made = self.store.insert_credential(None, credential, name).await;
        made.expect("it is made").id
    }

    async fn value(&self, id: CredentialId) -> crate::Result<String> {
        let value = self.keeper.value(self.vault, id).await?;
        Ok(String::from_utf8_lossy(value.expose()).into_owned())
    }

    /// Writes a credential as it is, as one who changes its name does.
    async fn update(&self, id: CredentialId) {
        let row = self.store.credential(self.vault, id).await;
        let credential = row.expect("it is there").credential;
        let write = CredentialWrite {
            vault_id: self.vault,
            id,
            from: credential.updated_at,
            display_name: "another".to_owned(),
            spec: credential.spec,
            secret_name: None,
        };
        let written = self.store.update_credential(None, write).await;
        written.expect("it is written");
    }

    fn names(&self) -> Vec<String> {
        let kept = self.secrets.0.lock().expect("nobody failed");
        kept.keys().map(|name| name.as_str().to_owned()).collect()
    }
}

const NEW: &str = "HTTP/1.1 200 OK\r\ncontent-length: 72\r\n\r\n\
                   {\"access_token\":\"new\",\"refresh_token\":\"refresh-2\",\"expires_in\":36000000}";
const REFUSED: &str =
    "HTTP/1.1 400 Bad Request\r\ncontent-length: 25\r\n\r\n{\"error\":\"invalid_grant\"}";
const LATER: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn a_token_is_refreshed_a_minute_before_its_end_and_not_earlier() {
    for (ends_in, value, calls) in [
        (Some(3600), "old", 0),
        (Some(120), "old", 0),
        (Some(50), "new", 1),
        (Some(-50), "new", 1),
        (None, "old", 0),
    ] {
        let (world, issuer) = (World::new().await, Issuer::start(NEW).await);
        let id = world.oauth(Some(&issuer.url), ends_in).await;
        assert_eq!(
            world.value(id).await.expect("a value"),
            value,
            "{ends_in:?}"
        );
        assert_eq!(issuer.asked().len(), calls, "{ends_in:?}");
    }
}

#[tokio::test]
async fn a_token_is_refreshed_once_for_all_who_want_it() {
    let (world, issuer) = (World::new().await, Issuer::start(NEW).await);
    let id = world.oauth(Some(&issuer.url), Some(0)).await;
    let values = futures::future::join_all((0..16).map(|_| world.value(id))).await;
    for value in values {
        assert_eq!(value.expect("a value"), "new");
    }
    assert_eq!(issuer.asked().len(), 1);
    let row = world
        .store
        .credential(world.vault, id)
        .await
        .expect("it is there");
    let CredentialSpec::McpOauth { expires_at, .. } = row.credential.spec else {
        panic!("another type");
    };
    assert!(expires_at.is_some_and(|at| at > Timestamp::now()));
    assert_eq!(
        row.credential.secret_version, 1,
        "a refresh is no new secret"
    );
}

#[tokio::test]
async fn a_rotated_refresh_token_is_kept_before_the_new_token_is_used() {
    let (world, issuer) = (World::new().await, Issuer::start(NEW).await);
    let id = world.oauth(Some(&issuer.url), Some(0)).await;
    // Who asks goes away at once; the refresh goes to its end all the same.
    let asking = Arc::clone(&world.keeper);
    let vault = world.vault;
    let asked = tokio::time::timeout(Duration::ZERO, async move { asking.value(vault, id).await });
    drop(asked.await);
    world.keeper.tasks.close();
    let ended = tokio::time::timeout(Duration::from_secs(20), world.keeper.tasks.wait());
    ended.await.expect("it ends");
    assert!(issuer.asked()[0].contains("refresh_token=refresh-1"));
    let row = world
        .store
        .credential(world.vault, id)
        .await
        .expect("it is there");
    let kept = world
        .keeper
        .read(&row.secret_name.expect("a name"))
        .await
        .expect("it is kept");
    assert!(kept.secret.value.expose() == b"new");
    assert!(kept.secret.refresh_token.expect("a token").expose() == b"refresh-2");
}

#[tokio::test]
async fn each_way_to_fail_has_its_own_reason() {
    use ErrorReason::{
        VaultCredentialExpired, VaultCredentialRefreshFailed, VaultCredentialUnavailable,
    };
    for (answer, ends_in, wanted) in [
        (None, 30, Ok("old")),
        (None, -1, Err(VaultCredentialExpired)),
        (Some(REFUSED), 30, Err(VaultCredentialRefreshFailed)),
        (Some(REFUSED), -1, Err(VaultCredentialRefreshFailed)),
        (Some(LATER), 30, Ok("old")),
        (Some(LATER), -1, Err(VaultCredentialUnavailable)),
    ] {
        let world = World::new().await;
        let issuer = Issuer::start(answer.unwrap_or(LATER)).await;
        let endpoint = answer.map(|_| issuer.url.as_str());
        let id = world.oauth(endpoint, Some(ends_in)).await;
        let got = world.value(id).await;
        if let Err(error) = &got {
            let text = format!("{error} {error:?}");
            assert!(!text.contains("refresh-1"), "{text}");
        }
        let got = got.map_err(|error| error.reason());
        assert_eq!(got, wanted.map(str::to_owned), "{answer:?} {ends_in}");
    }
}

#[tokio::test]
async fn an_endpoint_that_failed_is_not_asked_again_before_the_credential_is_updated() {
    for (answer, ends_in) in [(REFUSED, -1), (LATER, -1), (LATER, 30)] {
        let (world, issuer) = (World::new().await, Issuer::start(answer).await);
        let id = world.oauth(Some(&issuer.url), Some(ends_in)).await;
        let first = world.value(id).await.map_err(|error| error.to_string());
        for _ in 0..3 {
            let again = world.value(id).await.map_err(|error| error.to_string());
            assert_eq!(again, first, "{answer:?} {ends_in}");
        }
        assert_eq!(issuer.asked().len(), 1, "{answer:?} {ends_in}");
        // Another one at the same endpoint is another matter.
        let other = world.oauth(Some(&issuer.url), Some(-1)).await;
        drop(world.value(other).await);
        assert_eq!(issuer.asked().len(), 2, "{answer:?} {ends_in}");
        world.update(id).await;
        drop(world.value(id).await);
        assert_eq!(issuer.asked().len(), 3, "{answer:?} {ends_in}");
    }
}

#[tokio::test]
async fn an_archived_credential_has_no_value() {
    let world = World::new().await;
    let id = world.oauth(None, None).await;
    let name = world.names().pop().expect("a secret");
    let archived = world.store.archive_credential(None, world.vault, id).await;
    archived.expect("it is archived");
    world.keeper.sweep_one(&name).await;
    let error = world.value(id).await.expect_err("it has none");
    assert_eq!(error.reason(), ErrorReason::VaultCredentialArchived);
    assert_eq!(world.names(), Vec::<String>::new());
    assert_eq!(
        world.store.leftovers().await.expect("a list"),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn a_start_removes_the_secret_of_a_creation_that_was_cut_off() {
    let world = World::new().await;
    let id = world.oauth(None, None).await;
    let kept = Kept {
        secret: CredentialSecret::of(Secret::new(b"orphan".to_vec())),
        expires_at: None,
    };
    let orphan = world
        .keeper
        .keep(CredentialId::new(), &kept)
        .await
        .expect("it is kept");
    assert_eq!(world.names().len(), 2);
    world.keeper.sweep().await.expect("the store is read");
    assert!(!world.names().contains(&orphan));
    assert_eq!(world.value(id).await.expect("a value"), "old");
}

#[tokio::test]
async fn a_digest_of_a_request_tells_nothing_without_the_key() {
    let world = World::new().await;
    let key = || crate::IdempotencyKey {
        key: "k".to_owned(),
        digest: "ab".repeat(32),
    };
    let veiled = world
        .keeper
        .veiled(Some(key()))
        .await
        .expect("it is veiled");
    let again = world
        .keeper
        .veiled(Some(key()))
        .await
        .expect("it is veiled");
    assert_eq!(veiled, again);
    assert_ne!(veiled, Some(key()));
    let elsewhere = World::new().await;
    let other = elsewhere
        .keeper
        .veiled(Some(key()))
        .await
        .expect("it is veiled");
    assert_ne!(veiled, other);
}
