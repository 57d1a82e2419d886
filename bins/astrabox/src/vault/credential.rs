//! `astrabox vault credential`.

use astrabox_client::v1;
use prost_types::{FieldMask, Timestamp};
use serde_json::{Value, json};

use super::secret::SecretArgs;
use super::spec::Kind;
use crate::args::Global;
use crate::connect::connect;
use crate::out::{Column, Out};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Puts a credential into a vault; its secret comes from standard input or a file, never from an argument
    Add {
        /// The vault's id
        vault: String,
        /// A name for people
        #[arg(long, default_value = "", hide_default_value = true)]
        name: String,
        #[command(flatten)]
        secret: SecretArgs,
        #[command(subcommand)]
        kind: Kind,
    },
    /// The credentials of a vault
    List {
        /// The vault's id
        vault: String,
        /// Also those that are archived
        #[arg(long)]
        archived: bool,
    },
    /// One credential, without its secret
    #[command(visible_alias = "get")]
    Show {
        /// The vault's id
        vault: String,
        /// Its id
        credential: String,
    },
    /// Gives a credential a new secret; the one before is removed
    Rotate {
        /// The vault's id
        vault: String,
        /// Its id
        credential: String,
        /// When the new access token of an mcp-oauth credential ends, as 2030-01-31T12:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<Timestamp>,
        #[command(flatten)]
        secret: SecretArgs,
    },
    /// Gives a credential another name
    Rename {
        /// The vault's id
        vault: String,
        /// Its id
        credential: String,
        /// A name for people
        name: String,
    },
    /// Archives a credential and removes its secret
    Archive {
        /// The vault's id
        vault: String,
        /// Its id
        credential: String,
    },
    /// Removes a credential and its secret
    Delete {
        /// The vault's id
        vault: String,
        /// Its id
        credential: String,
    },
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("TYPE", "/type"),
    ("FOR", "/for"),
    ("NAME", "/display_name"),
    ("SECRET", "/secret_version"),
    ("ARCHIVED", "/archived_at"),
    ("UPDATED", "/updated_at"),
];

pub(super) async fn run(global: &Global, out: &Out, command: Command) -> anyhow::Result<()> {
    let show = |credential: Option<v1::VaultCredential>| {
        out.object(&out.message("VaultCredential", &credential.unwrap_or_default()))
    };
    match command {
        Command::Add {
            vault: vault_id,
            name: display_name,
            secret,
            kind,
        } => {
            let request = v1::CreateVaultCredentialRequest {
                vault_id,
                display_name,
                spec: Some(kind.spec()?),
                secret: Some(secret.read()?),
                idempotency_key: String::new(),
            };
            let client = connect(global).await?;
            show(client.create_vault_credential(request).await?.credential)
        }
        Command::List { vault, archived } => {
            let client = connect(global).await?;
            let all = client.all_vault_credentials(&vault, archived).await?;
            let rows = all.iter().map(|credential| {
                let row = out.message("VaultCredential", credential);
                if out.is_json() { row } else { summed_up(row) }
            });
            out.table("credentials", rows.collect(), COLUMNS)
        }
        Command::Show {
            vault: vault_id,
            credential: credential_id,
        } => {
            let request = v1::GetVaultCredentialRequest {
                vault_id,
                credential_id,
            };
            let client = connect(global).await?;
            show(client.get_vault_credential(request).await?.credential)
        }
        Command::Rotate {
            vault: vault_id,
            credential: credential_id,
            expires_at,
            secret,
        } => {
            let mut paths = vec!["secret".to_owned()];
            let mut spec = None;
            if expires_at.is_some() {
                paths.push("expires_at".to_owned());
                let oauth = v1::McpOauthCredential {
                    expires_at,
                    ..Default::default()
                };
                let kind = v1::credential_spec::Type::McpOauth(oauth);
                spec = Some(v1::CredentialSpec { r#type: Some(kind) });
            }
            let request = v1::UpdateVaultCredentialRequest {
                vault_id,
                credential_id,
                spec,
                secret: Some(secret.read_new()?),
                update_mask: Some(FieldMask { paths }),
                ..Default::default()
            };
            let client = connect(global).await?;
            show(client.update_vault_credential(request).await?.credential)
        }
        Command::Rename {
            vault: vault_id,
            credential: credential_id,
            name: display_name,
        } => {
            let paths = vec!["display_name".to_owned()];
            let request = v1::UpdateVaultCredentialRequest {
                vault_id,
                credential_id,
                display_name,
                update_mask: Some(FieldMask { paths }),
                ..Default::default()
            };
            let client = connect(global).await?;
            show(client.update_vault_credential(request).await?.credential)
        }
        Command::Archive {
            vault: vault_id,
            credential: credential_id,
        } => {
            let request = v1::ArchiveVaultCredentialRequest {
                vault_id,
                credential_id,
                ..Default::default()
            };
            let client = connect(global).await?;
            show(client.archive_vault_credential(request).await?.credential)
        }
        Command::Delete { vault, credential } => {
            let request = v1::DeleteVaultCredentialRequest {
                vault_id: vault,
                credential_id: credential.clone(),
                ..Default::default()
            };
            let client = connect(global).await?;
            client.delete_vault_credential(request).await?;
            let text = format!("{credential} is deleted");
            out.done(&json!({ "deleted": credential }), &text)
        }
    }
}

/// The type and what it is for, where a table can find them.
fn summed_up(mut row: Value) -> Value {
    let spec = row.get("spec").and_then(Value::as_object);
    let Some((kind, spec)) = spec.and_then(|spec| spec.iter().next()) else {
        return row;
    };
    let names = ["mcp_server_url", "url", "secret_name", "endpoint"];
    let purpose = names.iter().find_map(|name| spec.get(*name)).cloned();
    let kind = kind.clone();
    row["type"] = kind.into();
    row["for"] = purpose.unwrap_or_default();
    row
}
