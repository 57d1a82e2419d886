//! Rows as values.

use std::collections::BTreeMap;

use astrabox_types::{
    Agent, AgentId, AssignmentId, ChildRunId, ContentPart, Environment, InputId, Interaction,
    InteractionAnswer, InteractionState, JournalEvent, Json, SandboxId, Session, SessionId,
    SessionKind, SessionState, Timestamp, TurnId, Vault, VaultCredential, VolumeId,
};
use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::{CredentialRow, Error, Result};

/// A session with what the platform keeps beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    /// The session.
    pub session: Session,
    /// Who may write.
    pub epoch: u64,
    /// The decision that a sandbox is made for.
    pub assignment_id: Option<AssignmentId>,
    /// The sandbox.
    pub sandbox_id: Option<SandboxId>,
    /// The session's volume.
    pub volume_id: VolumeId,
    /// The native conversation.
    pub native_key: Option<String>,
    /// The program's name and version.
    pub program: Option<String>,
    /// Where the engine's client stands.
    pub checkpoint: Option<String>,
    /// The messages that are not complete at the checkpoint, as JSON.
    pub open_messages: Option<String>,
    /// Whether the engine left work in the background, as of the checkpoint.
    pub background: bool,
}

/// Which sessions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only of this agent.
    pub agent_id: Option<AgentId>,
    /// Also archived ones.
    pub include_archived: bool,
}

/// An input that is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRow {
    /// Its id.
    pub id: InputId,
    /// What it says.
    pub content: Vec<ContentPart>,
    /// Where it stands.
    pub state: InputState,
    /// Its turn, once it has one.
    pub turn_id: Option<TurnId>,
}

/// Where an input stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputState {
    /// It waits for its turn.
    Queued,
    /// It was given to the engine.
    Delivered,
    /// The engine took it.
    Consumed,
    /// Its turn has an outcome.
    Settled,
}

impl InputState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Delivered => "delivered",
            Self::Consumed => "consumed",
            Self::Settled => "settled",
        }
    }

    fn parse(text: &str) -> Result<Self> {
        match text {
            "queued" => Ok(Self::Queued),
            "delivered" => Ok(Self::Delivered),
            "consumed" => Ok(Self::Consumed),
            "settled" => Ok(Self::Settled),
            _ => Err(Error::Corrupt {
                what: "input state",
            }),
        }
    }
}

/// An interaction with what the platform keeps beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct InteractionRow {
    /// What is asked.
    pub interaction: Interaction,
    /// The engine's id of it.
    pub native_id: String,
    /// The turn.
    pub turn_id: Option<TurnId>,
    /// The child run that asks.
    pub child_run: Option<ChildRunId>,
    /// Where it stands.
    pub state: InteractionState,
    /// When it was asked, or could be answered for the first time.
    pub created_at: Timestamp,
    /// The answer, once there is one.
    pub answer: Option<InteractionAnswer>,
}

/// Times in a form of fixed width, so that text order is time order.
pub(crate) fn text(at: Timestamp) -> String {
    format!("{at:.9}")
}

pub(crate) fn now() -> String {
    text(Timestamp::now())
}

pub(crate) fn json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|_| Error::Corrupt { what })
}

fn parsed<T: std::str::FromStr>(row: &SqliteRow, column: &'static str) -> Result<T> {
    row.try_get::<String, _>(column)?
        .parse()
        .map_err(|_| Error::Corrupt { what: column })
}

fn parsed_option<T: std::str::FromStr>(row: &SqliteRow, column: &'static str) -> Result<Option<T>> {
    match row.try_get::<Option<String>, _>(column)? {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Error::Corrupt { what: column }),
    }
}

fn from_json<T: DeserializeOwned>(row: &SqliteRow, column: &'static str) -> Result<T> {
    serde_json::from_str(&row.try_get::<String, _>(column)?)
        .map_err(|_| Error::Corrupt { what: column })
}

/// A word that serde knows, as the name of a state.
fn word<T: DeserializeOwned>(row: &SqliteRow, column: &'static str) -> Result<T> {
    let text: String = row.try_get(column)?;
    serde_json::from_value(serde_json::Value::String(text))
        .map_err(|_| Error::Corrupt { what: column })
}

fn number<T: TryFrom<i64>>(row: &SqliteRow, column: &'static str) -> Result<T> {
    T::try_from(row.try_get::<i64, _>(column)?).map_err(|_| Error::Corrupt { what: column })
}

pub(crate) fn environment(row: &SqliteRow) -> Result<Environment> {
    Ok(Environment {
        id: parsed(row, "id")?,
        spec: from_json(row, "spec")?,
        version: number(row, "version")?,
        created_at: parsed(row, "created_at")?,
        updated_at: parsed(row, "updated_at")?,
    })
}

