//! Sessions over a socket, of an engine that never starts.

use std::time::Duration;

use astrabox_client::{Client, ClientError, Code, WatchItem, WatchOptions, text_part, v1};
use astrabox_server::{RunningApp, Shutdown};

use crate::doubles::{config, connect, serve, start};

/// An environment, an agent and a session.
async fn session(client: &Client) -> v1::Session {
    let spec = v1::EnvironmentSpec {
        name: "env".into(),
        engine: "double".into(),
        ..Default::default()
    };
    let request = v1::CreateEnvironmentRequest {
        spec: Some(spec),
        ..Default::default()
    };
    client
        .create_environment(request)
        .await
        .expect("it is made");
    let spec = v1::AgentSpec {
        name: "a".into(),
        environment: "env".into(),
        model: "m".into(),
        ..Default::default()
    };
    let request = v1::CreateAgentRequest {
        spec: Some(spec),
        ..Default::default()
    };
    let agent = client
        .create_agent(request)
        .await
        .expect("it is made")
        .agent
        .expect("an agent");
    let request = v1::CreateSessionRequest {
        agent_id: agent.id,
        ..Default::default()
    };
    client
        .create_session(request)
        .await
        .expect("it is made")
        .session
        .expect("a session")
}

fn input(session: &v1::Session, text: &str, key: &str) -> v1::SendInputRequest {
    v1::SendInputRequest {
        session_id: session.id.clone(),
        content: vec![text_part(text)],
        idempotency_key: key.into(),
    }
}

fn reason<T>(result: Result<T, ClientError>) -> String {
    result.err().expect("it is refused").reason
}

#[tokio::test]
async fn a_repeated_call_has_one_effect_and_one_answer() {
    let (_folder, running) = serve().await;
    let client = connect(&running).await;
    let request = |name: &str| v1::CreateEnvironmentRequest {
        spec: Some(v1::EnvironmentSpec {
            name: name.into(),
            engine: "double".into(),
            ..Default::default()
        }),
        idempotency_key: "one".into(),
    };
    let first = client
        .create_environment(request("env"))
        .await
        .expect("it is made");
    let again = client
        .create_environment(request("env"))
        .await
        .expect("it is the same call");
    assert_eq!(first, again);
    let other = client.create_environment(request("other")).await;
    assert_eq!(reason(other), "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(client.all_environments().await.expect("it lists").len(), 1);
    running.shutdown().await;
}

#[tokio::test]
async fn the_state_and_the_owner_of_things_are_respected() {
    let (_folder, running) = serve().await;
    let client = connect(&running).await;
    let session = session(&client).await;
    let id = session.id.clone();

    let delete = v1::DeleteEnvironmentRequest {
        environment: "env".into(),
        ..Default::default()
    };
    assert_eq!(
        reason(client.delete_environment(delete).await),
        "ENVIRONMENT_IN_USE"
    );
    let respond = v1::RespondInteractionRequest {
        session_id: id.clone(),
        interaction_id: "int_0190a0b0c0d07000a0b0c0d0e0f0a0b0".into(),
        answer: Some(v1::InteractionAnswer {
            answer: Some(v1::interaction_answer::Answer::Decline(
                v1::Decline::default(),
            )),
        }),
        ..Default::default()
    };
    assert_eq!(
        reason(client.respond_interaction(respond).await),
        "INTERACTION_NOT_FOUND"
    );
    let nothing = v1::SendInputRequest {
        session_id: id.clone(),
        ..Default::default()
    };
    assert_eq!(reason(client.send_input(nothing).await), "INVALID_FIELD");
    let beyond = client
        .watch(
            &id,
            WatchOptions {
                after_seq: 1_000_000,
                ..WatchOptions::default()
            },
        )
        .await;
    assert_eq!(reason(beyond), "FOREIGN_CURSOR");

    // A token of one list is no token of another. Its start fails at once, so there are several events.
    let mut watch = client
        .watch(&id, WatchOptions::default())
        .await
        .expect("it begins");
    while watch.last_seq() < 2 {
        watch.next().await.expect("they come");
    }
    let events = v1::ListEventsRequest {
        session_id: id.clone(),
        page_size: 1,
        ..Default::default()
    };
    let page_token = client
        .list_events(events)
        .await
        .expect("it lists")
        .next_page_token;
    let agents = v1::ListAgentsRequest {
        page_token,
        ..Default::default()
    };
    assert_eq!(reason(client.list_agents(agents).await), "FOREIGN_CURSOR");

    client
        .delete_session(v1::DeleteSessionRequest {
            session_id: id,
            ..Default::default()
        })
        .await
        .expect("it is legal in every state");
    assert_eq!(
        reason(client.send_input(input(&session, "x", "")).await),
        "SESSION_NOT_FOUND"
    );
    running.shutdown().await;
}

/// Watches until the first durable event, then ends the server with the watch open.
async fn shut_down_under_a_watch(
    running: RunningApp,
    client: &Client,
    session: &v1::Session,
) -> (u64, Shutdown) {
    let options = WatchOptions {
        reconnect_for: Duration::ZERO,
        ..WatchOptions::default()
    };
    let mut watch = client.watch(&session.id, options).await.expect("it begins");
    let first = watch
        .next()
        .await
        .expect("it is there")
        .expect("it is not the end");
    assert!(matches!(first, WatchItem::Event(_)), "{first:?}");
    let (ended, shutdown) = tokio::join!(
        async {
            loop {
                if let Err(error) = watch.next().await {
                    break error;
                }
            }
        },
        running.shutdown()
    );
    assert_eq!(
        (ended.code, ended.reason.as_str()),
        (Code::Unavailable, "DRAINING")
    );
    (watch.last_seq(), shutdown)
}

#[tokio::test]
async fn watchers_are_sent_away_on_shutdown_and_find_everything_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = start(config(folder.path())).await.expect("it starts");
    let client = connect(&running).await;
    let session = session(&client).await;
    let (seen, shutdown) = shut_down_under_a_watch(running, &client, &session).await;
    assert_eq!(shutdown, Shutdown::Complete);

    let again = start(config(folder.path())).await.expect("it starts again");
    // The same client finds the new server at the same socket.
    let events = client
        .all_events(&session.id, 0)
        .await
        .expect("the journal is there");
    let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
    let expected: Vec<u64> = (1..=seqs.len() as u64).collect();
    assert_eq!(seqs, expected);
    assert!(seqs.len() as u64 >= seen);
    again.shutdown().await;
}
