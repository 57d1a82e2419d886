//! `astrabox session`.

mod children;
mod files;
mod follow;
mod render;
mod respond;

use std::process::ExitCode;

use astrabox_client::{Client, v1};
use serde_json::json;

use crate::args::Global;
use crate::connect::connect;
use crate::out::{Column, Out};
use crate::pairs;

pub(crate) use files::read_stdin;
pub(crate) use render::{
    answer as answer_text, content_text, question as question_text, usage_text,
};
pub(crate) use respond::{approval, choices, refusal};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes a session of an agent
    Create {
        /// The agent's id
        agent: String,
        /// A version of it [default: the latest]
        #[arg(
            long = "at",
            value_name = "VERSION",
            default_value_t = 0,
            hide_default_value = true
        )]
        version: u32,
        /// A title for people
        #[arg(long, default_value = "", hide_default_value = true)]
        title: String,
        /// The permission mode, by native name [default: the agent's]
        #[arg(long, default_value = "", hide_default_value = true)]
        permission_mode: String,
        /// A label; may be given again
        #[arg(long, value_name = "KEY=VALUE")]
        metadata: Vec<String>,
    },
    /// Sessions, last changed first
    List {
        /// Only of this agent
        #[arg(long)]
        agent: Option<String>,
        /// Also those that are archived
        #[arg(long)]
        archived: bool,
    },
    /// One session
    Show {
        /// Its id
        session: String,
    },
    /// Shows what happened and then what happens, as `astrabox run` does, until it is deleted or Ctrl-C
    Watch(follow::WatchArgs),
    /// The journal up to now
    Events {
        /// Its id
        session: String,
        /// Events after this one
        #[arg(
            long,
            value_name = "SEQ",
            default_value_t = 0,
            hide_default_value = true
        )]
        after: u64,
        /// Only the history of this child run
        #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
        child_run: String,
    },
    /// Its child runs: sub-agents and background tasks
    Children {
        /// Its id
        session: String,
    },
    /// Stops a child run; the session goes on
    StopChild {
        /// Its id
        session: String,
        /// The child run's id, as children lists it
        child_run: String,
    },
    /// Stores an input; the engine gets it in its order
    Send {
        /// Its id
        session: String,
        /// The text; from standard input when it is -
        text: String,
        /// A picture file (png, jpeg, gif, webp); may be given again
        #[arg(long = "image", value_name = "FILE")]
        images: Vec<std::path::PathBuf>,
        /// Repeating the command with the same key sends it once
        #[arg(
            long,
            value_name = "KEY",
            default_value = "",
            hide_default_value = true
        )]
        key: String,
    },
    /// What the engine asked, and where that stands
    Interactions {
        /// Its id
        session: String,
        /// Also those that are closed
        #[arg(long)]
        closed: bool,
    },
    /// Answers what the engine asked
    Respond(respond::RespondArgs),
    /// Stops the running turn
    Interrupt {
        /// Its id
        session: String,
    },
    /// Sets the permission mode for the turns that follow
    SetMode {
        /// Its id
        session: String,
        /// The mode, by native name
        mode: String,
    },
    /// Ends the sandbox; conversation and workspace stay, the next input makes a new one
    Release {
        /// Its id
        session: String,
    },
    /// Tries again to start a session that needs recovery or is terminated
    Recover {
        /// Its id
        session: String,
    },
    /// Ends the sandbox and keeps the session readable
    Archive {
        /// Its id
        session: String,
    },
    /// Removes the session, its sandbox and its workspace
    Delete {
        /// Its id
        session: String,
    },
    /// What is in a directory of the session's sandbox
    Files {
        /// Its id
        session: String,
        /// An absolute path inside the sandbox
        #[arg(default_value = "/workspace")]
        path: String,
    },
    /// Writes a file of the session's sandbox to standard output, or to a file
    Cat {
        /// Its id
        session: String,
        /// An absolute path inside the sandbox
        path: String,
        /// Where to write it
        #[arg(long, short, value_name = "FILE")]
        output: Option<std::path::PathBuf>,
    },
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("STATE", "/state"),
    ("ENGINE", "/engine"),
    ("AGENT", "/agent_id"),
    ("TITLE", "/title"),
    ("SEQ", "/last_seq"),
    ("UPDATED", "/updated_at"),
];

const INTERACTION_COLUMNS: &[Column] = &[
    ("ID", "/interaction/id"),
    ("STATE", "/state"),
    ("ASKS", "/asks"),
    ("TURN", "/turn_id"),
];

