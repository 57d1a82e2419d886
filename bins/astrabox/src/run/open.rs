//! The session of a run: a new one, or one that goes on.

use astrabox_client::v1::event::Payload;
use astrabox_client::{Client, v1};

use super::{RunArgs, target};
use crate::args::Global;
use crate::out::{enum_name, one_line};
use crate::session::content_text;

/// How many events back the last exchange is looked for.
const LOOK_BACK: u64 = 500;
/// Characters of what was said before.
const RECAP: usize = 300;

/// A session, and where to begin with it.
pub(super) struct Opened {
    pub(super) session: v1::Session,
    /// Events after this one are shown.
    pub(super) after_seq: u64,
    /// The turn that runs.
    pub(super) running: Option<String>,
    /// What was said last, as lines.
    pub(super) recap: Vec<String>,
}

/// The session that the options name, or a new one. `interactive` is for a person who wants to know where it stands.
pub(super) async fn open(
    global: &Global,
    client: &Client,
    args: &RunArgs,
    interactive: bool,
) -> anyhow::Result<Opened> {
    match &args.session {
        Some(id) => go_on(client, id, interactive).await,
        None => begin(global, client, args).await,
    }
}

async fn begin(global: &Global, client: &Client, args: &RunArgs) -> anyhow::Result<Opened> {
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
    let session = client.create_session(request).await?.session;
    Ok(Opened {
        session: session.unwrap_or_default(),
        // Everything of a new session is shown.
        after_seq: 0,
        running: None,
        recap: Vec::new(),
    })
}

async fn go_on(client: &Client, id: &str, interactive: bool) -> anyhow::Result<Opened> {
    let request = v1::GetSessionRequest {
        session_id: id.to_owned(),
    };
    let session = client
        .get_session(request)
        .await?
        .session
        .unwrap_or_default();
    let mut opened = Opened {
        after_seq: session.last_seq,
        session,
        running: None,
        recap: Vec::new(),
    };
    if !interactive {
        return Ok(opened);
    }
    let from = opened.session.last_seq.saturating_sub(LOOK_BACK);
    let events = client.all_events(id, from).await?;
    let before = match running(&events) {
        // A turn that runs is shown from its begin.
        Some(at) => {
            opened.running = Some(events[at].turn_id.clone());
            opened.after_seq = events[at].seq.saturating_sub(1);
            &events[..at]
        }
        None => {
            opened.after_seq = events.last().map_or(opened.after_seq, |event| event.seq);
            &events[..]
        }
    };
    opened.recap = recap(&opened.session, before);
    Ok(opened)
}

/// Where the turn began that has not ended.
fn running(events: &[v1::Event]) -> Option<usize> {
    let last = |wanted: fn(&Payload) -> bool| {
        events
            .iter()
            .rposition(|event| event.payload.as_ref().is_some_and(wanted))
    };
    let started = last(|payload| matches!(payload, Payload::TurnStarted(_)))?;
    let ended = last(|payload| matches!(payload, Payload::TurnEnded(_)));
    (ended < Some(started)).then_some(started)
}

/// Where the session stands: its state, what was said to it last and what it answered.
fn recap(session: &v1::Session, events: &[v1::Event]) -> Vec<String> {
    let state = enum_name(session.state().as_str_name()).unwrap_or_default();
    let title = match session.title.as_str() {
        "" => String::new(),
        title => format!(", {title}"),
    };
    let mut lines = vec![format!("session {} ({state}{title})", session.id)];
    let mut said = None;
    let mut answered = None;
    for event in events.iter().filter(|event| event.child_run_id.is_empty()) {
        match &event.payload {
            Some(Payload::InputAccepted(input)) => {
                (said, answered) = (Some(content_text(&input.content)), None);
            }
            Some(Payload::MessageCompleted(message)) if message.kind() == v1::MessageKind::Text => {
                answered = Some(message.text.clone());
            }
            _ => {}
        }
    }
    let mut push = |who: &str, text: Option<String>| {
        if let Some(text) = text {
            lines.push(format!("{who}: {}", one_line(&text, RECAP)));
        }
    };
    push("input", said);
    push("agent", answered);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(payloads: Vec<Payload>) -> Vec<v1::Event> {
        let event = |(at, payload)| v1::Event {
            seq: at as u64 + 1,
            turn_id: "turn_1".into(),
            payload: Some(payload),
            ..Default::default()
        };
        payloads.into_iter().enumerate().map(event).collect()
    }

    fn started() -> Payload {
        Payload::TurnStarted(v1::TurnStarted::default())
    }

    fn ended() -> Payload {
        Payload::TurnEnded(v1::TurnEnded::default())
    }

    #[test]
    fn a_turn_runs_when_its_end_is_not_there() {
        assert_eq!(running(&journal(vec![])), None);
        assert_eq!(running(&journal(vec![started(), ended()])), None);
        assert_eq!(
            running(&journal(vec![started(), ended(), started()])),
            Some(2)
        );
        assert_eq!(running(&journal(vec![started()])), Some(0));
        assert_eq!(running(&journal(vec![ended()])), None);
    }

    #[test]
    fn a_recap_has_the_last_exchange() {
        let said = |text: &str| {
            Payload::InputAccepted(v1::InputAccepted {
                input_id: String::new(),
                content: vec![astrabox_client::text_part(text)],
            })
        };
        let answer = |text: &str| {
            Payload::MessageCompleted(v1::MessageCompleted {
                kind: v1::MessageKind::Text.into(),
                text: text.to_owned(),
                truncated: false,
            })
        };
        let session = v1::Session {
            id: "sesn_1".into(),
            state: v1::SessionState::Ready.into(),
            ..Default::default()
        };
        let events = journal(vec![
            said("one"),
            answer("1"),
            said("two"),
            answer("2"),
            answer("3"),
        ]);
        assert_eq!(
            recap(&session, &events),
            ["session sesn_1 (ready)", "input: two", "agent: 3"]
        );
        assert_eq!(recap(&session, &events[..3])[1..], ["input: two"]);
    }
}
