//! Vaults over gRPC against a real server that logs everything: what goes in, what comes out, and where a secret is.

use std::path::Path;

use astrabox_client::{Client, ClientError, v1};
use astrabox_testkit::server::{ServerOptions, ServerProcess};
use astrabox_tests::must;
use prost_types::FieldMask;
use v1::credential_spec::Type;

/// The values in the secret store that are the platform's own: what placeholders are minted with, and what digests of
/// requests with secrets are made with.
const OWN_KEYS: usize = 2;

/// A server, and everything that clients ever got from it.
struct Stage {
    server: ServerProcess,
    client: Client,
    told: Vec<String>,
}

impl Stage {
    async fn new() -> Self {
        let mut options = ServerOptions::default();
        let level = ("ASTRABOX_LOG__LEVEL".to_owned(), "trace".to_owned());
        options.environment.extend([level]);
        let server = must(ServerProcess::start(&options).await);
        let client = must(server.client().await);
        Self {
            server,
            client,
            told: Vec::new(),
        }
    }

    /// Writes an answer down.
    #[track_caller]
    fn ok<T: std::fmt::Debug>(&mut self, answer: Result<T, ClientError>) -> T {
        let answer = must(answer);
        self.told.push(format!("{answer:?}"));
        answer
    }

    /// Writes a refusal down, and gives its reason.
    #[track_caller]
    fn refused<T>(&mut self, answer: Result<T, ClientError>) -> String {
        let Err(error) = answer else {
            panic!("it is not refused");
        };
        self.told.push(format!("{error} {error:?}"));
        error.reason
    }

    async fn vault(&mut self, name: &str) -> String {
        let request = v1::CreateVaultRequest {
            display_name: name.to_owned(),
            ..Default::default()
        };
        let answer = self.client.create_vault(request).await;
        let made = self.ok(answer);
        made.vault.expect("a vault").id
    }

    async fn add(&mut self, request: v1::CreateVaultCredentialRequest) -> v1::VaultCredential {
        let answer = self.client.create_vault_credential(request).await;
        let made = self.ok(answer);
        made.credential.expect("a credential")
    }

    async fn update(
        &mut self,
        credential: &v1::VaultCredential,
        request: v1::UpdateVaultCredentialRequest,
        paths: &[&str],
    ) -> Result<v1::UpdateVaultCredentialResponse, ClientError> {
        let request = v1::UpdateVaultCredentialRequest {
            vault_id: credential.vault_id.clone(),
            credential_id: credential.id.clone(),
            update_mask: Some(mask(paths)),
            ..request
        };
        self.client.update_vault_credential(request).await
    }

    /// How many values the secret store holds: those of credentials and the platform's own.
    fn values(&self) -> usize {
        let folder = self.server.folder().join("state/secrets/local/values");
        std::fs::read_dir(folder)
            .expect("the store's folder")
            .count()
    }

    async fn restart(&mut self, kill: bool) {
        if kill {
            must(self.server.kill().await);
        } else {
            must(self.server.stop().await);
        }
        must(self.server.start_again().await);
        self.client = must(self.server.client().await);
    }
}

fn mask(paths: &[&str]) -> FieldMask {
    FieldMask {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    }
}

fn secret(value: &str) -> Option<v1::CredentialSecret> {
    Some(v1::CredentialSecret {
        value: value.to_owned(),
        ..Default::default()
    })
}