pub(crate) async fn run(global: &Global, command: Command) -> anyhow::Result<ExitCode> {
    let out = Out::new(global.json);
    let client = connect(global).await?;
    match command {
        Command::Create {
            agent,
            version,
            title,
            permission_mode,
            metadata,
        } => {
            let request = v1::CreateSessionRequest {
                agent_id: agent,
                agent_version: version,
                title,
                permission_mode,
                metadata: pairs::read("--metadata", &metadata)?,
                ..Default::default()
            };
            show(&out, client.create_session(request).await?.session)?;
        }
        Command::List { agent, archived } => {
            let sessions = client.all_sessions(agent.as_deref(), archived).await?;
            let rows = sessions
                .iter()
                .map(|session| out.message("Session", session))
                .collect();
            out.table("sessions", rows, COLUMNS)?;
        }
        Command::Show {
            session: session_id,
        } => {
            show(
                &out,
                client
                    .get_session(v1::GetSessionRequest { session_id })
                    .await?
                    .session,
            )?;
        }
        Command::Watch(args) => return follow::watch(&client, &out, args).await,
        Command::Events {
            session,
            after,
            child_run,
        } => {
            let all = match child_run.as_str() {
                "" => client.all_events(&session, after).await?,
                run => client.child_run_events(&session, run, after).await?,
            };
            for event in all {
                follow::print_event(&out, &event)?;
            }
        }
        Command::Children { session } => children::list(&client, &out, session).await?,
        Command::StopChild { session, child_run } => {
            children::stop(&client, &out, session, child_run).await?
        }
        Command::Send {
            session,
            text,
            images,
            key,
        } => {
            let content = files::content(&text, &images).await?;
            let request = v1::SendInputRequest {
                session_id: session,
                content,
                idempotency_key: key,
            };
            let sent = client.send_input(request).await?;
            out.done(
                &json!({ "input_id": sent.input_id, "seq": sent.seq }),
                &sent.input_id,
            )?;
        }
        Command::Interactions { session, closed } => {
            interactions(&client, &out, session, closed).await?
        }
        Command::Respond(args) => respond::run(&client, &out, args).await?,
        Command::Files { session, path } => files::list(&client, &out, session, path).await?,
        Command::Cat {
            session,
            path,
            output,
        } => files::cat(&client, session, path, output).await?,
        Command::Interrupt { .. }
        | Command::SetMode { .. }
        | Command::Release { .. }
        | Command::Recover { .. }
        | Command::Archive { .. }
        | Command::Delete { .. } => change(&client, &out, command).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The commands that change the session as a whole.
async fn change(client: &Client, out: &Out, command: Command) -> anyhow::Result<()> {
    let key = String::new;
    match command {
        Command::Interrupt {
            session: session_id,
        } => {
            let request = v1::InterruptSessionRequest {
                session_id,
                idempotency_key: key(),
            };
            let turn = client.interrupt_session(request).await?.turn_id;
            let text = if turn.is_empty() {
                "no turn runs"
            } else {
                turn.as_str()
            };
            out.done(&json!({ "turn_id": turn }), text)
        }
        Command::SetMode {
            session: session_id,
            mode,
        } => {
            let request = v1::SetPermissionModeRequest {
                session_id,
                permission_mode: mode.clone(),
                idempotency_key: key(),
            };
            let previous = client
                .set_permission_mode(request)
                .await?
                .previous_permission_mode;
            out.done(
                &json!({ "permission_mode": mode, "previous_permission_mode": previous }),
                &format!("{mode}, before {previous}"),
            )
        }
        Command::Release {
            session: session_id,
        } => {
            let request = v1::ReleaseSandboxRequest {
                session_id,
                idempotency_key: key(),
            };
            let sandbox = client.release_sandbox(request).await?.sandbox_id;
            let text = if sandbox.is_empty() {
                "it had no sandbox".to_owned()
            } else {
                format!("{sandbox} is gone")
            };
            out.done(&json!({ "sandbox_id": sandbox }), &text)
        }
        Command::Recover {
            session: session_id,
        } => {
            let request = v1::RecoverSessionRequest {
                session_id,
                idempotency_key: key(),
            };
            show(out, client.recover_session(request).await?.session)
        }
        Command::Archive {
            session: session_id,
        } => {
            let request = v1::ArchiveSessionRequest {
                session_id,
                idempotency_key: key(),
            };
            show(out, client.archive_session(request).await?.session)
        }
        Command::Delete { session } => {
            let request = v1::DeleteSessionRequest {
                session_id: session.clone(),
                idempotency_key: key(),
            };
            client.delete_session(request).await?;
            out.done(
                &json!({ "deleted": session }),
                &format!("{session} is deleted"),
            )
        }
        _ => Ok(()),
    }
}

fn show(out: &Out, session: Option<v1::Session>) -> anyhow::Result<()> {
    out.object(&out.message("Session", &session.unwrap_or_default()))
}

async fn interactions(
    client: &Client,
    out: &Out,
    session_id: String,
    closed: bool,
) -> anyhow::Result<()> {
    let request = v1::ListInteractionsRequest {
        session_id,
        include_closed: closed,
    };
    let records = client.list_interactions(request).await?.interactions;
    let rows = records.iter().map(|record| {
        let mut row = out.message("InteractionRecord", record);
        if !out.is_json() {
            row["asks"] = json!(
                record
                    .interaction
                    .as_ref()
                    .map(render::question)
                    .unwrap_or_default()
            );
        }
        row
    });
    out.table("interactions", rows.collect(), INTERACTION_COLUMNS)
}
