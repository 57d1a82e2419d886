//! Apps in somebody else's process, with the real Codex.

use std::time::Duration;

use anyhow::{Context as _, Result};
use astrabox_client::{Client, Endpoint, WatchItem, WatchOptions, text_part, v1};
use astrabox_testkit::model::ScriptedModel;
use v1::event::Payload;

const PATIENCE: Duration = Duration::from_secs(90);

/// Runs one turn and gives what the agent said.
async fn turn(client: &Client, prompt: &str) -> Result<String> {
    let environment = v1::EnvironmentSpec {
        name: "codex".into(),
        engine: "codex".into(),
        ..Default::default()
    };
    client
        .create_environment(v1::CreateEnvironmentRequest {
            spec: Some(environment),
            ..Default::default()
        })
        .await?;
    let spec = v1::AgentSpec {
        name: "worker".into(),
        environment: "codex".into(),
        model: "scripted".into(),
        permission_mode: "never".into(),
        ..Default::default()
    };
    let agent = client
        .create_agent(v1::CreateAgentRequest {
            spec: Some(spec),
            ..Default::default()
        })
        .await?;
    let request = v1::CreateSessionRequest {
        agent_id: agent.agent.context("an agent")?.id,
        content: vec![text_part(prompt)],
        ..Default::default()
    };
    let session = client
        .create_session(request)
        .await?
        .session
        .context("a session")?;
    let mut watch = client.watch(&session.id, WatchOptions::default()).await?;
    let mut text = String::new();
    loop {
        let item = tokio::time::timeout(PATIENCE, watch.next())
            .await??
            .context("the watch goes on")?;
        let WatchItem::Event(event) = item else {
            continue;
        };
        match event.payload {
            Some(Payload::MessageCompleted(message)) => text.push_str(&message.text),
            Some(Payload::TurnEnded(ended)) => {
                anyhow::ensure!(ended.outcome() == v1::TurnOutcome::Completed, "{ended:?}");
                break;
            }
            _ => {}
        }
    }
    client
        .delete_session(v1::DeleteSessionRequest {
            session_id: session.id,
            ..Default::default()
        })
        .await?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_apps_in_one_process_run_a_turn_each() -> Result<()> {
    let model = ScriptedModel::builder().start().await?;
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
    let first = embedder::start(folders[0].path(), model.address()).await?;
    let second = embedder::start(folders[1].path(), model.address()).await?;
    let clients = [
        Client::connect(Endpoint::unix(first.socket().context("a socket")?)).await?,
        Client::connect(Endpoint::unix(second.socket().context("a socket")?)).await?,
    ];
    let (one, two) = tokio::join!(turn(&clients[0], "SAY: one"), turn(&clients[1], "SAY: two"));
    assert_eq!((one?.as_str(), two?.as_str()), ("one", "two"));
    for client in &clients {
        assert_eq!(
            client.all_sessions(None, true).await?.len(),
            0,
            "each App has its own sessions"
        );
    }
    first.shutdown().await;
    second.shutdown().await;
    model.shutdown().await;
    Ok(())
}
