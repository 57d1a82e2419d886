//! Reading. Readers see everything that was acknowledged before they began.

use astrabox_types::{
    Agent, AgentId, ChildRun, ChildRunId, Environment, EventId, EventPayload, JournalEvent,
    SandboxId, SessionId, TurnId,
};
use futures::TryStreamExt as _;
use sqlx::{QueryBuilder, Row, Sqlite};

use crate::page::{Page, PageToken, cut};
use crate::resources::AGENT_COLUMNS;
use crate::row::{self, text};
use crate::{
    Error, InputRow, InteractionRow, NativeFile, Result, SessionFilter, SessionRow, Store,
};

/// The largest native state file that is unpacked (256 MiB).
const MAX_NATIVE: usize = 256 << 20;
/// Where a page of events is cut, bytes of their texts (4 MiB). One event can have more by itself.
const PAGE_BYTES: usize = 4 << 20;

impl Store {
    /// An environment, by id or name.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn environment(&self, id_or_name: &str) -> Result<Environment> {
        let row = sqlx::query("SELECT * FROM environments WHERE id = ? OR name = ?")
            .bind(id_or_name)
            .bind(id_or_name)
            .fetch_optional(&self.readers)
            .await?
            .ok_or(Error::NotFound)?;
        row::environment(&row)
    }

    /// Environments in name order.
    ///
    /// # Errors
    /// `ForeignToken`.
    pub async fn environments(&self, size: u32, token: Option<&str>) -> Result<Page<Environment>> {
        let after = PageToken::decode("environments", 1, token)?;
        let rows = sqlx::query("SELECT * FROM environments WHERE name > ? ORDER BY name LIMIT ?")
            .bind(after.map_or_else(String::new, |mut keys| keys.remove(0)))
            .bind(size + 1)
            .fetch_all(&self.readers)
            .await?;
        let items = rows
            .iter()
            .map(row::environment)
            .collect::<Result<Vec<_>>>()?;
        Ok(cut(items, size, "environments", |item| {
            vec![item.spec.name.clone()]
        }))
    }

    /// An agent, in its latest version or another.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn agent(&self, id: AgentId, version: Option<u32>) -> Result<Agent> {
        let mut query = QueryBuilder::<Sqlite>::new(AGENT_COLUMNS);
        query.push(" WHERE a.id = ").push_bind(id.to_string());
        match version {
            Some(version) => query.push(" AND v.version = ").push_bind(version),
            None => query.push(" AND v.version = a.version"),
        };
        row::agent(
            &query
                .build()
                .fetch_optional(&self.readers)
                .await?
                .ok_or(Error::NotFound)?,
        )
    }

    /// Agents in their latest versions, newest first.
    ///
    /// # Errors
    /// `ForeignToken`.
    pub async fn agents(
        &self,
        size: u32,
        token: Option<&str>,
        archived: bool,
    ) -> Result<Page<Agent>> {
        let list = format!("agents/{archived}");
        let mut query = QueryBuilder::<Sqlite>::new(AGENT_COLUMNS);
        query.push(" WHERE v.version = a.version");
        if !archived {
            query.push(" AND a.archived = 0");
        }
        // Ids are in time order.
        if let Some(keys) = PageToken::decode(&list, 1, token)? {
            query.push(" AND a.id < ").push_bind(keys[0].clone());
        }
        query.push(" ORDER BY a.id DESC LIMIT ").push_bind(size + 1);
        let rows = query.build().fetch_all(&self.readers).await?;
        let items = rows.iter().map(row::agent).collect::<Result<Vec<_>>>()?;
        Ok(cut(items, size, &list, |item| vec![item.id.to_string()]))
    }

    /// The versions of an agent, newest first.
    ///
    /// # Errors
    /// `NotFound`, `ForeignToken`.
    pub async fn agent_versions(
        &self,
        id: AgentId,
        size: u32,
        token: Option<&str>,
    ) -> Result<Page<Agent>> {
        self.agent(id, None).await?;
        let list = format!("agent_versions/{id}");
        let mut query = QueryBuilder::<Sqlite>::new(AGENT_COLUMNS);
        query.push(" WHERE a.id = ").push_bind(id.to_string());
        if let Some(keys) = PageToken::decode(&list, 1, token)? {
            let below: i64 = keys[0].parse().map_err(|_| Error::ForeignToken)?;
            query.push(" AND v.version < ").push_bind(below);
        }
        query
            .push(" ORDER BY v.version DESC LIMIT ")
            .push_bind(size + 1);
        let rows = query.build().fetch_all(&self.readers).await?;
        let items = rows.iter().map(row::agent).collect::<Result<Vec<_>>>()?;
        Ok(cut(items, size, &list, |item| {
            vec![item.version.to_string()]
        }))
    }

    /// A session. A deleted one is not found.
    ///
    /// # Errors
    /// `NotFound`.
    pub async fn session(&self, id: SessionId) -> Result<SessionRow> {
        let row = sqlx::query("SELECT * FROM sessions WHERE id = ? AND state <> 'DELETED'")
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await?
            .ok_or(Error::NotFound)?;
        row::session(&row)
    }

    /// Sessions, last changed first.
    ///
    /// # Errors
    /// `ForeignToken`.
    pub async fn sessions(
        &self,
        filter: &SessionFilter,
        size: u32,
        token: Option<&str>,
    ) -> Result<Page<SessionRow>> {
        let agent = filter.agent_id.map(|id| id.to_string());
        let list = format!(
            "sessions/{}/{}",
            agent.as_deref().unwrap_or_default(),
            filter.include_archived
        );
        let mut query =
            QueryBuilder::<Sqlite>::new("SELECT * FROM sessions WHERE state <> 'DELETED'");
        if let Some(agent) = agent {
            query.push(" AND agent_id = ").push_bind(agent);
        }
        if !filter.include_archived {
            query.push(" AND archived = 0");
        }
        if let Some(keys) = PageToken::decode(&list, 2, token)? {
            query
                .push(" AND (updated_at, id) < (")
                .push_bind(keys[0].clone());
            query.push(", ").push_bind(keys[1].clone()).push(")");
        }
        query
            .push(" ORDER BY updated_at DESC, id DESC LIMIT ")
            .push_bind(size + 1);
        let rows = query.build().fetch_all(&self.readers).await?;
        let items = rows.iter().map(row::session).collect::<Result<Vec<_>>>()?;
        Ok(cut(items, size, &list, |item| {
            vec![text(item.session.updated_at), item.session.id.to_string()]
        }))
    }

    /// Every session that a server must look after: all that are not at rest.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sessions_to_tend(&self) -> Result<Vec<SessionId>> {
        let rows = sqlx::query(
            "SELECT id FROM sessions WHERE state <> 'DELETED' AND (sandbox_id IS NOT NULL OR assignment_id IS NOT NULL \
             OR state NOT IN ('HIBERNATED', 'RECOVERY_REQUIRED', 'TERMINATED') \
             OR id IN (SELECT session_id FROM inputs WHERE state <> 'settled'))",
        )
        .fetch_all(&self.readers)
        .await?;
        rows.iter()
            .map(|row| {
                row.try_get::<String, _>(0)?
                    .parse()
                    .map_err(|_| Error::Corrupt { what: "id" })
            })
            .collect()
    }

    /// The session that holds this sandbox, or was promised it by this assignment.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn holder_of(
        &self,
        sandbox: SandboxId,
        assignment: &str,
    ) -> Result<Option<SessionId>> {
        let row = sqlx::query(
            "SELECT id FROM sessions WHERE state <> 'DELETED' AND (sandbox_id = ? OR assignment_id = ?) LIMIT 1",
        )
        .bind(sandbox.to_string())
        .bind(assignment)
        .fetch_optional(&self.readers)
        .await?;
        row.map(|row| {
            row.try_get::<String, _>(0)?
                .parse()
                .map_err(|_| Error::Corrupt { what: "id" })
        })
        .transpose()
    }

    /// A session's events after `after`, in order, at most `limit`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn events(&self, id: SessionId, after: u64, limit: u32) -> Result<Vec<JournalEvent>> {
        let rows = sqlx::query(
            "SELECT * FROM events WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?",
        )
        .bind(id.to_string())
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(limit)
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(row::event).collect()
    }

    /// The turn of one event; `None` when the journal does not have the event.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn turn_of_event(
        &self,
        id: SessionId,
        event: EventId,
    ) -> Result<Option<Option<TurnId>>> {
        let row = sqlx::query("SELECT turn_id FROM events WHERE session_id = ? AND id = ?")
            .bind(id.to_string())
            .bind(event.to_string())
            .fetch_optional(&self.readers)
            .await?;
        row.as_ref().map(row::turn_of).transpose()
    }

    /// The child runs of a session, each as it stands, in the order in which they began.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn child_runs(&self, id: SessionId) -> Result<Vec<ChildRun>> {
        let rows = sqlx::query(
            "SELECT * FROM events WHERE session_id = ? AND payload LIKE '{\"child_run.changed\":%' ORDER BY seq",
        )
        .bind(id.to_string())
        .fetch_all(&self.readers)
        .await?;
        let mut runs: Vec<ChildRun> = Vec::new();
        for row in &rows {
            let EventPayload::ChildRunChanged { run } = row::event(row)?.payload else {
                continue;
            };
            match runs.iter_mut().find(|known| known.id == run.id) {
                Some(known) => *known = run,
                None => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// A page of a session's events: at most `size`, and no more than about `PAGE_BYTES` of them, but at least one.
    ///
    /// # Errors
    /// `ForeignToken`.
    pub async fn event_page(
        &self,
        id: SessionId,
        after: u64,
        size: u32,
        token: Option<&str>,
    ) -> Result<Page<JournalEvent>> {
        self.event_page_of(id, None, after, size, token).await
    }

    /// The same of one child run alone.
    ///
    /// # Errors
    /// `ForeignToken`.
    pub async fn event_page_of(
        &self,
        id: SessionId,
        of_child: Option<&ChildRunId>,
        after: u64,
        size: u32,
        token: Option<&str>,
    ) -> Result<Page<JournalEvent>> {
        let of_child = of_child.map(|run| run.0.as_str());
        let list = match of_child {
            None => format!("events/{id}"),
            Some(run) => format!("events/{id}/{run}"),
        };
        let after = match PageToken::decode(&list, 1, token)? {
            Some(keys) => keys[0].parse().map_err(|_| Error::ForeignToken)?,
            None => after,
        };
        let mut rows = sqlx::query(
            "SELECT * FROM events WHERE session_id = ? AND seq > ? AND (? IS NULL OR child_run = ?) \
             ORDER BY seq LIMIT ?",
        )
        .bind(id.to_string())
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(of_child)
        .bind(of_child)
        .bind(i64::from(size) + 1)
        .fetch(&self.readers);
        let (mut items, mut bytes) = (Vec::new(), 0);
        while let Some(found) = rows.try_next().await? {
            bytes += row::event_bytes(&found)?;
            if bytes > PAGE_BYTES && !items.is_empty() {
                // There is more, whatever the wanted size.
                let wanted = u32::try_from(items.len()).unwrap_or(size);
                items.push(row::event(&found)?);
                return Ok(cut(items, wanted, &list, |item| vec![item.seq.to_string()]));
            }
            items.push(row::event(&found)?);
        }
        Ok(cut(items, size, &list, |item| vec![item.seq.to_string()]))
    }

    /// A session's inputs that are not settled, in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn open_inputs(&self, id: SessionId) -> Result<Vec<InputRow>> {
        let rows = sqlx::query(
            "SELECT * FROM inputs WHERE session_id = ? AND state <> 'settled' ORDER BY position",
        )
        .bind(id.to_string())
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(row::input).collect()
    }

    /// A session's interactions, oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn interactions(
        &self,
        id: SessionId,
        include_closed: bool,
    ) -> Result<Vec<InteractionRow>> {
        let rows = sqlx::query(
            "SELECT * FROM interactions WHERE session_id = ? AND (? OR state IN ('active', 'queued')) \
             ORDER BY position",
        )
        .bind(id.to_string())
        .bind(include_closed)
        .fetch_all(&self.readers)
        .await?;
        rows.iter().map(row::interaction).collect()
    }

    /// A session's saved native state.
    ///
    /// # Errors
    /// `Corrupt` when a file cannot be unpacked.
    pub async fn native_state(&self, id: SessionId) -> Result<Vec<NativeFile>> {
        let rows = sqlx::query(
            "SELECT path, content FROM native_state WHERE session_id = ? ORDER BY path",
        )
        .bind(id.to_string())
        .fetch_all(&self.readers)
        .await?;
        rows.iter()
            .map(|row| {
                let packed: Vec<u8> = row.try_get("content")?;
                let content =
                    zstd::stream::decode_all(packed.as_slice()).map_err(|_| Error::Corrupt {
                        what: "native state",
                    })?;
                if content.len() > MAX_NATIVE {
                    return Err(Error::Corrupt {
                        what: "native state",
                    });
                }
                Ok(NativeFile {
                    path: row.try_get("path")?,
                    content,
                })
            })
            .collect()
    }

    /// Whether an engine ever took an input of this session, so that there is a native conversation to resume.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_history(&self, id: SessionId) -> Result<bool> {
        Ok(self.last_of_kind(id, "input.consumed").await?.is_some())
    }

    /// Whether a turn of this session was ever completed or interrupted, so that the program had its say.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_settled_turn(&self, id: SessionId) -> Result<bool> {
        // As `last_of_kind`; an outcome comes first in the end of a turn.
        let row = sqlx::query(
            "SELECT 1 FROM events WHERE session_id = ? AND payload LIKE '{\"turn.ended\":{\"outcome\":%' \
             AND payload NOT LIKE '{\"turn.ended\":{\"outcome\":{\"outcome\":\"failed\"%' LIMIT 1",
        )
        .bind(id.to_string())
        .fetch_optional(&self.readers)
        .await?;
        Ok(row.is_some())
    }

    /// The end of the last turn.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn last_turn_end(&self, id: SessionId) -> Result<Option<JournalEvent>> {
        self.last_of_kind(id, "turn.ended").await
    }

    async fn last_of_kind(&self, id: SessionId, name: &str) -> Result<Option<JournalEvent>> {
        // Payloads are externally tagged: the text begins with the event's name.
        let row = sqlx::query(
            "SELECT * FROM events WHERE session_id = ? AND substr(payload, 1, length(?) + 3) = '{\"' || ? || '\"' \
             ORDER BY seq DESC LIMIT 1",
        )
        .bind(id.to_string())
        .bind(name)
        .bind(name)
        .fetch_optional(&self.readers)
        .await?;
        row.as_ref().map(row::event).transpose()
    }
}
