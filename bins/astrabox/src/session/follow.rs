//! `astrabox session watch`.

use std::process::ExitCode;

use astrabox_client::v1::event::Payload;
use astrabox_client::{Client, Link, Watch, WatchItem, WatchOptions, v1};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::render;
use crate::again::{Reconnect, again};
use crate::exit::INTERRUPTED;
use crate::out::{Out, note};
use crate::view::Screen;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct WatchArgs {
    /// Its id
    session: String,
    /// Begins after this event [default: at the first]
    #[arg(
        long,
        value_name = "SEQ",
        default_value_t = 0,
        hide_default_value = true
    )]
    after: u64,
    /// Shows each event as one line, as `session events` does
    #[arg(long, conflicts_with = "verbose")]
    lines: bool,
    /// With --lines or --json: also pieces of messages that are not complete
    #[arg(long)]
    deltas: bool,
    /// Also shows all of tool output and diffs, and changes of state
    #[arg(long, short)]
    verbose: bool,
    /// Ends when everything up to now was shown and no turn runs
    #[arg(long)]
    until_idle: bool,
    #[command(flatten)]
    reconnect: Reconnect,
}

/// How what happens is shown.
enum Show {
    /// As `astrabox run` shows it.
    Screen(Screen),
    /// One line an event, or JSON.
    Lines,
}

/// Shows a session until it is deleted, until nothing runs any more if that is wanted, or until Ctrl-C.
pub(super) async fn watch(client: &Client, out: &Out, args: WatchArgs) -> anyhow::Result<ExitCode> {
    let lines = args.lines || out.is_json();
    let options = WatchOptions {
        after_seq: args.after,
        deltas: args.deltas || !lines,
        reconnect_for: args.reconnect.within(),
    };
    let mut presses = signal(SignalKind::interrupt())?;
    let mut watch = client.watch(&args.session, options).await?;
    let mut link = watch.link();
    let mut show = if lines {
        Show::Lines
    } else {
        Show::Screen(Screen::of_watcher(
            out.clone(),
            crate::run::detail(args.verbose, false),
        ))
    };
    let mut caught_up = false;
    loop {
        let item = tokio::select! {
            biased;
            _ = presses.recv() => return Ok(ExitCode::from(INTERRUPTED)),
            Ok(()) = link.changed() => {
                let link = *link.borrow_and_update();
                tell_link(link, &args, out);
                continue;
            }
            item = watch.next() => item?,
        };
        let look = match &item {
            None => return Ok(ExitCode::SUCCESS),
            Some(WatchItem::CaughtUp { .. }) => {
                caught_up = true;
                true
            }
            Some(WatchItem::Event(event)) => matches!(
                event.payload,
                Some(Payload::TurnEnded(_) | Payload::SessionStatus(_))
            ),
            Some(WatchItem::Delta(_)) => false,
        };
        if let Some(item) = item {
            show.item(out, &item)?;
        }
        if args.until_idle && caught_up && look && is_idle(client, &args, &watch).await? {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

impl Show {
    fn item(&mut self, out: &Out, item: &WatchItem) -> anyhow::Result<()> {
        match (self, item) {
            (Self::Screen(screen), WatchItem::Event(event)) => screen.event(event),
            (Self::Screen(screen), WatchItem::Delta(delta)) => screen.delta(delta),
            (Self::Lines, WatchItem::Event(event)) => print_event(out, event),
            (Self::Lines, WatchItem::Delta(delta)) => print_delta(out, delta),
            (_, WatchItem::CaughtUp { .. }) => Ok(()),
        }
    }
}

fn tell_link(link: Link, args: &WatchArgs, out: &Out) {
    if out.is_json() {
        return;
    }
    match link {
        Link::Up => note("the server is back"),
        Link::Down => note(&format!(
            "the server is away; trying again for {} s",
            args.reconnect.within().as_secs()
        )),
    }
}

/// One event, as JSON or as a line.
pub(super) fn print_event(out: &Out, event: &v1::Event) -> anyhow::Result<()> {
    if out.is_json() {
        return out.line(&json!({ "event": out.message("Event", event) }).to_string());
    }
    out.line(&render::event(event))
}

fn print_delta(out: &Out, delta: &v1::Delta) -> anyhow::Result<()> {
    if out.is_json() {
        return out.line(&json!({ "delta": out.message("Delta", delta) }).to_string());
    }
    out.line(&render::delta(delta))
}

/// Whether nothing runs and everything was shown.
async fn is_idle(client: &Client, args: &WatchArgs, watch: &Watch) -> anyhow::Result<bool> {
    let request = v1::GetSessionRequest {
        session_id: args.session.clone(),
    };
    let session = again(args.reconnect.within(), || {
        client.get_session(request.clone())
    });
    let session = session.await?.session.unwrap_or_default();
    let at_rest = match session.state() {
        v1::SessionState::Ready
        | v1::SessionState::Hibernated
        | v1::SessionState::RecoveryRequired
        | v1::SessionState::Terminated
        | v1::SessionState::Deleted => true,
        v1::SessionState::Unspecified
        | v1::SessionState::Creating
        | v1::SessionState::Busy
        | v1::SessionState::Interrupting
        | v1::SessionState::WaitingInput
        | v1::SessionState::BackgroundRunning => false,
    };
    Ok(at_rest && session.last_seq <= watch.last_seq())
}