fn spec(kind: Type) -> Option<v1::CredentialSpec> {
    Some(v1::CredentialSpec { r#type: Some(kind) })
}

fn bearer(vault: &str, url: &str, value: &str) -> v1::CreateVaultCredentialRequest {
    v1::CreateVaultCredentialRequest {
        vault_id: vault.to_owned(),
        spec: spec(Type::StaticBearer(v1::StaticBearerCredential {
            mcp_server_url: url.to_owned(),
        })),
        secret: secret(value),
        ..Default::default()
    }
}

fn variable(vault: &str, value: &str) -> v1::CreateVaultCredentialRequest {
    let limited = v1::LimitedCredentialNetworking {
        allowed_hosts: vec!["API.example".to_owned()],
    };
    v1::CreateVaultCredentialRequest {
        vault_id: vault.to_owned(),
        spec: spec(Type::EnvironmentVariable(
            v1::EnvironmentVariableCredential {
                secret_name: "API_TOKEN".to_owned(),
                networking: Some(v1::CredentialNetworking {
                    r#type: Some(v1::credential_networking::Type::Limited(limited)),
                }),
                allowed_requests: Some(v1::AllowedRequests {
                    methods: vec!["get".to_owned()],
                    paths: vec!["/v1/*".to_owned()],
                }),
                ..Default::default()
            },
        )),
        secret: secret(value),
        ..Default::default()
    }
}

/// One of each type, with a canary for each part of its secret.
fn one_of_each(vault: &str) -> Vec<v1::CreateVaultCredentialRequest> {
    let refresh = v1::OauthRefresh {
        token_endpoint: "https://issuer.example/token".to_owned(),
        client_id: "client".to_owned(),
        auth_method: v1::ClientAuthMethod::ClientSecretBasic.into(),
        scope: String::new(),
    };
    let others = [
        (
            Type::McpOauth(v1::McpOauthCredential {
                mcp_server_url: "https://oauth.example/mcp".to_owned(),
                expires_at: None,
                refresh: Some(refresh),
            }),
            v1::CredentialSecret {
                value: "canary-access-3f9a".to_owned(),
                refresh_token: "canary-refresh-81bc".to_owned(),
                client_secret: "canary-client-77d0".to_owned(),
            },
        ),
        (
            Type::McpStaticHeader(v1::McpStaticHeaderCredential {
                mcp_server_url: "https://header.example".to_owned(),
                header_name: "X-Key".to_owned(),
            }),
            secret("canary-header-5e21").expect("a secret"),
        ),
        (
            Type::HttpBasic(v1::HttpBasicCredential {
                url: "https://git.example/owner/repo".to_owned(),
                username: "user".to_owned(),
            }),
            secret("canary-basic-c4d7").expect("a secret"),
        ),
        (
            Type::ModelKey(v1::ModelKeyCredential {
                endpoint: "https://models.example".to_owned(),
                kind: v1::ModelKeyKind::ApiKey.into(),
                models: vec!["m".to_owned()],
            }),
            secret("canary-model-0b66").expect("a secret"),
        ),
    ];
    let others = others
        .into_iter()
        .map(|(kind, secret)| v1::CreateVaultCredentialRequest {
            vault_id: vault.to_owned(),
            spec: spec(kind),
            secret: Some(secret),
            ..Default::default()
        });
    [
        bearer(vault, "https://bearer.example", "canary-bearer-a1f3"),
        variable(vault, "canary-variable-9e02"),
    ]
    .into_iter()
    .chain(others)
    .collect()
}

/// The files below a folder that hold this text.
fn files_with(folder: &Path, text: &[u8], found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            files_with(&entry.path(), text, found);
        } else if kind.is_file() {
            // One that is gone by now holds nothing.
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            if bytes.windows(text.len()).any(|part| part == text) {
                found.push(entry.path().display().to_string());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_no_log_line_and_no_file_has_a_secret() {
    let mut stage = Stage::new().await;
    let vault = stage.vault("canaries").await;
    let mut made = Vec::new();
    for request in one_of_each(&vault) {
        let keyed = v1::CreateVaultCredentialRequest {
            idempotency_key: format!("key-{}", made.len()),
            ..request
        };
        let first = stage.add(keyed.clone()).await;
        assert_eq!(
            stage.add(keyed.clone()).await,
            first,
            "a repeated call is answered alike"
        );
        let mut other = keyed.clone();
        other.secret.as_mut().expect("a secret").value = "canary-other-2c2c".to_owned();
        let answer = stage.client.create_vault_credential(other).await;
        assert_eq!(stage.refused(answer), "IDEMPOTENCY_KEY_REUSED");
        // Again under another key: the place is taken.
        let answer = stage
            .client
            .create_vault_credential(v1::CreateVaultCredentialRequest {
                idempotency_key: String::new(),
                ..keyed
            });
        let answer = answer.await;
        assert_eq!(stage.refused(answer), "VAULT_CREDENTIAL_CONFLICT");
        made.push(first);
    }
    assert_eq!(
        stage.values(),
        made.len() + OWN_KEYS,
        "what was refused is not kept"
    );
    for wrong in [
        "canary-wrong-d1d1\n",
        "canary-wrong-d1d1\r\nx-evil: 1",
        "\0canary-wrong-d1d1",
    ] {
        let request = bearer(&vault, "https://wrong.example", wrong);
        let answer = stage.client.create_vault_credential(request).await;
        assert_eq!(stage.refused(answer), "INVALID_FIELD");
    }
    for credential in &made {
        let request = v1::UpdateVaultCredentialRequest {
            secret: secret("canary-rotated-6a6a"),
            ..Default::default()
        };
        let answer = stage.update(credential, request, &["secret"]).await;
        let updated = stage.ok(answer);
        assert_eq!(updated.credential.expect("a credential").secret_version, 2);
    }
    assert_eq!(
        stage.values(),
        made.len() + OWN_KEYS,
        "what was replaced is removed"
    );
    stage.restart(true).await;
    let rotated = stage
        .client
        .rotate_secret_key(v1::RotateSecretKeyRequest::default());
    let rotated = rotated.await;
    assert_eq!(stage.ok(rotated).key_version, 2);
    let list = v1::ListVaultCredentialsRequest {
        vault_id: vault.clone(),
        ..Default::default()
    };
    let answer = stage.client.list_vault_credentials(list).await;
    let all = stage.ok(answer);
    assert_eq!(all.credentials.len(), made.len());
    // While the files are there, at every place: state, database and its log, sockets' folder, the server's log.
    let look = |stage: &Stage| {
        let told = stage.told.join("\n");
        for canary in ["canary-", "Y2FuYXJ5L"] {
            assert!(!told.contains(canary), "a client was told `{canary}`");
            let mut found = Vec::new();
            files_with(stage.server.folder(), canary.as_bytes(), &mut found);
            assert_eq!(found, Vec::<String>::new(), "`{canary}` is at rest");
        }
    };
    look(&stage);
    assert!(
        stage.server.log().contains("TRACE"),
        "the log has everything"
    );
    let archive = v1::ArchiveVaultRequest {
        vault_id: vault,
        ..Default::default()
    };
    let answer = stage.client.archive_vault(archive).await;
    stage.ok(answer);
    assert_eq!(stage.values(), OWN_KEYS, "an archived vault has no secrets");
    stage.restart(false).await;
    look(&stage);
    must(stage.server.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vault_has_twenty_active_credentials_and_one_for_each_thing() {
    let mut stage = Stage::new().await;
    let vault = stage.vault("full").await;
    for number in 0..20 {
        stage
            .add(bearer(
                &vault,
                &format!("https://{number}.example"),
                "value",
            ))
            .await;
    }
    let more = bearer(&vault, "https://more.example", "value");
    let answer = stage.client.create_vault_credential(more.clone()).await;
    assert_eq!(stage.refused(answer), "VAULT_CREDENTIAL_LIMIT");
    let same = bearer(&vault, "HTTPS://0.Example/", "value");
    let answer = stage.client.create_vault_credential(same).await;
    assert_eq!(stage.refused(answer), "VAULT_CREDENTIAL_CONFLICT");
    let list = v1::ListVaultCredentialsRequest {
        vault_id: vault.clone(),
        page_size: 1,
        ..Default::default()
    };
    let answer = stage.client.list_vault_credentials(list).await;
    let first = stage.ok(answer).credentials.remove(0);
    let archive = v1::ArchiveVaultCredentialRequest {
        vault_id: vault.clone(),
        credential_id: first.id.clone(),
        ..Default::default()
    };
    for _ in 0..2 {
        let answer = stage.client.archive_vault_credential(archive.clone()).await;
        let archived = stage.ok(answer);
        assert!(
            archived
                .credential
                .expect("a credential")
                .archived_at
                .is_some()
        );
    }
    let request = v1::UpdateVaultCredentialRequest {
        secret: secret("value"),
        ..Default::default()
    };
    let answer = stage.update(&first, request, &["secret"]).await;
    assert_eq!(stage.refused(answer), "VAULT_CREDENTIAL_ARCHIVED");
    stage.add(more).await;
    let delete = v1::DeleteVaultCredentialRequest {
        vault_id: vault.clone(),
        credential_id: first.id,
        ..Default::default()
    };
    must(stage.client.delete_vault_credential(delete.clone()).await);
    let again = v1::DeleteVaultCredentialRequest {
        idempotency_key: "other".to_owned(),
        ..delete
    };
    let answer = stage.client.delete_vault_credential(again).await;
    assert_eq!(stage.refused(answer), "VAULT_CREDENTIAL_NOT_FOUND");
    let delete = v1::DeleteVaultRequest {
        vault_id: vault.clone(),
        ..Default::default()
    };
    must(stage.client.delete_vault(delete).await);
    assert_eq!(stage.values(), OWN_KEYS);
    let answer = stage
        .client
        .get_vault(v1::GetVaultRequest { vault_id: vault })
        .await;
    assert_eq!(stage.refused(answer), "VAULT_NOT_FOUND");
    must(stage.server.stop().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_merges_replaces_or_is_refused_as_each_field_says() {
    let mut stage = Stage::new().await;
    let vault = stage.vault("changes").await;
    let made = stage.add(variable(&vault, "value")).await;
    let kind = |credential: &v1::VaultCredential| {
        let spec = credential.spec.clone().and_then(|spec| spec.r#type);
        match spec {
            Some(Type::EnvironmentVariable(spec)) => spec,
            other => panic!("another type: {other:?}"),
        }
    };
    let before = kind(&made);
    let both = v1::InjectionLocation {
        header: Some(true),
        body: Some(true),
        websocket: Some(false),
    };
    assert_eq!(before.injection_location, Some(both));
    let limited = |hosts: &[&str]| v1::CredentialNetworking {
        r#type: Some(v1::credential_networking::Type::Limited(
            v1::LimitedCredentialNetworking {
                allowed_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            },
        )),
    };
    assert_eq!(before.networking, Some(limited(&["api.example"])));
    let change = v1::EnvironmentVariableCredential {
        injection_location: Some(v1::InjectionLocation {
            header: None,
            body: Some(false),
            websocket: Some(true),
        }),
        networking: Some(limited(&["*.other.example"])),
        ..Default::default()
    };
    let request = || v1::UpdateVaultCredentialRequest {
        spec: spec(Type::EnvironmentVariable(change.clone())),
        ..Default::default()
    };
    let paths = ["injection_location", "networking", "allowed_requests"];
    let answer = stage.update(&made, request(), &paths).await;
    let after = stage.ok(answer).credential;
    let after = after.expect("a credential");
    let merged = v1::InjectionLocation {
        header: Some(true),
        body: Some(false),
        websocket: Some(true),
    };
    assert_eq!(kind(&after).injection_location, Some(merged));
    assert_eq!(kind(&after).networking, Some(limited(&["*.other.example"])));
    assert_eq!(
        kind(&after).allowed_requests,
        None,
        "no restriction any more"
    );
    assert_eq!(kind(&after).secret_name, "API_TOKEN");
    let everywhere = v1::CredentialNetworking {
        r#type: Some(v1::credential_networking::Type::Unrestricted(
            v1::UnrestrictedCredentialNetworking {},
        )),
    };
    let change = v1::EnvironmentVariableCredential {
        networking: Some(everywhere.clone()),
        ..Default::default()
    };
    let everywhere_now = v1::UpdateVaultCredentialRequest {
        spec: spec(Type::EnvironmentVariable(change)),
        ..Default::default()
    };
    let answer = stage.update(&made, everywhere_now, &["networking"]).await;
    let after = stage.ok(answer).credential.expect("a credential");
    assert_eq!(kind(&after).networking, Some(everywhere));
    assert_eq!(kind(&after).injection_location, Some(merged));
    for path in [
        "type",
        "secret_name",
        "mcp_server_url",
        "header_name",
        "url",
        "username",
        "token_endpoint",
        "client_id",
        "endpoint",
        "models",
    ] {
        let answer = stage.update(&made, request(), &[path]).await;
        assert_eq!(stage.refused(answer), "INVALID_FIELD", "{path}");
    }
    let answer = stage.update(&made, request(), &["colour"]).await;
    assert_eq!(stage.refused(answer), "UNKNOWN_FIELD");
    let answer = stage.update(&made, request(), &["secret"]).await;
    assert_eq!(stage.refused(answer), "INVALID_FIELD");
    must(stage.server.stop().await);
}
