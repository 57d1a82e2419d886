CREATE TABLE vaults (
    id TEXT PRIMARY KEY,
    display_name TEXT NOT NULL,
    metadata TEXT NOT NULL,
    archived_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;

-- Everything about a credential but its value, which is in the secret store.
CREATE TABLE vault_credentials (
    id TEXT PRIMARY KEY,
    vault_id TEXT NOT NULL REFERENCES vaults (id),
    display_name TEXT NOT NULL,
    -- What only one active credential of the vault may be for.
    key TEXT NOT NULL,
    spec TEXT NOT NULL,
    secret_version INTEGER NOT NULL,
    -- Its name in the secret store; none once it is archived.
    secret_name TEXT,
    archived_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX vault_credentials_active ON vault_credentials (vault_id, key) WHERE archived_at IS NULL;
CREATE INDEX vault_credentials_by_vault ON vault_credentials (vault_id, id);

-- The vaults of each agent's latest version.
CREATE TABLE agent_vaults (
    agent_id TEXT NOT NULL REFERENCES agents (id),
    position INTEGER NOT NULL,
    vault_id TEXT NOT NULL REFERENCES vaults (id),
    PRIMARY KEY (agent_id, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_vaults_by_vault ON agent_vaults (vault_id);

-- Names in the secret store that no credential has: not yet, or not any more. What stands here at a start is removed.
CREATE TABLE secret_leftovers (
    name TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
