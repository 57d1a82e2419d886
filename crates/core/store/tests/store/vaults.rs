//! Vaults, their credentials, and who uses them.

use std::collections::BTreeMap;

use astrabox_store::{CredentialWrite, Error, Key, Store, VaultPatch};
use astrabox_types::{
    CredentialId, CredentialSpec, MAX_VAULT_CREDENTIALS, Timestamp, Vault, VaultCredential, VaultId,
};

use crate::support::{Place, agent, environment, made_agent};

fn vault() -> Vault {
    let now = Timestamp::now();
    Vault {
        id: VaultId::new(),
        display_name: "a vault".to_owned(),
        metadata: BTreeMap::new(),
        archived_at: None,
        created_at: now,
        updated_at: now,
    }
}

async fn made_vault(store: &Store) -> VaultId {
    store
        .insert_vault(None, vault())
        .await
        .expect("it is made")
        .id
}

fn credential(vault_id: VaultId, url: &str) -> VaultCredential {
    let now = Timestamp::now();
    VaultCredential {
        id: CredentialId::new(),
        vault_id,
        display_name: String::new(),
        spec: CredentialSpec::StaticBearer {
            mcp_server_url: url.to_owned(),
        },
        secret_version: 1,
        archived_at: None,
        created_at: now,
        updated_at: now,
    }
}

/// Makes a credential in the way of the platform: the name is noted first.
async fn put(store: &Store, credential: VaultCredential) -> Result<VaultCredential, Error> {
    let name = format!("vault/{}", credential.id);
    store.note_leftover(name.clone()).await?;
    store.insert_credential(None, credential, name).await
}

#[tokio::test]
async fn one_active_credential_for_one_thing_and_twenty_in_all() {
    let place = Place::new().await;
    let store = &place.store;
    let (one, other) = (made_vault(store).await, made_vault(store).await);
    for number in 0..MAX_VAULT_CREDENTIALS {
        let made = put(store, credential(one, &format!("https://{number}.example"))).await;
        made.expect("there is room");
    }
    let full = put(store, credential(one, "https://more.example")).await;
    assert!(matches!(full, Err(Error::Full)), "{full:?}");
    let twice = put(store, credential(one, "https://0.example")).await;
    assert!(matches!(twice, Err(Error::Exists)), "{twice:?}");
    // The names of those that were refused are left, and no others.
    assert_eq!(store.leftovers().await.expect("a list").len(), 2);
    put(store, credential(other, "https://0.example"))
        .await
        .expect("another vault");
    let first = store
        .active_credentials(one)
        .await
        .expect("a list")
        .remove(0);
    let archived = store
        .archive_credential(None, one, first.credential.id)
        .await;
    assert!(archived.expect("it is archived").archived_at.is_some());
    put(store, credential(one, "https://0.example"))
        .await
        .expect("the place is free");
}

#[tokio::test]
async fn what_no_credential_has_any_more_is_left_over_in_the_same_moment() {
    let mut place = Place::new().await;
    let store = place.store.clone();
    let id = made_vault(&store).await;
    let made = put(&store, credential(id, "https://a.example")).await;
    let made = made.expect("it is made");
    let old = format!("vault/{}", made.id);
    assert_eq!(
        store.leftovers().await.expect("a list"),
        Vec::<String>::new()
    );
    store.note_leftover("new".to_owned()).await.expect("noted");
    let write = CredentialWrite {
        vault_id: id,
        id: made.id,
        from: made.updated_at,
        display_name: "x".to_owned(),
        spec: made.spec.clone(),
        secret_name: Some("new".to_owned()),
    };
    let changed = store.update_credential(None, write.clone()).await;
    assert_eq!(changed.expect("it is changed").secret_version, 2);
    let left = store.leftovers().await.expect("a list");
    assert_eq!(left, std::slice::from_ref(&old));
    let stale = store.update_credential(None, write).await;
    assert!(matches!(stale, Err(Error::Changed)), "{stale:?}");
    store.archive_vault(None, id).await.expect("it is archived");
    drop(store);
    place.reopen().await;
    let store = &place.store;
    assert_eq!(
        store.leftovers().await.expect("a list"),
        ["new".to_owned(), old.clone()]
    );
    let row = store.credential(id, made.id).await.expect("it is there");
    assert_eq!(
        (row.secret_name, row.credential.archived_at.is_some()),
        (None, true)
    );
    let refused = put(store, credential(id, "https://b.example")).await;
    assert!(matches!(refused, Err(Error::Archived)), "{refused:?}");
    store.forget_leftover(old.clone()).await.expect("forgotten");
    assert!(!store.is_leftover(&old).await.expect("known"));
}

