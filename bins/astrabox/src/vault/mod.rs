//! `astrabox vault`.

mod credential;
mod secret;
mod spec;

use astrabox_client::v1;
use prost_types::FieldMask;
use serde_json::json;

use crate::args::Global;
use crate::connect::connect;
use crate::exit::Failure;
use crate::out::{Column, Out};
use crate::pairs;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes a vault
    Create {
        /// A name for people
        #[arg(long)]
        name: String,
        /// A label; may be given again
        #[arg(long, value_name = "KEY=VALUE")]
        metadata: Vec<String>,
    },
    /// All vaults
    List {
        /// Also those that are archived
        #[arg(long)]
        archived: bool,
    },
    /// One vault, and the agents that use it
    #[command(visible_alias = "get")]
    Show {
        /// Its id
        vault: String,
    },
    /// Changes what is given
    Update {
        /// Its id
        vault: String,
        /// A name for people
        #[arg(long)]
        name: Option<String>,
        /// A label, in place of all that there are; may be given again
        #[arg(long, value_name = "KEY=VALUE")]
        metadata: Vec<String>,
    },
    /// Archives a vault with every credential in it, and removes their secrets
    Archive {
        /// Its id
        vault: String,
    },
    /// Removes a vault that no agent uses, with every credential in it
    Delete {
        /// Its id
        vault: String,
    },
    /// The credentials of a vault
    Credential {
        #[command(subcommand)]
        command: Box<credential::Command>,
    },
    /// Encrypts every secret of the server with a new key
    RotateKey,
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("NAME", "/display_name"),
    ("ARCHIVED", "/archived_at"),
    ("UPDATED", "/updated_at"),
];

pub(crate) async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    let out = Out::new(global.json);
    let show =
        |vault: Option<v1::Vault>| out.object(&out.message("Vault", &vault.unwrap_or_default()));
    match command {
        Command::Create { name, metadata } => {
            let request = v1::CreateVaultRequest {
                display_name: name,
                metadata: pairs::read("--metadata", &metadata)?,
                ..Default::default()
            };
            show(connect(global).await?.create_vault(request).await?.vault)
        }
        Command::List { archived } => {
            let vaults = connect(global).await?.all_vaults(archived).await?;
            let rows = vaults.iter().map(|vault| out.message("Vault", vault));
            out.table("vaults", rows.collect(), COLUMNS)
        }
        Command::Show { vault: vault_id } => {
            let request = v1::GetVaultRequest { vault_id };
            let found = connect(global).await?.get_vault(request).await?;
            out.object(&out.message("GetVaultResponse", &found))
        }
        Command::Update {
            vault: vault_id,
            name,
            metadata,
        } => {
            let metadata = pairs::read("--metadata", &metadata)?;
            let mut paths = Vec::new();
            if name.is_some() {
                paths.push("display_name".to_owned());
            }
            if !metadata.is_empty() {
                paths.push("metadata".to_owned());
            }
            if paths.is_empty() {
                return Err(Failure::usage(
                    "nothing to change: give at least one option",
                ));
            }
            let request = v1::UpdateVaultRequest {
                vault_id,
                display_name: name.unwrap_or_default(),
                metadata,
                update_mask: Some(FieldMask { paths }),
                idempotency_key: String::new(),
            };
            show(connect(global).await?.update_vault(request).await?.vault)
        }
        Command::Archive { vault: vault_id } => {
            let request = v1::ArchiveVaultRequest {
                vault_id,
                ..Default::default()
            };
            show(connect(global).await?.archive_vault(request).await?.vault)
        }
        Command::Delete { vault } => {
            let request = v1::DeleteVaultRequest {
                vault_id: vault.clone(),
                ..Default::default()
            };
            connect(global).await?.delete_vault(request).await?;
            let text = format!("{vault} is deleted");
            out.done(&json!({ "deleted": vault }), &text)
        }
        Command::Credential { command } => credential::run(global, &out, *command).await,
        Command::RotateKey => {
            let request = v1::RotateSecretKeyRequest::default();
            let done = connect(global).await?.rotate_secret_key(request).await?;
            let version = done.key_version;
            let text = format!("every secret is encrypted with key {version}");
            out.done(&json!({ "key_version": version }), &text)
        }
    }
}
