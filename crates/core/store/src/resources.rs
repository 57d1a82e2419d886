//! Writing environments, agents and new sessions.

use astrabox_types::{
    Agent, AgentId, AgentSpec, ContentPart, Environment, EnvironmentId, EnvironmentSpec, EventId,
    EventPayload, InputId, Session, VolumeId,
};
use sqlx::{Row, SqliteConnection};

use crate::row::{self, json, now, text};
use crate::vaults::set_agent_vaults;
use crate::{Error, InputState, Key, Result, Store};

/// Which version of an environment is to be overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentWrite {
    /// The environment.
    pub id: EnvironmentId,
    /// The stored version that the change was made from.
    pub version: u32,
    /// What it shall say.
    pub spec: EnvironmentSpec,
}

/// A session to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The session, in state CREATING with seq 0.
    pub session: Session,
    /// Its volume.
    pub volume_id: VolumeId,
    /// Its first input.
    pub input: Option<(InputId, Vec<ContentPart>)>,
}

impl Store {
    /// Makes an environment.
    ///
    /// # Errors
    /// `Exists` when its name is taken, `KeyReused`.
    pub async fn insert_environment(
        &self,
        key: Option<Key>,
        environment: Environment,
    ) -> Result<Environment> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                let spec = json("environment", &environment.spec)?;
                sqlx::query(
                    "INSERT INTO environments (id, name, spec, version, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)",
                )
                .bind(environment.id.to_string())
                .bind(&environment.spec.name)
                .bind(spec)
                .bind(environment.version)
                .bind(text(environment.created_at))
                .bind(text(environment.updated_at))
                .execute(connection)
                .await
                .map_err(Error::or_exists)?;
                Ok(environment)
            })
        })
        .await
    }

    /// Changes an environment.
    ///
    /// # Errors
    /// `NotFound`, `VersionConflict`, `KeyReused`.
    pub async fn update_environment(
        &self,
        key: Option<Key>,
        write: EnvironmentWrite,
    ) -> Result<Environment> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                let spec = json("environment", &write.spec)?;
                let done = sqlx::query(
                    "UPDATE environments SET spec = ?, version = version + 1, updated_at = ? WHERE id = ? AND version = ?",
                )
                .bind(spec)
                .bind(now())
                .bind(write.id.to_string())
                .bind(write.version)
                .execute(&mut *connection)
                .await?;
                let stored = sqlx::query("SELECT * FROM environments WHERE id = ?")
                    .bind(write.id.to_string())
                    .fetch_optional(connection)
                    .await?
                    .ok_or(Error::NotFound)?;
                let stored = row::environment(&stored)?;
                if done.rows_affected() == 0 {
                    return Err(Error::VersionConflict { stored: stored.version });
                }
                Ok(stored)
            })
        })
        .await
    }

    /// Removes an environment.
    ///
    /// # Errors
    /// `NotFound`, `InUse`, `KeyReused`.
    pub async fn delete_environment(&self, key: Option<Key>, id: EnvironmentId) -> Result<()> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                let used = sqlx::query("SELECT 1 FROM agents WHERE environment_id = ? LIMIT 1")
                    .bind(id.to_string())
                    .fetch_optional(&mut *connection)
                    .await?;
                if used.is_some() {
                    return Err(Error::InUse);
                }
                let done = sqlx::query("DELETE FROM environments WHERE id = ?")
                    .bind(id.to_string())
                    .execute(connection)
                    .await?;
                if done.rows_affected() == 0 {
                    Err(Error::NotFound)
                } else {
                    Ok(())
                }
            })
        })
        .await
    }

    /// Makes an agent, version 1.
    ///
    /// # Errors
    /// `NoVault`, `KeyReused`.
    pub async fn insert_agent(&self, key: Option<Key>, agent: Agent) -> Result<Agent> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO agents (id, version, environment_id, archived, created_at) VALUES (?, ?, ?, 0, ?)",
                )
                .bind(agent.id.to_string())
                .bind(agent.version)
                .bind(agent.spec.environment_id.to_string())
                .bind(text(agent.created_at))
                .execute(&mut *connection)
                .await?;
                set_agent_vaults(connection, agent.id, &agent.spec.vault_ids).await?;
                insert_version(connection, &agent).await?;
                Ok(agent)
            })
        })
        .await
    }

    /// Makes a new version of an agent out of the version `from`.
    ///
    /// # Errors
    /// `NotFound`, `VersionConflict`, `NoVault`, `KeyReused`.
    pub async fn update_agent(
        &self,
        key: Option<Key>,
        id: AgentId,
        from: u32,
        spec: AgentSpec,
    ) -> Result<Agent> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                let mut agent = latest_agent(connection, id).await?;
                if agent.version != from {
                    return Err(Error::VersionConflict {
                        stored: agent.version,
                    });
                }
                if agent.spec == spec {
                    return Ok(agent);
                }
                agent.version += 1;
                agent.spec = spec;
                agent.updated_at = astrabox_types::Timestamp::now();
                sqlx::query("UPDATE agents SET version = ?, environment_id = ? WHERE id = ?")
                    .bind(agent.version)
                    .bind(agent.spec.environment_id.to_string())
                    .bind(id.to_string())
                    .execute(&mut *connection)
                    .await?;
                set_agent_vaults(connection, id, &agent.spec.vault_ids).await?;
                insert_version(connection, &agent).await?;
                Ok(agent)
            })
        })
        .await
    }

    /// Takes no new sessions of this agent.
    ///
    /// # Errors
    /// `NotFound`, `KeyReused`.
    pub async fn archive_agent(&self, key: Option<Key>, id: AgentId) -> Result<Agent> {
        self.keyed(key, move |connection| {
            Box::pin(async move {
                sqlx::query("UPDATE agents SET archived = 1 WHERE id = ?")
                    .bind(id.to_string())
                    .execute(&mut *connection)
                    .await?;
                latest_agent(connection, id).await
            })
        })
        .await
    }

    /// Makes a session and its first input, with their events. The answer repeats the ids of the first call.
    ///
    /// # Errors
    /// `KeyReused`.
    pub async fn insert_session(
        &self,
        key: Option<Key>,
        new: NewSession,
    ) -> Result<(String, Option<String>)> {
        self.keyed(key, move |connection| {
            Box::pin(async move { insert_session(connection, &new).await })
        })
        .await
    }
}