#[tokio::test]
async fn a_vault_that_an_agent_uses_is_not_deleted() {
    let place = Place::new().await;
    let store = &place.store;
    let id = made_vault(store).await;
    put(store, credential(id, "https://a.example"))
        .await
        .expect("it is made");
    let user = made_agent(store).await;
    let mut spec = user.spec.clone();
    spec.vault_ids = vec![id];
    let user = store.update_agent(None, user.id, 1, spec.clone()).await;
    let user = user.expect("it is changed");
    assert_eq!(user.spec.vault_ids, [id]);
    assert_eq!(store.agents_of_vault(id).await.expect("a list"), [user.id]);
    let refused = store.delete_vault(None, id).await;
    assert!(matches!(refused, Err(Error::InUse)), "{refused:?}");
    spec.vault_ids = Vec::new();
    let user = store.update_agent(None, user.id, 2, spec).await;
    user.expect("it is changed");
    store.delete_vault(None, id).await.expect("nobody uses it");
    assert!(matches!(store.vault(id).await, Err(Error::NotFound)));
    assert_eq!(store.active_credentials(id).await.expect("a list"), []);
    assert_eq!(store.leftovers().await.expect("a list").len(), 1);
}

#[tokio::test]
async fn an_agent_names_vaults_that_there_are() {
    let place = Place::new().await;
    let made = environment("e");
    let mut one = agent(made.id);
    place
        .store
        .insert_environment(None, made)
        .await
        .expect("it is made");
    one.spec.vault_ids = vec![VaultId::new()];
    let refused = place.store.insert_agent(None, one).await;
    assert!(matches!(refused, Err(Error::NoVault)), "{refused:?}");
}

#[tokio::test]
async fn vaults_and_credentials_come_in_pages() {
    let place = Place::new().await;
    let store = &place.store;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(made_vault(store).await);
    }
    let archived = store.archive_vault(None, made[1]).await;
    archived.expect("it is archived");
    let first = store.vaults(1, None, false).await.expect("a page");
    assert_eq!(first.items[0].id, made[2]);
    let token = first.next.expect("there is more");
    let second = store.vaults(5, Some(&token), false).await.expect("a page");
    let ids: Vec<_> = second.items.iter().map(|vault| vault.id).collect();
    assert_eq!((ids, second.next), (vec![made[0]], None));
    let foreign = store.vaults(5, Some(&token), true).await;
    assert!(matches!(foreign, Err(Error::ForeignToken)));
    for url in ["https://a.example", "https://b.example"] {
        put(store, credential(made[0], url))
            .await
            .expect("it is made");
    }
    let page = store
        .credentials(made[0], 1, None, false)
        .await
        .expect("a page");
    let rest = store
        .credentials(made[0], 1, page.next.as_deref(), false)
        .await;
    let keys = [
        page.items[0].spec.key(),
        rest.expect("a page").items[0].spec.key(),
    ];
    assert_eq!(keys, ["mcp https://a.example", "mcp https://b.example"]);
}

#[tokio::test]
async fn a_repeated_call_gets_the_first_answer() {
    let place = Place::new().await;
    let store = &place.store;
    let key = |digest: &str| {
        Some(Key {
            actor: "test".to_owned(),
            operation: "UpdateVault",
            key: "k".to_owned(),
            digest: digest.to_owned(),
        })
    };
    let id = made_vault(store).await;
    let patch = |name: &str| VaultPatch {
        display_name: Some(name.to_owned()),
        metadata: None,
    };
    let first = store.update_vault(key("1"), id, patch("one")).await;
    let again = store.update_vault(key("1"), id, patch("other")).await;
    assert_eq!(first.expect("changed"), again.expect("answered"));
    let other = store.update_vault(key("2"), id, patch("two")).await;
    assert!(matches!(other, Err(Error::KeyReused)), "{other:?}");
}
