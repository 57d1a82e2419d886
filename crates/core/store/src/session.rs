//! Writing sessions: everything that one step changes, in one transaction.

use astrabox_types::{
    AssignmentId, ChildRunId, ContentPart, EventId, EventPayload, InputId, Interaction,
    InteractionAnswer, InteractionId, InteractionState, JournalEvent, Json, SandboxId, SessionId,
    SessionState, Timestamp, TurnId,
};
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection};

use crate::append::{append, is_short};
use crate::keyed::remember;
use crate::resources::count;
use crate::row::{json, text};
use crate::{Error, InputState, Key, Result, Store};

/// Everything that one step of a session changes. Refused as a whole when `epoch` is not the session's.
#[derive(Debug, Clone, Default)]
pub struct SessionCommit {
    /// The writer's epoch.
    pub epoch: u64,
    /// Events, in order. One whose id the session has already is left out.
    pub events: Vec<NewEvent>,
    /// Changes to the session itself.
    pub session: SessionPatch,
    /// Changes to what is kept beside it.
    pub runtime: RuntimePatch,
    /// Changes to inputs.
    pub inputs: Vec<InputChange>,
    /// Changes to interactions.
    pub interactions: Vec<InteractionChange>,
    /// The whole native state, in place of the older one.
    pub native_state: Option<Vec<NativeFile>>,
    /// The call that this answers, and its answer as JSON.
    pub answer: Option<(Key, String)>,
}

/// An event before it has seq and time.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    /// The turn.
    pub turn_id: Option<TurnId>,
    /// The child run.
    pub child_run: Option<ChildRunId>,
    /// What happened.
    pub payload: EventPayload,
    /// The engine's own words.
    pub native: Option<Json>,
}

/// Changes to a session; `None` leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    /// The state and why.
    pub state: Option<(SessionState, Option<String>)>,
    /// The turn that runs.
    pub current_turn: Option<Option<TurnId>>,
    /// The permission mode.
    pub permission_mode: Option<Option<String>>,
    /// Whether it is put away.
    pub archived: Option<bool>,
}

/// Changes to what is kept beside a session; `None` leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub struct RuntimePatch {
    /// The decision to make a sandbox.
    pub assignment_id: Option<Option<AssignmentId>>,
    /// The sandbox.
    pub sandbox_id: Option<Option<SandboxId>>,
    /// The native conversation.
    pub native_key: Option<Option<String>>,
    /// The program.
    pub program: Option<String>,
    /// Where the engine's client stands.
    pub checkpoint: Option<Option<String>>,
    /// The messages that are not complete there.
    pub open_messages: Option<Option<String>>,
    /// Whether the engine has work in the background.
    pub background: Option<bool>,
}

/// A change to an input.
#[derive(Debug, Clone)]
pub enum InputChange {
    /// A new one, behind all others.
    Queue(InputId, Vec<ContentPart>),
    /// Another state.
    Move(InputId, InputState, Option<TurnId>),
}

/// A change to an interaction.
#[derive(Debug, Clone)]
pub enum InteractionChange {
    /// A new one.
    Open {
        /// What is asked.
        interaction: Interaction,
        /// The engine's id of it.
        native_id: String,
        /// The turn; none when a child run asks after its parent's turn.
        turn_id: Option<TurnId>,
        /// The child run that asks.
        child_run: Option<ChildRunId>,
        /// Active or queued.
        state: InteractionState,
    },
    /// It can be answered now.
    Activate(InteractionId),
    /// It was answered.
    Resolve {
        /// Which one.
        id: InteractionId,
        /// The answer.
        answer: InteractionAnswer,
        /// Who answered.
        actor: String,
    },
    /// It can no longer be answered.
    Expire {
        /// Which one.
        id: InteractionId,
        /// Why.
        reason: String,
    },
}

/// One file of an engine's native state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeFile {
    /// Where it is below the home directory.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
}