pub(crate) fn agent(row: &SqliteRow) -> Result<Agent> {
    Ok(Agent {
        id: parsed(row, "id")?,
        version: number(row, "version")?,
        spec: from_json(row, "spec")?,
        archived: row.try_get("archived")?,
        created_at: parsed(row, "created_at")?,
        updated_at: parsed(row, "updated_at")?,
    })
}

pub(crate) fn vault(row: &SqliteRow) -> Result<Vault> {
    Ok(Vault {
        id: parsed(row, "id")?,
        display_name: row.try_get("display_name")?,
        metadata: from_json(row, "metadata")?,
        archived_at: parsed_option(row, "archived_at")?,
        created_at: parsed(row, "created_at")?,
        updated_at: parsed(row, "updated_at")?,
    })
}

pub(crate) fn credential(row: &SqliteRow) -> Result<CredentialRow> {
    Ok(CredentialRow {
        credential: VaultCredential {
            id: parsed(row, "id")?,
            vault_id: parsed(row, "vault_id")?,
            display_name: row.try_get("display_name")?,
            spec: from_json(row, "spec")?,
            secret_version: number(row, "secret_version")?,
            archived_at: parsed_option(row, "archived_at")?,
            created_at: parsed(row, "created_at")?,
            updated_at: parsed(row, "updated_at")?,
        },
        secret_name: row.try_get("secret_name")?,
    })
}

pub(crate) fn session(row: &SqliteRow) -> Result<SessionRow> {
    let metadata: BTreeMap<String, String> = from_json(row, "metadata")?;
    let assignment: Option<String> = row.try_get("assignment_id")?;
    let kind: SessionKind = word(row, "kind")?;
    let state: SessionState = word(row, "state")?;
    Ok(SessionRow {
        session: Session {
            id: parsed(row, "id")?,
            agent_id: parsed(row, "agent_id")?,
            agent_version: number(row, "agent_version")?,
            kind,
            title: row.try_get("title")?,
            state,
            state_reason: row.try_get("state_reason")?,
            archived: row.try_get("archived")?,
            permission_mode: row.try_get("permission_mode")?,
            current_turn: parsed_option(row, "current_turn")?,
            last_seq: number(row, "last_seq")?,
            metadata,
            created_by: row.try_get("created_by")?,
            created_at: parsed(row, "created_at")?,
            updated_at: parsed(row, "updated_at")?,
        },
        epoch: number(row, "epoch")?,
        assignment_id: assignment.map(AssignmentId::new).transpose().map_err(|_| {
            Error::Corrupt {
                what: "assignment_id",
            }
        })?,
        sandbox_id: parsed_option(row, "sandbox_id")?,
        volume_id: parsed(row, "volume_id")?,
        native_key: row.try_get("native_key")?,
        program: row.try_get("program")?,
        checkpoint: row.try_get("checkpoint")?,
        open_messages: row.try_get("open_messages")?,
        background: row.try_get("background")?,
    })
}

pub(crate) fn turn_of(row: &SqliteRow) -> Result<Option<TurnId>> {
    parsed_option(row, "turn_id")
}

/// The size of an event's texts.
pub(crate) fn event_bytes(row: &SqliteRow) -> Result<usize> {
    let payload: &str = row.try_get("payload")?;
    let native: Option<&str> = row.try_get("native")?;
    Ok(payload.len() + native.map_or(0, str::len))
}

pub(crate) fn event(row: &SqliteRow) -> Result<JournalEvent> {
    let native: Option<String> = row.try_get("native")?;
    let session_id: SessionId = parsed(row, "session_id")?;
    Ok(JournalEvent {
        id: parsed(row, "id")?,
        session_id,
        seq: number(row, "seq")?,
        turn_id: parsed_option(row, "turn_id")?,
        child_run: row
            .try_get::<Option<String>, _>("child_run")?
            .map(ChildRunId),
        at: parsed(row, "at")?,
        payload: from_json(row, "payload")?,
        native: native
            .map(|text| Json::parse(&text))
            .transpose()
            .map_err(|_| Error::Corrupt { what: "native" })?,
    })
}

pub(crate) fn input(row: &SqliteRow) -> Result<InputRow> {
    Ok(InputRow {
        id: parsed(row, "id")?,
        content: from_json(row, "content")?,
        state: InputState::parse(&row.try_get::<String, _>("state")?)?,
        turn_id: parsed_option(row, "turn_id")?,
    })
}

pub(crate) fn interaction(row: &SqliteRow) -> Result<InteractionRow> {
    let answer: Option<String> = row.try_get("answer")?;
    Ok(InteractionRow {
        interaction: Interaction {
            id: parsed(row, "id")?,
            presentation: from_json(row, "presentation")?,
        },
        native_id: row.try_get("native_id")?,
        turn_id: parsed_option(row, "turn_id")?,
        child_run: row
            .try_get::<Option<String>, _>("child_run")?
            .map(ChildRunId),
        state: word(row, "state")?,
        created_at: parsed(row, "created_at")?,
        answer: answer
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|_| Error::Corrupt { what: "answer" })?,
    })
}