async fn insert_version(connection: &mut SqliteConnection, agent: &Agent) -> Result<()> {
    sqlx::query(
        "INSERT INTO agent_versions (agent_id, version, spec, created_at) VALUES (?, ?, ?, ?)",
    )
    .bind(agent.id.to_string())
    .bind(agent.version)
    .bind(json("agent", &agent.spec)?)
    .bind(text(agent.updated_at))
    .execute(connection)
    .await?;
    Ok(())
}

pub(crate) const AGENT_COLUMNS: &str = "SELECT a.id, v.version, v.spec, a.archived, a.created_at, \
     v.created_at AS updated_at FROM agents a JOIN agent_versions v ON v.agent_id = a.id";

async fn latest_agent(connection: &mut SqliteConnection, id: AgentId) -> Result<Agent> {
    let row = sqlx::query(
        "SELECT a.id, v.version, v.spec, a.archived, a.created_at, v.created_at AS updated_at \
         FROM agents a JOIN agent_versions v ON v.agent_id = a.id AND v.version = a.version WHERE a.id = ?",
    )
    .bind(id.to_string())
    .fetch_optional(connection)
    .await?
    .ok_or(Error::NotFound)?;
    row::agent(&row)
}

async fn insert_session(
    connection: &mut SqliteConnection,
    new: &NewSession,
) -> Result<(String, Option<String>)> {
    let session = &new.session;
    sqlx::query(
        "INSERT INTO sessions (id, agent_id, agent_version, kind, title, state, archived, permission_mode, last_seq, \
         metadata, created_by, created_at, updated_at, epoch, volume_id) \
         VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 0, ?)",
    )
    .bind(session.id.to_string())
    .bind(session.agent_id.to_string())
    .bind(session.agent_version)
    .bind(session.kind.as_str())
    .bind(&session.title)
    .bind(session.state.as_str())
    .bind(&session.permission_mode)
    .bind(i64::from(new.input.is_some()) + 1)
    .bind(json("metadata", &session.metadata)?)
    .bind(&session.created_by)
    .bind(text(session.created_at))
    .bind(text(session.updated_at))
    .bind(new.volume_id.to_string())
    .execute(&mut *connection)
    .await?;
    let status = EventPayload::SessionStatus {
        state: session.state,
        reason: None,
    };
    insert_first_event(connection, session, 1, &status).await?;
    if let Some((input_id, content)) = &new.input {
        sqlx::query(
            "INSERT INTO inputs (id, session_id, position, content, state) VALUES (?, ?, 1, ?, ?)",
        )
        .bind(input_id.to_string())
        .bind(session.id.to_string())
        .bind(json("content", content)?)
        .bind(InputState::Queued.as_str())
        .execute(&mut *connection)
        .await?;
        let accepted = EventPayload::InputAccepted {
            input_id: *input_id,
            content: content.clone(),
        };
        insert_first_event(connection, session, 2, &accepted).await?;
    }
    Ok((
        session.id.to_string(),
        new.input.as_ref().map(|(id, _)| id.to_string()),
    ))
}

async fn insert_first_event(
    connection: &mut SqliteConnection,
    session: &Session,
    seq: i64,
    payload: &EventPayload,
) -> Result<()> {
    sqlx::query("INSERT INTO events (session_id, seq, id, at, payload) VALUES (?, ?, ?, ?, ?)")
        .bind(session.id.to_string())
        .bind(seq)
        .bind(EventId::new().to_string())
        .bind(text(session.created_at))
        .bind(json("event", payload)?)
        .execute(connection)
        .await?;
    Ok(())
}

/// How many rows a count query gives.
pub(crate) async fn count(
    connection: &mut SqliteConnection,
    sql: &'static str,
    id: &str,
) -> Result<i64> {
    Ok(sqlx::query(sql)
        .bind(id)
        .fetch_one(connection)
        .await?
        .try_get(0)?)
}
