//! Stores in temporary folders, and values to put into them.

use std::path::PathBuf;

use astrabox_store::{Key, NewEvent, NewSession, SessionCommit, Store};
use astrabox_types::{
    Agent, AgentId, AgentSpec, ContentPart, Environment, EnvironmentId, EnvironmentSpec, EventId,
    EventPayload, InputId, MessageKind, Networking, PermissionLevel, ResourceLimits, Session,
    SessionId, SessionKind, SessionState, Timestamp, VolumeId,
};

/// A store in a folder of its own.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) store: Store,
}

impl Place {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = Store::open(&dir.path().join("db")).await.expect("it opens");
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// Closes the store and opens it again.
    pub(crate) async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Store::open(&self.path()).await.expect("it opens again");
    }

    /// A session that nobody has written to.
    pub(crate) async fn session(&self) -> SessionId {
        let new = new_session(&self.store, None).await;
        let id = new.session.id;
        self.store
            .insert_session(None, new)
            .await
            .expect("inserted");
        id
    }

    /// A session and its owner's epoch.
    pub(crate) async fn owned(&self) -> (SessionId, u64) {
        let id = self.session().await;
        (id, self.store.claim(id).await.expect("claimed"))
    }
}

pub(crate) fn environment(name: &str) -> Environment {
    let now = Timestamp::now();
    Environment {
        id: EnvironmentId::new(),
        spec: EnvironmentSpec {
            name: name.to_owned(),
            description: "für Tests".to_owned(),
            engine: "fake".to_owned(),
            sandbox: "memory".to_owned(),
            image: None,
            model_provider: "fixed".to_owned(),
            networking: Networking::Unrestricted,
            permission_level: PermissionLevel::Default,
            limits: ResourceLimits::default(),
            program: None,
        },
        version: 1,
        created_at: now,
        updated_at: now,
    }
}

pub(crate) fn agent(environment_id: EnvironmentId) -> Agent {
    let now = Timestamp::now();
    Agent {
        id: AgentId::new(),
        version: 1,
        spec: AgentSpec {
            name: "tester".to_owned(),
            description: String::new(),
            environment_id,
            model: "a-model".to_owned(),
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
    }
}

/// An agent in an environment of its own.
pub(crate) async fn made_agent(store: &Store) -> Agent {
    let environment = environment(&format!("e{}", EnvironmentId::new().uuid().simple()));
    let environment_id = environment.id;
    let made = store.insert_environment(None, environment).await;
    made.expect("inserted");
    let made = store.insert_agent(None, agent(environment_id)).await;
    made.expect("inserted")
}

pub(crate) async fn new_session(store: &Store, prompt: Option<&str>) -> NewSession {
    let agent = made_agent(store).await;
    let now = Timestamp::now();
    NewSession {
        session: Session {
            id: SessionId::new(),
            agent_id: agent.id,
            agent_version: agent.version,
            kind: SessionKind::AgentChat,
            title: "a title".to_owned(),
            state: SessionState::Creating,
            state_reason: None,
            archived: false,
            permission_mode: None,
            current_turn: None,
            last_seq: 0,
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            created_by: "test:one".to_owned(),
            created_at: now,
            updated_at: now,
        },
        volume_id: VolumeId::new(),
        input: prompt.map(|text| (InputId::new(), vec![ContentPart::text(text)])),
    }
}

pub(crate) fn key(key: &str, body: &str) -> Option<Key> {
    Some(Key {
        actor: "test:one".to_owned(),
        operation: "Test",
        key: key.to_owned(),
        digest: format!("digest of {body}"),
    })
}

pub(crate) fn says(text: &str) -> NewEvent {
    NewEvent {
        id: EventId::new(),
        turn_id: None,
        child_run: None,
        payload: EventPayload::MessageCompleted {
            kind: MessageKind::Text,
            text: text.to_owned(),
            truncated: false,
        },
        native: None,
    }
}

/// A step of this epoch with these events.
pub(crate) fn step(epoch: u64, events: Vec<NewEvent>) -> SessionCommit {
    SessionCommit {
        epoch,
        events,
        ..SessionCommit::default()
    }
}

/// What messages say, in order.
pub(crate) async fn texts(store: &Store, id: SessionId) -> Vec<String> {
    let events = store.events(id, 0, 100_000).await.expect("they are read");
    let text = |event: astrabox_types::JournalEvent| match event.payload {
        EventPayload::MessageCompleted { text, .. } => Some(text),
        _ => None,
    };
    events.into_iter().filter_map(text).collect()
}
