//! `astrabox session watch`.

use std::process::ExitCode;

use astrabox_client::v1::event::Payload;
use astrabox_client::{Client, WatchItem, WatchOptions, v1};
use serde_json::json;

use super::render;
use crate::exit::INTERRUPTED;
use crate::out::Out;

/// Shows a session until it is deleted, until nothing runs any more if that is wanted, or until Ctrl-C.
pub(super) async fn watch(
    client: &Client,
    out: &Out,
    session: String,
    after_seq: u64,
    deltas: bool,
    until_idle: bool,
) -> anyhow::Result<ExitCode> {
    let mut watch = client
        .watch(
            &session,
            WatchOptions {
                after_seq,
                deltas,
                ..WatchOptions::default()
            },
        )
        .await?;
    let mut caught_up = false;
    loop {
        let item = tokio::select! {
            item = watch.next() => item?,
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::from(INTERRUPTED)),
        };
        let look = match item {
            None => return Ok(ExitCode::SUCCESS),
            Some(WatchItem::CaughtUp { .. }) => {
                caught_up = true;
                true
            }
            Some(WatchItem::Event(event)) => {
                print_event(out, &event)?;
                matches!(
                    event.payload,
                    Some(Payload::TurnEnded(_) | Payload::SessionStatus(_))
                )
            }
            Some(WatchItem::Delta(delta)) => {
                print_delta(out, &delta)?;
                false
            }
        };
        if until_idle && caught_up && look && is_idle(client, &session, watch.last_seq()).await? {
            return Ok(ExitCode::SUCCESS);
        }
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
async fn is_idle(client: &Client, session_id: &str, shown: u64) -> anyhow::Result<bool> {
    let request = v1::GetSessionRequest {
        session_id: session_id.to_owned(),
    };
    let session = client
        .get_session(request)
        .await?
        .session
        .unwrap_or_default();
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
    Ok(at_rest && session.last_seq <= shown)
}
