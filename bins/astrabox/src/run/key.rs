//! A model key in the caller's environment. It goes into a vault, and from there into requests on their way out; never
//! into a sandbox.

use std::collections::HashMap;

use astrabox_client::{Client, v1};
use v1::credential_spec::Type;

use crate::exit::Failure;

/// The label by which the vault of `astrabox run` is found again.
const LABEL: &str = "astrabox-run";

/// Where an engine's users keep a key: the engine, the variable, the variable with another endpoint, the vendor's own
/// endpoint, and how the key is shown there. The first that is set counts.
const KNOWN: &[(&str, &str, &str, &str, v1::ModelKeyKind)] = &[
    (
        "claude_code",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
        v1::ModelKeyKind::ApiKey,
    ),
    (
        "claude_code",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "https://api.anthropic.com",
        v1::ModelKeyKind::Bearer,
    ),
    (
        "codex",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "https://api.openai.com",
        v1::ModelKeyKind::Bearer,
    ),
    (
        "deepseek_harness",
        "DEEPSEEK_API_KEY",
        "DEEPSEEK_BASE_URL",
        "https://api.deepseek.com/anthropic",
        v1::ModelKeyKind::ApiKey,
    ),
    (
        "hermes",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "https://api.openai.com",
        v1::ModelKeyKind::Bearer,
    ),
    (
        "pi",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "https://api.openai.com",
        v1::ModelKeyKind::Bearer,
    ),
];

/// A key and the endpoint that it is for. It holds a secret, so it has no Debug.
pub(super) struct Key {
    /// The variable that it stands in.
    pub(super) variable: &'static str,
    endpoint: String,
    kind: v1::ModelKeyKind,
    value: String,
}

impl Key {
    /// The key that the environment has for this engine.
    ///
    /// # Errors
    /// When the endpoint beside it is not one that a key may go to.
    pub(super) fn of(
        engine: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Self>> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        for (known, name, base, vendors, kind) in KNOWN {
            let Some(value) = set(name).filter(|_| *known == engine) else {
                continue;
            };
            let endpoint = set(base).unwrap_or_else(|| (*vendors).to_owned());
            // Clients of OpenAI write the version behind the root.
            let endpoint = endpoint.trim_end_matches('/').trim_end_matches("/v1");
            if !endpoint.starts_with("https://") {
                return Err(Failure::usage(format!(
                    "{base} is not an https address, so the key of {name} is not sent there; run with \
                     --no-model-key to use the server's own model endpoint"
                )));
            }
            return Ok(Some(Self {
                variable: name,
                endpoint: endpoint.to_owned(),
                kind: *kind,
                value: value.trim().to_owned(),
            }));
        }
        Ok(None)
    }

    /// Puts it into a vault of its own and gives the vault's id. The vault of the same endpoint is found again, and its
    /// key is this one from then on.
    pub(super) async fn keep(&self, client: &Client) -> anyhow::Result<String> {
        let vaults = client.all_vaults(false).await?;
        let own = |vault: &v1::Vault| vault.metadata.get(LABEL) == Some(&self.endpoint);
        let vault = match vaults.into_iter().find(own) {
            Some(vault) => vault.id,
            None => {
                let request = v1::CreateVaultRequest {
                    display_name: "keys of astrabox run".to_owned(),
                    metadata: HashMap::from([(LABEL.to_owned(), self.endpoint.clone())]),
                    ..Default::default()
                };
                let made = client.create_vault(request).await?.vault;
                made.unwrap_or_default().id
            }
        };
        let credentials = client.all_vault_credentials(&vault, false).await?;
        let known = credentials.into_iter().find(|credential| {
            let spec = credential
                .spec
                .as_ref()
                .and_then(|spec| spec.r#type.as_ref());
            matches!(spec, Some(Type::ModelKey(key)) if key.endpoint == self.endpoint)
        });
        let spec = v1::CredentialSpec {
            r#type: Some(Type::ModelKey(v1::ModelKeyCredential {
                endpoint: self.endpoint.clone(),
                kind: self.kind.into(),
                models: Vec::new(),
            })),
        };
        let secret = v1::CredentialSecret {
            value: self.value.clone(),
            ..Default::default()
        };
        match known {
            Some(credential) => {
                let paths = ["secret", "kind"].map(str::to_owned).to_vec();
                client
                    .update_vault_credential(v1::UpdateVaultCredentialRequest {
                        vault_id: vault.clone(),
                        credential_id: credential.id,
                        spec: Some(spec),
                        secret: Some(secret),
                        update_mask: Some(prost_types::FieldMask { paths }),
                        ..Default::default()
                    })
                    .await?;
            }
            None => {
                client
                    .create_vault_credential(v1::CreateVaultCredentialRequest {
                        vault_id: vault.clone(),
                        display_name: self.variable.to_owned(),
                        spec: Some(spec),
                        secret: Some(secret),
                        ..Default::default()
                    })
                    .await?;
            }
        }
        Ok(vault)
    }

    /// What is told of it.
    pub(super) fn told(&self, vault: &str) -> String {
        format!(
            "the key of {} is kept in {vault} and put into requests to {} alone; no sandbox holds it",
            self.variable, self.endpoint
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(engine: &str, set: &[(&str, &str)]) -> anyhow::Result<Option<Key>> {
        Key::of(engine, |name| {
            let found = set.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn the_key_of_the_engine_is_found_with_its_endpoint() {
        for (engine, set, wanted) in [
            ("codex", &[][..], None),
            ("codex", &[("ANTHROPIC_API_KEY", "k")], None),
            ("codex", &[("OPENAI_API_KEY", " ")], None),
            (
                "codex",
                &[("OPENAI_API_KEY", "k")],
                Some(("OPENAI_API_KEY", "https://api.openai.com")),
            ),
            (
                "codex",
                &[
                    ("OPENAI_API_KEY", "k"),
                    ("OPENAI_BASE_URL", "https://gw.test/v1/"),
                ],
                Some(("OPENAI_API_KEY", "https://gw.test")),
            ),
            (
                "claude_code",
                &[
                    ("ANTHROPIC_AUTH_TOKEN", "k"),
                    ("ANTHROPIC_BASE_URL", "https://gw.test"),
                ],
                Some(("ANTHROPIC_AUTH_TOKEN", "https://gw.test")),
            ),
        ] {
            let Ok(key) = found(engine, set) else {
                panic!("{engine}: it is well formed")
            };
            let got = key
                .as_ref()
                .map(|key| (key.variable, key.endpoint.as_str()));
            assert_eq!(got, wanted, "{engine}");
        }
        let clear = [
            ("OPENAI_API_KEY", "k"),
            ("OPENAI_BASE_URL", "http://gw.test/v1"),
        ];
        let Err(error) = found("codex", &clear) else {
            panic!("it is refused")
        };
        assert!(error.to_string().contains("OPENAI_BASE_URL"), "{error}");
    }
}