impl Store {
    /// Takes the session over: every other writer's epoch is stale from now on.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn claim(&self, id: SessionId) -> Result<u64> {
        self.writer
            .write(move |connection| {
                Box::pin(async move {
                    let row = sqlx::query(
                        "UPDATE sessions SET epoch = epoch + 1 WHERE id = ? RETURNING epoch",
                    )
                    .bind(id.to_string())
                    .fetch_optional(connection)
                    .await?
                    .ok_or(Error::NotFound)?;
                    u64::try_from(row.try_get::<i64, _>(0)?)
                        .map_err(|_| Error::Corrupt { what: "epoch" })
                })
            })
            .await
    }

    /// Begins the owner's next epoch, so that what it has under way itself is refused from now on.
    ///
    /// # Errors
    /// `OwnerChanged` when `from` is not the session's epoch: somebody has taken it over.
    pub async fn renew_claim(&self, id: SessionId, from: u64) -> Result<u64> {
        self.writer
            .write(move |connection| {
                Box::pin(async move {
                    let text = id.to_string();
                    own(connection, &text, from).await?;
                    sqlx::query("UPDATE sessions SET epoch = epoch + 1 WHERE id = ?")
                        .bind(text)
                        .execute(connection)
                        .await?;
                    Ok(from + 1)
                })
            })
            .await
    }

    /// Makes a step durable and returns its events with seq and time. A step to DELETED leaves nothing of the
    /// session but a row that says so.
    ///
    /// # Errors
    /// `OwnerChanged` when the epoch is stale.
    pub async fn commit(&self, id: SessionId, commit: SessionCommit) -> Result<Vec<JournalEvent>> {
        #[cfg(feature = "fault-points")]
        let words = crate::fault::words(&commit);
        let writer = &self.writer;
        #[cfg(feature = "fault-points")]
        let writer = &writer.told(words);
        if is_short(&commit) {
            return writer
                .write_short(move |connection| {
                    Box::pin(async move { append(connection, id, commit).await })
                })
                .await;
        }
        writer
            .write(move |connection| Box::pin(async move { apply(connection, id, commit).await }))
            .await
    }
}

/// The session's last seq, if the writer's epoch is the session's.
pub(crate) async fn own(connection: &mut SqliteConnection, id: &str, epoch: u64) -> Result<i64> {
    let row = sqlx::query("SELECT last_seq, epoch FROM sessions WHERE id = ?")
        .bind(id)
        .fetch_optional(connection)
        .await?
        .ok_or(Error::NotFound)?;
    if u64::try_from(row.try_get::<i64, _>("epoch")?).ok() != Some(epoch) {
        return Err(Error::OwnerChanged);
    }
    Ok(row.try_get("last_seq")?)
}

pub(crate) async fn apply(
    connection: &mut SqliteConnection,
    id: SessionId,
    commit: SessionCommit,
) -> Result<Vec<JournalEvent>> {
    let session = id.to_string();
    let last = own(connection, &session, commit.epoch).await?;
    let at = Timestamp::now();
    let events = insert_events(connection, id, last, at, commit.events).await?;
    let last = events
        .last()
        .map_or(last, |event| i64::try_from(event.seq).unwrap_or(i64::MAX));
    patch(
        connection,
        &session,
        last,
        at,
        &commit.session,
        &commit.runtime,
    )
    .await?;
    for change in commit.inputs {
        change_input(connection, &session, change).await?;
    }
    for change in commit.interactions {
        change_interaction(connection, &session, at, change).await?;
    }
    if let Some(files) = commit.native_state {
        replace_native_state(connection, &session, at, files).await?;
    }
    if let Some((key, answer)) = commit.answer {
        remember(connection, &key, &answer).await?;
    }
    if matches!(commit.session.state, Some((SessionState::Deleted, _))) {
        erase(connection, &session).await?;
    }
    Ok(events)
}

