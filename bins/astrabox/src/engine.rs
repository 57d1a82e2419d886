//! `astrabox engine`.

use astrabox_client::v1;

use crate::args::Global;
use crate::connect::connect;
use crate::out::{Column, Out};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// All engines
    List,
    /// One engine, with its permission modes and options
    Show {
        /// Its kind, as codex
        kind: String,
    },
}

const COLUMNS: &[Column] = &[
    ("KIND", "/kind"),
    ("NAME", "/display_name"),
    ("VERSION", "/program_version"),
    ("IMAGE", "/image/name"),
    ("BUILT", "/image/built"),
];

pub(crate) async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    let out = Out::new(global.json);
    let client = connect(global).await?;
    match command {
        Command::List => {
            let engines = client
                .list_engines(v1::ListEnginesRequest {})
                .await?
                .engines;
            let rows = engines
                .iter()
                .map(|engine| out.message("Engine", engine))
                .collect();
            out.table("engines", rows, COLUMNS)
        }
        Command::Show { kind } => {
            let engine = client
                .get_engine(v1::GetEngineRequest { kind })
                .await?
                .engine
                .unwrap_or_default();
            out.object(&out.message("Engine", &engine))
        }
    }
}
