//! The journal, through the store that the server uses: an append counts when its commit is on disk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use astrabox_store::{NewEvent, NewSession, SessionCommit, Store};
use astrabox_types::{
    Agent, AgentId, AgentSpec, Environment, EnvironmentId, EnvironmentSpec, EventId, EventPayload,
    MessageKind, Networking, PermissionLevel, ResourceLimits, Session, SessionId, SessionKind,
    SessionState, Timestamp, VolumeId,
};
use tokio::task::JoinSet;

use crate::figure::{Effort, Found, Row, Statistic, Unit};

/// A text as long as a short answer.
const TEXT: usize = 200;

pub(crate) async fn appends(effort: Effort) -> Result<Found> {
    let folder = tempfile::Builder::new().prefix("ab-").tempdir()?;
    let store = Store::open(&folder.path().join("db")).await?;
    let mut found = Found::default();
    for (writers, goal) in [(1, None), (256, Some(10_000.0))] {
        let each = if writers == 1 { 400 } else { 200 };
        let (rate, times) = round(&store, writers, effort.times(each)).await?;
        let name = format!("appends of one event, {writers} sessions at once");
        let mut row = Row::value(name, Unit::PerSecond, rate);
        if let Some(goal) = goal {
            row = row.at_least(Statistic::Value, goal);
        }
        found.rows.push(row);
        found.rows.push(Row::times("one of them", &times));
    }
    store.close().await;
    found.notes.push(
        "each append is a commit of its own session's owner, acknowledged after the disk has it (WAL, synchronous=FULL); \
         those that wait at the same time share one"
            .to_owned(),
    );
    Ok(found)
}

/// So many sessions append at once, each one event after the other.
async fn round(store: &Store, writers: usize, each: usize) -> Result<(f64, Vec<Duration>)> {
    let agent = agent(store).await?;
    let mut owners = Vec::new();
    for _ in 0..writers {
        let new = session(&agent);
        let id = new.session.id;
        store.insert_session(None, new).await?;
        owners.push((id, store.claim(id).await?));
    }
    let text: Arc<str> = "x".repeat(TEXT).into();
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for (id, epoch) in owners {
        let (store, text) = (store.clone(), Arc::clone(&text));
        tasks.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..each {
                let begin = Instant::now();
                store.commit(id, step(epoch, &text)).await?;
                times.push(begin.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        times.extend(ended.context("a writer failed")??);
    }
    let rate = times.len() as f64 / start.elapsed().as_secs_f64();
    Ok((rate, times))
}

fn step(epoch: u64, text: &str) -> SessionCommit {
    let payload = EventPayload::MessageCompleted {
        kind: MessageKind::Text,
        text: text.to_owned(),
        truncated: false,
    };
    let event = NewEvent {
        id: EventId::new(),
        turn_id: None,
        child_run: None,
        payload,
        native: None,
    };
    SessionCommit {
        epoch,
        events: vec![event],
        ..SessionCommit::default()
    }
}

async fn agent(store: &Store) -> Result<Agent> {
    let now = Timestamp::now();
    let environment = Environment {
        id: EnvironmentId::new(),
        spec: EnvironmentSpec {
            name: format!("e{}", EnvironmentId::new().uuid().simple()),
            description: String::new(),
            engine: "fake".to_owned(),
            sandbox: "local".to_owned(),
            image: None,
            model_provider: "direct".to_owned(),
            networking: Networking::Unrestricted,
            permission_level: PermissionLevel::Default,
            limits: ResourceLimits::default(),
            program: None,
        },
        version: 1,
        created_at: now,
        updated_at: now,
    };
    let environment_id = environment.id;
    store.insert_environment(None, environment).await?;
    let agent = Agent {
        id: AgentId::new(),
        version: 1,
        spec: AgentSpec {
            name: "bench".to_owned(),
            description: String::new(),
            environment_id,
            model: "scripted".to_owned(),
            system: String::new(),
            engine_options: Default::default(),
            permission_mode: None,
            repository: None,
            mcp_servers: Vec::new(),
            skills: Vec::new(),
            approval_rules: Vec::new(),
            vault_ids: Vec::new(),
            metadata: Default::default(),
        },
        archived: false,
        created_at: now,
        updated_at: now,
    };
    Ok(store.insert_agent(None, agent).await?)
}

fn session(agent: &Agent) -> NewSession {
    let now = Timestamp::now();
    NewSession {
        session: Session {
            id: SessionId::new(),
            agent_id: agent.id,
            agent_version: agent.version,
            kind: SessionKind::AgentChat,
            title: String::new(),
            state: SessionState::Creating,
            state_reason: None,
            archived: false,
            permission_mode: None,
            current_turn: None,
            last_seq: 0,
            metadata: Default::default(),
            created_by: "bench".to_owned(),
            created_at: now,
            updated_at: now,
        },
        volume_id: VolumeId::new(),
        input: None,
    }
}
