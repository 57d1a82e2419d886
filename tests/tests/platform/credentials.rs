//! Credentials on their way from vaults to the boundary.

use astrabox_platform::{CredentialDraft, CredentialUpdate, SecretUpdate, SpecChanges, VaultDraft};
use astrabox_types::{
    CredentialId, CredentialNetworking, CredentialSecret, CredentialSpec, ErrorReason,
    InjectionLocation, Secret, SessionId, VaultId,
};

use crate::boundary::Given;
use crate::server::{agent, caller, draft, key};
use crate::stage::Stage;
use crate::told::rests;

fn secret(value: &str) -> Secret {
    Secret::new(value.as_bytes().to_vec())
}

async fn vault(stage: &mut Stage, name: &'static str) -> VaultId {
    let made = stage.call(move |platform| async move {
        let draft = VaultDraft {
            display_name: name.to_owned(),
            metadata: Default::default(),
        };
        platform.create_vault(&caller(), key(name, ""), draft).await
    });
    made.await.expect("a vault").id
}

async fn variable(stage: &mut Stage, vault_id: VaultId, value: &'static str) -> CredentialId {
    let made = stage.call(move |platform| async move {
        let draft = CredentialDraft {
            vault_id,
            display_name: String::new(),
            spec: CredentialSpec::EnvironmentVariable {
                secret_name: "API_KEY".to_owned(),
                networking: CredentialNetworking::Limited(vec!["api.test".to_owned()]),
                injection_location: InjectionLocation::default(),
                allowed_requests: None,
                allow_insecure_http: false,
            },
            secret: CredentialSecret::of(secret(value)),
        };
        platform
            .create_vault_credential(&caller(), key(value, ""), draft)
            .await
    });
    made.await.expect("a credential").id
}

async fn take(stage: &mut Stage, vault_ids: Vec<VaultId>) {
    let mut draft = agent("test");
    draft.vault_ids = vault_ids;
    stage.make_agent(draft).await;
}

async fn given(stage: &Stage, session: SessionId) -> Given {
    let (sandbox, _) = stage.world.inside(session).await;
    stage.world.boundary.of(sandbox).expect("it was given some")
}

fn api_key(value: &str) -> Given {
    Given::from([("API_KEY".to_owned(), value.to_owned())])
}

#[tokio::test]
async fn a_credential_reaches_its_sandbox_changes_with_its_vault_and_ends_with_it() {
    let mut stage = Stage::new().await;
    let vault_id = vault(&mut stage, "one").await;
    let id = variable(&mut stage, vault_id, "first").await;
    take(&mut stage, vec![vault_id]).await;
    let session = stage.create("SAY: hello").await;
    stage.until(session, "its end", rests(1)).await;
    assert_eq!(given(&stage, session).await, api_key("first"));

    let rotated = stage.call(move |platform| async move {
        let update = CredentialUpdate {
            vault_id,
            id,
            display_name: None,
            secret: Some(SecretUpdate {
                value: Some(secret("second")),
                ..SecretUpdate::default()
            }),
            changes: SpecChanges::default(),
        };
        platform
            .update_vault_credential(&caller(), key("rotate", ""), update)
            .await
    });
    rotated.await.expect("it is rotated");
    assert_eq!(given(&stage, session).await, api_key("second"));

    // The next server gives them again.
    stage.restart().await;
    stage.send(session, "SAY: again").await;
    stage.until(session, "its end", rests(2)).await;
    assert_eq!(given(&stage, session).await, api_key("second"));

    let archived = stage.call(move |platform| async move {
        platform
            .archive_vault_credential(&caller(), key("archive", ""), vault_id, id)
            .await
    });
    archived.await.expect("it is archived");
    assert_eq!(given(&stage, session).await, Given::new());
    stage.send(session, "SAY: without").await;
    stage.until(session, "its end", rests(3)).await;
}

#[tokio::test]
async fn credentials_that_contradict_each_other_refuse_a_start_and_end_no_session() {
    let mut stage = Stage::new().await;
    let one = vault(&mut stage, "one").await;
    let other = vault(&mut stage, "other").await;
    variable(&mut stage, one, "first").await;
    take(&mut stage, vec![one, other]).await;
    let session = stage.create("SAY: hello").await;
    stage.until(session, "its end", rests(1)).await;
    assert_eq!(given(&stage, session).await, api_key("first"));

    // From now on nobody can say which of them a program means: neither is put into requests.
    let second = variable(&mut stage, other, "second").await;
    assert_eq!(given(&stage, session).await, Given::new());
    stage.send(session, "SAY: it goes on").await;
    stage.until(session, "its end", rests(2)).await;
    stage.restart().await;
    stage.send(session, "SAY: also in the next server").await;
    stage.until(session, "its end", rests(3)).await;
    assert_eq!(given(&stage, session).await, Given::new());

    let new = draft(stage.agent().await, "SAY: not this one");
    let refused = stage.call(move |platform| {
        let new = new.clone();
        async move { platform.create_session(&caller(), None, new).await }
    });
    let error = refused.await.expect_err("it is refused");
    assert_eq!(error.reason(), ErrorReason::VaultCredentialConflict);

    let archived = stage.call(move |platform| async move {
        platform
            .archive_vault_credential(&caller(), key("archive", ""), other, second)
            .await
    });
    archived.await.expect("it is archived");
    assert_eq!(given(&stage, session).await, api_key("first"));
}

#[tokio::test]
async fn a_vault_that_is_deleted_takes_its_credentials_along() {
    let mut stage = Stage::new().await;
    let vault_id = vault(&mut stage, "one").await;
    variable(&mut stage, vault_id, "first").await;
    take(&mut stage, vec![vault_id]).await;
    let session = stage.create("SAY: hello").await;
    stage.until(session, "its end", rests(1)).await;
    let in_use = stage.call(move |platform| async move {
        platform
            .delete_vault(&caller(), key("delete", ""), vault_id)
            .await
    });
    let error = in_use.await.expect_err("an agent uses it");
    assert_eq!(error.reason(), ErrorReason::VaultInUse);
    let archived = stage.call(move |platform| async move {
        platform
            .archive_vault(&caller(), key("archive", ""), vault_id)
            .await
    });
    archived.await.expect("it is archived");
    assert_eq!(given(&stage, session).await, Given::new());
}
