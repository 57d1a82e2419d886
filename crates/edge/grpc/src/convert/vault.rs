//! Vaults and credentials, both ways. A secret goes one way only.

use std::collections::BTreeMap;

use astrabox_platform::{
    CredentialDraft, CredentialUpdate, Error, InjectionChange, Result, SecretUpdate, SpecChanges,
    VaultUpdate,
};
use astrabox_proto::v1;
use astrabox_proto::v1::credential_spec::Type;
use astrabox_types::{CredentialSecret, Secret, Vault, VaultCredential};

use super::from_proto::id;
use super::to_proto::timestamp;
use super::vault_spec;
use crate::mask::Mask;

pub(crate) fn vault_to_proto(vault: Vault) -> v1::Vault {
    let Vault {
        id,
        display_name,
        metadata,
        archived_at,
        created_at,
        updated_at,
    } = vault;
    v1::Vault {
        id: id.to_string(),
        display_name,
        metadata: metadata.into_iter().collect(),
        archived_at: archived_at.and_then(timestamp),
        created_at: timestamp(created_at),
        updated_at: timestamp(updated_at),
    }
}

pub(crate) fn credential_to_proto(credential: VaultCredential) -> v1::VaultCredential {
    let VaultCredential {
        id,
        vault_id,
        display_name,
        spec,
        secret_version,
        archived_at,
        created_at,
        updated_at,
    } = credential;
    v1::VaultCredential {
        id: id.to_string(),
        vault_id: vault_id.to_string(),
        display_name,
        spec: Some(vault_spec::to_proto(spec)),
        secret_version,
        archived_at: archived_at.and_then(timestamp),
        created_at: timestamp(created_at),
        updated_at: timestamp(updated_at),
    }
}

pub(crate) fn vault_update(request: v1::UpdateVaultRequest) -> Result<VaultUpdate> {
    let v1::UpdateVaultRequest {
        vault_id: _,
        display_name,
        metadata,
        update_mask,
        idempotency_key: _,
    } = request;
    let mask = Mask::of(update_mask, &["display_name", "metadata"], &[])?;
    Ok(VaultUpdate {
        display_name: mask.take("display_name", display_name),
        metadata: mask.take("metadata", metadata.into_iter().collect::<BTreeMap<_, _>>()),
    })
}

pub(crate) fn credential_draft(
    request: v1::CreateVaultCredentialRequest,
) -> Result<CredentialDraft> {
    let v1::CreateVaultCredentialRequest {
        vault_id,
        display_name,
        spec,
        secret,
        idempotency_key: _,
    } = request;
    // Taken first, so that it is wiped whatever is wrong with the rest.
    let secret = secret_parts(secret);
    let SecretUpdate {
        value,
        refresh_token,
        client_secret,
    } = secret;
    Ok(CredentialDraft {
        vault_id: id("vault_id", &vault_id)?,
        display_name,
        spec: vault_spec::from_proto(spec)?,
        secret: CredentialSecret {
            value: value.ok_or_else(|| Error::field("secret.value", "must be given"))?,
            refresh_token,
            client_secret,
        },
    })
}

/// The parts that are given. The texts become the secrets themselves: nothing is copied.
fn secret_parts(secret: Option<v1::CredentialSecret>) -> SecretUpdate {
    let v1::CredentialSecret {
        value,
        refresh_token,
        client_secret,
    } = secret.unwrap_or_default();
    let part = |text: String| (!text.is_empty()).then(|| Secret::new(text.into_bytes()));
    SecretUpdate {
        value: part(value),
        refresh_token: part(refresh_token),
        client_secret: part(client_secret),
    }
}

pub(crate) fn credential_update(
    request: v1::UpdateVaultCredentialRequest,
) -> Result<CredentialUpdate> {
    const FIELDS: &[&str] = &[
        "display_name",
        "secret",
        "expires_at",
        "auth_method",
        "scope",
        "networking",
        "injection_location",
        "allowed_requests",
        "allow_insecure_http",
        "kind",
        "models",
    ];
    const FIXED: &[&str] = &[
        "type",
        "mcp_server_url",
        "header_name",
        "secret_name",
        "url",
        "username",
        "refresh",
        "token_endpoint",
        "client_id",
        "endpoint",
    ];
    let v1::UpdateVaultCredentialRequest {
        vault_id,
        credential_id,
        display_name,
        spec,
        secret,
        update_mask,
        idempotency_key: _,
    } = request;
    let secret = secret_parts(secret);
    let names_spec = |path: &String| path != "display_name" && path != "secret";
    let of_spec = update_mask
        .as_ref()
        .is_some_and(|mask| mask.paths.iter().any(names_spec));
    let mask = Mask::of(update_mask, FIELDS, FIXED)?;
    let secret = mask.take("secret", secret);
    if let Some(secret) = &secret
        && secret.value.is_none()
        && secret.refresh_token.is_none()
        && secret.client_secret.is_none()
    {
        return Err(Error::field("secret", "must have at least one part"));
    }
    let changes = if of_spec {
        spec_changes(&mask, vault_spec::kind(spec)?)?
    } else {
        SpecChanges::default()
    };
    Ok(CredentialUpdate {
        vault_id: id("vault_id", &vault_id)?,
        id: id("credential_id", &credential_id)?,
        display_name: mask.take("display_name", display_name),
        secret,
        changes,
    })
}

/// What the mask names of the spec. A field of another type than the spec's is refused by the name of the field.
fn spec_changes(mask: &Mask, spec: Type) -> Result<SpecChanges> {
    let mut changes = SpecChanges::default();
    let mut of_type: &[&str] = &[];
    match spec {
        Type::StaticBearer(_) | Type::McpStaticHeader(_) | Type::HttpBasic(_) => {}
        Type::McpOauth(spec) => {
            of_type = &["expires_at", "auth_method", "scope"];
            let refresh = spec.refresh.unwrap_or_default();
            changes.expires_at = mask
                .take("expires_at", spec.expires_at)
                .map(|time| vault_spec::time("spec.expires_at", time))
                .transpose()?;
            changes.auth_method = mask
                .take("auth_method", refresh.auth_method)
                .map(vault_spec::auth_method)
                .transpose()?;
            changes.scope = mask.take("scope", refresh.scope);
        }
        Type::EnvironmentVariable(spec) => {
            of_type = &[
                "networking",
                "injection_location",
                "allowed_requests",
                "allow_insecure_http",
            ];
            changes.networking = mask
                .take("networking", spec.networking)
                .map(vault_spec::networking)
                .transpose()?;
            let v1::InjectionLocation {
                header,
                body,
                websocket,
            } = spec.injection_location.unwrap_or_default();
            let change = InjectionChange {
                header,
                body,
                websocket,
            };
            changes.injection_location = mask.take("injection_location", change);
            changes.allowed_requests = mask.take(
                "allowed_requests",
                spec.allowed_requests.map(vault_spec::allowed_requests),
            );
            changes.allow_insecure_http =
                mask.take("allow_insecure_http", spec.allow_insecure_http);
        }
        Type::ModelKey(spec) => {
            of_type = &["kind", "models"];
            changes.kind = mask
                .take("kind", spec.kind)
                .map(vault_spec::key_kind)
                .transpose()?;
            changes.models = mask.take("models", spec.models);
        }
    }
    let known = |path: &str| matches!(path, "display_name" | "secret") || of_type.contains(&path);
    match mask.paths().find(|path| !known(path)) {
        None => Ok(changes),
        Some(path) => Err(Error::field(
            "update_mask",
            format!("names `{path}`, and the type of `spec` has no such field"),
        )),
    }
}