/// Removes what was said in a session; its row stays.
async fn erase(connection: &mut SqliteConnection, session: &str) -> Result<()> {
    for sql in [
        "DELETE FROM native_state WHERE session_id = ?",
        "DELETE FROM interactions WHERE session_id = ?",
        "DELETE FROM inputs WHERE session_id = ?",
        "DELETE FROM events WHERE session_id = ?",
        "UPDATE sessions SET title = '', metadata = '{}', native_key = NULL, checkpoint = NULL, \
         open_messages = NULL WHERE id = ?",
    ] {
        sqlx::query(sql)
            .bind(session)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn insert_events(
    connection: &mut SqliteConnection,
    session_id: SessionId,
    mut last: i64,
    at: Timestamp,
    events: Vec<NewEvent>,
) -> Result<Vec<JournalEvent>> {
    let session = session_id.to_string();
    let mut done = Vec::with_capacity(events.len());
    for NewEvent {
        id,
        turn_id,
        child_run,
        payload,
        native,
    } in events
    {
        let inserted = sqlx::query(
            "INSERT INTO events (session_id, seq, id, turn_id, child_run, at, payload, native) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id, id) DO NOTHING",
        )
        .bind(&session)
        .bind(last + 1)
        .bind(id.to_string())
        .bind(turn_id.map(|turn| turn.to_string()))
        .bind(child_run.as_ref().map(|run| run.0.as_str()))
        .bind(text(at))
        .bind(json("event", &payload)?)
        .bind(native.as_ref().map(Json::text))
        .execute(&mut *connection)
        .await?;
        if inserted.rows_affected() == 0 {
            continue;
        }
        last += 1;
        let seq = u64::try_from(last).map_err(|_| Error::Corrupt { what: "seq" })?;
        done.push(JournalEvent {
            id,
            session_id,
            seq,
            turn_id,
            child_run,
            at,
            payload,
            native,
        });
    }
    Ok(done)
}

async fn patch(
    connection: &mut SqliteConnection,
    id: &str,
    last_seq: i64,
    at: Timestamp,
    session: &SessionPatch,
    runtime: &RuntimePatch,
) -> Result<()> {
    let mut update = QueryBuilder::<Sqlite>::new("UPDATE sessions SET last_seq = ");
    update.push_bind(last_seq);
    push_patch(&mut update, at, session, runtime);
    update.push(" WHERE id = ").push_bind(id.to_owned());
    update.build().execute(connection).await?;
    Ok(())
}

/// What is set of a session besides its last seq.
pub(crate) fn push_patch(
    update: &mut QueryBuilder<Sqlite>,
    at: Timestamp,
    session: &SessionPatch,
    runtime: &RuntimePatch,
) {
    update.push(", updated_at = ").push_bind(text(at));
    if let Some((state, reason)) = &session.state {
        update
            .push(", state = ")
            .push_bind(state.as_str())
            .push(", state_reason = ")
            .push_bind(reason.clone());
    }
    if let Some(turn) = &session.current_turn {
        update
            .push(", current_turn = ")
            .push_bind(turn.map(|turn| turn.to_string()));
    }
    if let Some(mode) = &session.permission_mode {
        update.push(", permission_mode = ").push_bind(mode.clone());
    }
    if let Some(archived) = session.archived {
        update.push(", archived = ").push_bind(archived);
    }
    if let Some(assignment) = &runtime.assignment_id {
        update
            .push(", assignment_id = ")
            .push_bind(assignment.as_ref().map(|id| id.as_str().to_owned()));
    }
    if let Some(sandbox) = &runtime.sandbox_id {
        update
            .push(", sandbox_id = ")
            .push_bind(sandbox.map(|id| id.to_string()));
    }
    if let Some(key) = &runtime.native_key {
        update.push(", native_key = ").push_bind(key.clone());
    }
    if let Some(program) = &runtime.program {
        update.push(", program = ").push_bind(program.clone());
    }
    if let Some(checkpoint) = &runtime.checkpoint {
        update.push(", checkpoint = ").push_bind(checkpoint.clone());
    }
    if let Some(open) = &runtime.open_messages {
        update.push(", open_messages = ").push_bind(open.clone());
    }
    if let Some(background) = runtime.background {
        update.push(", background = ").push_bind(background);
    }
}

async fn change_input(
    connection: &mut SqliteConnection,
    session: &str,
    change: InputChange,
) -> Result<()> {
    match change {
        InputChange::Queue(id, content) => {
            let sql = "SELECT COALESCE(MAX(position), 0) FROM inputs WHERE session_id = ?";
            let position = count(connection, sql, session).await? + 1;
            sqlx::query("INSERT INTO inputs (id, session_id, position, content, state) VALUES (?, ?, ?, ?, ?)")
                .bind(id.to_string())
                .bind(session)
                .bind(position)
                .bind(json("content", &content)?)
                .bind(InputState::Queued.as_str())
                .execute(connection)
                .await?;
        }
        InputChange::Move(id, state, turn) => {
            sqlx::query("UPDATE inputs SET state = ?, turn_id = COALESCE(?, turn_id) WHERE id = ? AND session_id = ?")
                .bind(state.as_str())
                .bind(turn.map(|turn| turn.to_string()))
                .bind(id.to_string())
                .bind(session)
                .execute(connection)
                .await?;
        }
    }
    Ok(())
}

async fn change_interaction(
    connection: &mut SqliteConnection,
    session: &str,
    at: Timestamp,
    change: InteractionChange,
) -> Result<()> {
    match change {
        InteractionChange::Open {
            interaction,
            native_id,
            turn_id,
            child_run,
            state,
        } => {
            let sql = "SELECT COALESCE(MAX(position), 0) FROM interactions WHERE session_id = ?";
            let position = count(connection, sql, session).await? + 1;
            // An engine that asks again under an id that was answered opens the same interaction again.
            sqlx::query(
                "INSERT INTO interactions \
                 (id, session_id, position, turn_id, child_run, native_id, presentation, state, created_at) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET position = excluded.position, \
                 presentation = excluded.presentation, state = excluded.state, created_at = excluded.created_at, \
                 answer = NULL, actor = NULL, reason = NULL, closed_at = NULL",
            )
            .bind(interaction.id.to_string())
            .bind(session)
            .bind(position)
            .bind(turn_id.map(|turn| turn.to_string()))
            .bind(child_run.map(|run| run.0))
            .bind(native_id)
            .bind(json("presentation", &interaction.presentation)?)
            .bind(state_word(state))
            .bind(text(at))
            .execute(connection)
            .await?;
        }
        InteractionChange::Activate(id) => {
            let sql = "UPDATE interactions SET state = 'active', created_at = ? WHERE id = ? AND session_id = ?";
            sqlx::query(sql)
                .bind(text(at))
                .bind(id.to_string())
                .bind(session)
                .execute(connection)
                .await?;
        }
        InteractionChange::Resolve { id, answer, actor } => {
            sqlx::query(
                "UPDATE interactions SET state = 'resolved', answer = ?, actor = ?, closed_at = ? \
                 WHERE id = ? AND session_id = ?",
            )
            .bind(json("answer", &answer)?)
            .bind(actor)
            .bind(text(at))
            .bind(id.to_string())
            .bind(session)
            .execute(connection)
            .await?;
        }
        InteractionChange::Expire { id, reason } => {
            sqlx::query(
                "UPDATE interactions SET state = 'expired', reason = ?, closed_at = ? WHERE id = ? AND session_id = ?",
            )
            .bind(reason)
            .bind(text(at))
            .bind(id.to_string())
            .bind(session)
            .execute(connection)
            .await?;
        }
    }
    Ok(())
}

const fn state_word(state: InteractionState) -> &'static str {
    match state {
        InteractionState::Queued => "queued",
        InteractionState::Active => "active",
        InteractionState::Resolved => "resolved",
        InteractionState::Expired => "expired",
    }
}

async fn replace_native_state(
    connection: &mut SqliteConnection,
    session: &str,
    at: Timestamp,
    files: Vec<NativeFile>,
) -> Result<()> {
    sqlx::query("DELETE FROM native_state WHERE session_id = ?")
        .bind(session)
        .execute(&mut *connection)
        .await?;
    for file in files {
        let packed = zstd::bulk::compress(&file.content, 1).map_err(|_| Error::Corrupt {
            what: "native state",
        })?;
        sqlx::query(
            "INSERT INTO native_state (session_id, path, content, saved_at) VALUES (?, ?, ?, ?)",
        )
        .bind(session)
        .bind(file.path)
        .bind(packed)
        .bind(text(at))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
