//! `astrabox sandbox`.

use astrabox_client::v1;

use crate::args::Global;
use crate::connect::connect;
use crate::out::{Column, Out};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// All sandboxes, living or dead
    List,
    /// One sandbox, with diagnostics
    Show {
        /// Its id
        sandbox: String,
    },
    /// What a running sandbox enforces, measured
    Posture {
        /// Its id
        sandbox: String,
    },
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("STATE", "/state"),
    ("PROVIDER", "/provider"),
    ("SESSION", "/session_id"),
    ("IMAGE", "/image"),
    ("CREATED", "/created_at"),
];

pub(crate) async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    let out = Out::new(global.json);
    let client = connect(global).await?;
    match command {
        Command::List => {
            let sandboxes = client
                .list_sandboxes(v1::ListSandboxesRequest {})
                .await?
                .sandboxes;
            let rows = sandboxes
                .iter()
                .map(|sandbox| out.message("Sandbox", sandbox))
                .collect();
            out.table("sandboxes", rows, COLUMNS)
        }
        Command::Show { sandbox } => {
            let described = client
                .describe_sandbox(v1::DescribeSandboxRequest {
                    sandbox_id: sandbox,
                })
                .await?;
            out.object(&out.message("DescribeSandboxResponse", &described))
        }
        Command::Posture { sandbox } => {
            let request = v1::GetSecurityPostureRequest {
                sandbox_id: sandbox,
            };
            let posture = client
                .get_security_posture(request)
                .await?
                .posture
                .unwrap_or_default();
            out.object(&out.message("SecurityPosture", &posture))
        }
    }
}
