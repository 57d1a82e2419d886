CREATE TABLE environments (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    spec TEXT NOT NULL,
    version INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;

CREATE TABLE agents (
    id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    environment_id TEXT NOT NULL REFERENCES environments (id),
    archived INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
CREATE INDEX agents_by_environment ON agents (environment_id);

CREATE TABLE agent_versions (
    agent_id TEXT NOT NULL REFERENCES agents (id),
    version INTEGER NOT NULL,
    spec TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (agent_id, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL REFERENCES agents (id),
    agent_version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    state TEXT NOT NULL,
    state_reason TEXT,
    archived INTEGER NOT NULL,
    permission_mode TEXT,
    current_turn TEXT,
    last_seq INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    -- Who may write: a stale owner has a lower epoch and is refused.
    epoch INTEGER NOT NULL,
    -- The decision that a sandbox is made for, the sandbox, and the session's volume.
    assignment_id TEXT,
    sandbox_id TEXT,
    volume_id TEXT NOT NULL,
    -- The native conversation, and where the engine's client stands in it.
    native_key TEXT,
    program TEXT,
    checkpoint TEXT,
    -- The messages that are not complete at the checkpoint.
    open_messages TEXT,
    -- Whether the engine left work in the background, as of the checkpoint.
    background INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sessions_by_update ON sessions (updated_at DESC, id DESC);
CREATE INDEX sessions_by_sandbox ON sessions (sandbox_id) WHERE sandbox_id IS NOT NULL;

CREATE TABLE events (
    session_id TEXT NOT NULL REFERENCES sessions (id),
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    turn_id TEXT,
    child_run TEXT,
    at TEXT NOT NULL,
    payload TEXT NOT NULL,
    native TEXT,
    PRIMARY KEY (session_id, seq),
    UNIQUE (session_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE inputs (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    position INTEGER NOT NULL,
    content TEXT NOT NULL,
    state TEXT NOT NULL,
    turn_id TEXT,
    UNIQUE (session_id, position)
) STRICT;
CREATE INDEX inputs_open ON inputs (session_id, position) WHERE state <> 'settled';

CREATE TABLE interactions (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    position INTEGER NOT NULL,
    turn_id TEXT,
    child_run TEXT,
    native_id TEXT NOT NULL,
    presentation TEXT NOT NULL,
    state TEXT NOT NULL,
    answer TEXT,
    actor TEXT,
    reason TEXT,
    -- When it was asked, or could be answered for the first time.
    created_at TEXT NOT NULL,
    closed_at TEXT,
    UNIQUE (session_id, position)
) STRICT;

CREATE TABLE native_state (
    session_id TEXT NOT NULL REFERENCES sessions (id),
    path TEXT NOT NULL,
    content BLOB NOT NULL,
    saved_at TEXT NOT NULL,
    PRIMARY KEY (session_id, path)
) STRICT, WITHOUT ROWID;

-- What a mutating call answered, so that a repeated call gets the same answer.
CREATE TABLE idempotency (
    actor TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (actor, operation, key)
) STRICT, WITHOUT ROWID;
