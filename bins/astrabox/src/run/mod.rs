//! `astrabox run`: says something to an agent and shows what it does.

mod ask;
mod follow;
mod screen;
mod target;

use std::process::ExitCode;

use anyhow::Context as _;
use astrabox_client::{Client, WatchOptions, text_part, v1};
use serde_json::json;

use crate::args::Global;
use crate::connect::connect;
use crate::environment::Network;
use crate::exit::{Failure, INTERRUPTED, TURN_FAILED};
use crate::out::{Out, note};
use crate::session::read_stdin;
use ask::{Asking, Terminal};
use follow::{Follow, Outcome};
use screen::Screen;

/// Says something to an agent and shows what it does
///
/// The answer goes to standard output, everything else to standard error. Ctrl-C stops the turn, a second one
/// leaves; the session goes on without this command.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What to say; from standard input when it is - or left out. On a terminal, left out, lines are read one by one
    prompt: Option<String>,
    /// Goes on with this session
    #[arg(long, conflicts_with_all = ["agent", "engine", "model", "environment", "system", "permission_mode", "title"])]
    session: Option<String>,
    /// Begins a session of this agent
    #[arg(long, conflicts_with_all = ["engine", "model", "environment", "system"])]
    agent: Option<String>,
    #[command(flatten)]
    new: NewAgent,
    /// The permission mode, by native name
    #[arg(long)]
    permission_mode: Option<String>,
    /// A title for people
    #[arg(long)]
    title: Option<String>,
    /// Allows whatever the engine asks for
    #[arg(long, conflicts_with = "decline")]
    approve: bool,
    /// Declines whatever the engine asks for
    #[arg(long)]
    decline: bool,
    /// Also shows reasoning, tool output and changes of state
    #[arg(long, short)]
    verbose: bool,
    /// Deletes the session at the end
    #[arg(long)]
    rm: bool,
}

/// An agent and an environment that are made, or found again when they were made by the same options before.
#[derive(Debug, clap::Args)]
struct NewAgent {
    /// The engine's kind [default: the only one that there is]
    #[arg(long)]
    engine: Option<String>,
    /// The model, by the name that the model endpoint knows [default: model.<provider>.default_model]
    #[arg(long)]
    model: Option<String>,
    /// Instructions
    #[arg(long)]
    system: Option<String>,
    /// The environment, by id or name [default: one that is made from these options]
    #[arg(long, conflicts_with_all = ["engine", "allow_hosts", "unrestricted", "permission_level"])]
    environment: Option<String>,
    #[command(flatten)]
    network: Network,
}

pub(crate) async fn run(global: &Global, args: RunArgs) -> anyhow::Result<ExitCode> {
    let out = Out::new(global.json);
    let terminal = Terminal::open();
    let prompt = match args.prompt.as_deref() {
        Some("-") => Some(read_stdin().await?),
        Some(text) => Some(text.to_owned()),
        None if terminal.is_some() && !out.is_json() => None,
        None => Some(read_stdin().await?),
    };
    if prompt.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return Err(Failure::usage("there is nothing to say"));
    }
    let client = connect(global).await?;
    let conversation = open(global, &client, &args).await?;
    out_session(&out, &conversation)?;
    let asking = match (args.approve, args.decline, terminal) {
        (true, _, _) => Asking::Approve,
        (_, true, _) => Asking::Decline,
        (_, _, Some(terminal)) if !out.is_json() => Asking::Person(terminal),
        _ => Asking::Elsewhere,
    };
    let id = conversation.id.clone();
    let options = WatchOptions {
        after_seq: conversation.last_seq,
        ..WatchOptions::default()
    };
    let watch = client.watch(&id, options).await?;
    let screen = Screen::new(out.clone(), args.verbose);
    let mut follow = Follow::new(client.clone(), id.clone(), watch, screen, asking);
    follow.take_open_interactions().await?;
    let ended = match prompt {
        Some(text) => say(&mut follow, text).await,
        None => talk(&mut follow).await,
    };
    if args.rm {
        client
            .delete_session(v1::DeleteSessionRequest {
                session_id: id,
                ..Default::default()
            })
            .await?;
    } else if !out.is_json() {
        note(&format!(
            "session {id}; go on with: astrabox run --session {id}"
        ));
    }
    ended
}

/// The session that the options name, or a new one.
async fn open(global: &Global, client: &Client, args: &RunArgs) -> anyhow::Result<v1::Session> {
    if let Some(session_id) = &args.session {
        let request = v1::GetSessionRequest {
            session_id: session_id.clone(),
        };
        return Ok(client
            .get_session(request)
            .await?
            .session
            .unwrap_or_default());
    }
    let agent_id = match &args.agent {
        Some(agent) => agent.clone(),
        None => target::agent(global, client, &args.new).await?,
    };
    let request = v1::CreateSessionRequest {
        agent_id,
        title: args.title.clone().unwrap_or_default(),
        permission_mode: args.permission_mode.clone().unwrap_or_default(),
        ..Default::default()
    };
    let mut session = client
        .create_session(request)
        .await?
        .session
        .unwrap_or_default();
    // Everything of a new session is shown.
    session.last_seq = 0;
    Ok(session)
}

fn out_session(out: &Out, session: &v1::Session) -> anyhow::Result<()> {
    if !out.is_json() {
        return Ok(());
    }
    out.line(&json!({ "session": out.message("Session", session) }).to_string())
}

/// One input and its turn.
async fn say(follow: &mut Follow, text: String) -> anyhow::Result<ExitCode> {
    let outcome = turn(follow, text).await?;
    follow.screen.outcome(&outcome)?;
    match outcome {
        Outcome::Completed => Ok(ExitCode::SUCCESS),
        Outcome::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
        // Told on the screen already, or as JSON.
        Outcome::Failed { .. } => Ok(ExitCode::from(TURN_FAILED)),
    }
}

/// Lines from the terminal, each a turn, until its end.
async fn talk(follow: &mut Follow) -> anyhow::Result<ExitCode> {
    while let Some(line) = follow.next_line("> ").await? {
        if line.trim().is_empty() {
            continue;
        }
        let outcome = turn(follow, line).await?;
        follow.screen.outcome(&outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn turn(follow: &mut Follow, text: String) -> anyhow::Result<Outcome> {
    let request = v1::SendInputRequest {
        session_id: follow.session_id.clone(),
        content: vec![text_part(text)],
        idempotency_key: String::new(),
    };
    let sent = follow
        .client
        .send_input(request)
        .await
        .context("the input was not taken")?;
    follow.until_answered(&sent.input_id).await
}
