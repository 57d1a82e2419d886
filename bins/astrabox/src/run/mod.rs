//! `astrabox run`: says something to an agent and shows what it does.

mod ask;
mod follow;
mod key;
mod open;
mod target;
mod terminal;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use astrabox_client::{WatchOptions, v1};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::again::Reconnect;
use crate::args::Global;
use crate::connect::connect;
use crate::environment::Network;
use crate::exit::{Failure, INTERRUPTED, TURN_FAILED};
use crate::out::Out;
use crate::session::read_stdin;
use crate::view::{Detail, Outcome, Screen};
use ask::Asking;
use follow::{Follow, Means};
use terminal::Terminal;

/// What `astrabox help run` says.
pub(crate) const ABOUT: &str = "\
Says something to an agent and shows what it does

The answer goes to standard output, everything else to standard error. With a prompt, or one piped into standard \
input, it ends with the turn; without, on a terminal, it reads lines, each a turn, until Ctrl-D.

When the agent asks, answer with a number or a name, with y or n, or in your own words where the question takes \
them. Ctrl-C stops the turn; again, or while nothing runs, it leaves. The session goes on without this command: \
`astrabox session watch` follows it, `astrabox run --session` goes on with it.";

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// What to say; from standard input when it is - or left out. On a terminal, left out, lines are read one by one
    prompt: Option<String>,
    /// Goes on with this session
    #[arg(
        long,
        conflicts_with_all = [
            "agent", "engine", "model", "environment", "system", "permission_mode", "title",
            "allow_hosts", "unrestricted", "permission_level",
        ]
    )]
    session: Option<String>,
    /// Begins a session of this agent
    #[arg(
        long,
        conflicts_with_all = [
            "engine", "model", "environment", "system", "allow_hosts", "unrestricted", "permission_level",
        ]
    )]
    agent: Option<String>,
    #[command(flatten)]
    new: NewAgent,
    /// The permission mode, by native name; `astrabox engine show` lists them
    #[arg(long)]
    permission_mode: Option<String>,
    /// A title for people
    #[arg(long)]
    title: Option<String>,
    /// Allows whatever the agent asks for
    #[arg(long, conflicts_with = "decline")]
    approve: bool,
    /// Declines whatever the agent asks for
    #[arg(long)]
    decline: bool,
    /// Also shows all of tool output and diffs, and changes of state
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,
    /// Shows the answer, and beside it only what somebody must know
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    reconnect: Reconnect,
    /// Deletes the session at the end, also when its turn failed
    #[arg(long)]
    rm: bool,
}

/// An agent and an environment that are made, or found again when they were made by the same options before.
#[derive(Debug, clap::Args)]
struct NewAgent {
    /// The engine's kind, as codex or claude_code [default: the only one that there is]
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
    /// Leaves a model key alone that stands in the environment (ANTHROPIC_API_KEY, ANTHROPIC_AUTH_TOKEN,
    /// OPENAI_API_KEY) and uses the server's own model endpoint
    #[arg(long)]
    no_model_key: bool,
    #[command(flatten)]
    network: Network,
}

pub(crate) async fn run(global: &Global, args: RunArgs) -> anyhow::Result<ExitCode> {
    let out = Out::new(global.json);
    let prompt = prompt(&args, &out).await?;
    let client = connect(global).await?;
    // From here on Ctrl-C is for the turn; before, it ends the program.
    let presses = signal(SignalKind::interrupt()).context("Ctrl-C cannot be listened for")?;
    let opened = open::open(global, &client, &args, prompt.is_none()).await?;
    let id = opened.session.id.clone();
    if out.is_json() {
        out.line(&json!({ "session": out.message("Session", &opened.session) }).to_string())?;
    }
    let options = WatchOptions {
        after_seq: opened.after_seq,
        deltas: true,
        reconnect_for: args.reconnect.within(),
    };
    let means = Means {
        watch: client.watch(&id, options).await?,
        client: client.clone(),
        session_id: id.clone(),
        screen: Screen::of_actor(out.clone(), detail(args.verbose, args.quiet)),
        asking: asking(&args, &out)?,
        presses,
        reconnect: args.reconnect.within(),
        running: opened.running,
    };
    let mut follow = Follow::new(means);
    let ended = converse(&mut follow, prompt, &opened.recap).await;
    if args.rm {
        client
            .delete_session(v1::DeleteSessionRequest {
                session_id: id,
                ..Default::default()
            })
            .await?;
    } else if !args.quiet {
        follow.screen.say(&format!(
            "session {id}; go on with: astrabox run --session {id}"
        ))?;
    }
    ended
}

async fn converse(
    follow: &mut Follow,
    prompt: Option<String>,
    recap: &[String],
) -> anyhow::Result<ExitCode> {
    for line in recap {
        follow.screen.say(line)?;
    }
    let Some(text) = prompt else {
        follow.talk().await?;
        return Ok(ExitCode::SUCCESS);
    };
    let outcome = follow.say(text).await?;
    follow.screen.outcome(&outcome)?;
    Ok(match outcome {
        Outcome::Completed => ExitCode::SUCCESS,
        Outcome::Interrupted => ExitCode::from(INTERRUPTED),
        // Told on the screen already, or as JSON.
        Outcome::Failed { .. } => ExitCode::from(TURN_FAILED),
    })
}

/// What to say; nothing when a person says it line by line.
async fn prompt(args: &RunArgs, out: &Out) -> anyhow::Result<Option<String>> {
    let terminal = std::io::stdin().is_terminal();
    let text = match args.prompt.as_deref() {
        Some("-") => read_stdin().await?,
        Some(text) => text.to_owned(),
        None if terminal && !out.is_json() => return Ok(None),
        None => read_stdin().await?,
    };
    if text.trim().is_empty() {
        return Err(Failure::usage(
            "there is nothing to say: give a prompt, or pipe one into standard input",
        ));
    }
    Ok(Some(text))
}

fn asking(args: &RunArgs, out: &Out) -> anyhow::Result<Asking> {
    if args.approve {
        return Ok(Asking::Approve);
    }
    if args.decline {
        return Ok(Asking::Decline);
    }
    // Who gave the prompt through standard input has no terminal left to answer from.
    if out.is_json() || args.prompt.as_deref() == Some("-") {
        return Ok(Asking::Elsewhere);
    }
    Ok(Terminal::open()?.map_or(Asking::Elsewhere, Asking::Person))
}

/// How much the options `--verbose` and `--quiet` want to see.
pub(crate) fn detail(verbose: bool, quiet: bool) -> Detail {
    match (verbose, quiet) {
        (_, true) => Detail::Quiet,
        (true, _) => Detail::Full,
        (false, false) => Detail::Normal,
    }
}
