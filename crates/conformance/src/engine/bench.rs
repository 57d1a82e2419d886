//! What the cases of an engine work on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::{
    BindRequest, BoundConversation, Conversation, EngineAdapter, EngineClient, EngineInput,
    EngineStartupContext, PrepareContext, Result,
};
use astrabox_model::{CredentialKind, ResolvedModelAccess};
use astrabox_sandbox::{HOME, IMAGE_ROOT, WriteOptions};
use astrabox_types::{
    AgentSpec, ContentPart, EnvironmentId, InputId, PermissionLevel, SessionId, SessionKind,
};

use super::{Deed, EngineFixture, Quirk};
use crate::doubles::{MemoryWorkload, Program};
use crate::sample::sample_program;
use crate::{Bench, Doing as _, Stop};

/// How long a program may take to bind, in the case's own time.
pub(super) const BIND: Duration = Duration::from_secs(30);
/// What the sandbox holds in place of a model key.
pub(super) const PLACEHOLDER: &str = "placeholder-of-the-conformance-suite";

/// One adapter, and a stand-in for its program where there is one.
#[derive(Clone)]
pub struct EngineBench {
    adapter: &'static dyn EngineAdapter,
    fixture: Option<Arc<dyn EngineFixture>>,
}

impl Bench for EngineBench {}

/// A box with a bound conversation in it.
pub(super) struct Session {
    pub(super) workload: MemoryWorkload,
    pub(super) client: Box<dyn EngineClient>,
    pub(super) native_key: String,
}

impl EngineBench {
    pub(super) fn new(
        adapter: &'static dyn EngineAdapter,
        fixture: Option<Arc<dyn EngineFixture>>,
    ) -> Self {
        Self { adapter, fixture }
    }

    pub(super) fn adapter(&self) -> &'static dyn EngineAdapter {
        self.adapter
    }

    fn fixture(&self) -> std::result::Result<&dyn EngineFixture, Stop> {
        self.fixture
            .as_deref()
            .ok_or_else(|| Stop::skipped("it needs the fixture of the engine's program"))
    }

    /// The native program.
    pub(super) fn program(&self, quirk: Quirk) -> std::result::Result<Program, Stop> {
        self.fixture()?
            .program(quirk)
            .ok_or_else(|| Stop::skipped(format!("the fixture has no program that is {quirk:?}")))
    }

    /// An input upon which the program does this.
    pub(super) fn input(&self, deed: Deed, word: &str) -> std::result::Result<EngineInput, Stop> {
        let text = self.fixture()?.prompt(deed, word).ok_or_else(|| {
            Stop::skipped(format!("the engine's program has nothing like {deed:?}"))
        })?;
        Ok(EngineInput {
            input_id: InputId::new(),
            content: vec![ContentPart::text(text)],
            notice: None,
        })
    }

    /// What an engine gets when it starts in this box.
    pub(super) fn context(
        &self,
        workload: &MemoryWorkload,
        epoch: u64,
        conversation: Conversation,
    ) -> EngineStartupContext {
        let kinds = self.adapter.capabilities().session_kinds;
        EngineStartupContext {
            session_id: SessionId::new(),
            epoch,
            session_kind: kinds.first().copied().unwrap_or(SessionKind::AgentChat),
            agent: AgentSpec {
                name: "conformance".to_owned(),
                description: String::new(),
                environment_id: EnvironmentId::new(),
                model: "spec-model".to_owned(),
                // What a named program takes is its own affair.
                system: if self.adapter.capabilities().names_program {
                    String::new()
                } else {
                    "Be brief.".to_owned()
                },
                engine_options: BTreeMap::new(),
                permission_mode: None,
                repository: None,
                mcp_servers: Vec::new(),
                skills: Vec::new(),
                approval_rules: Vec::new(),
                vault_ids: Vec::new(),
                metadata: BTreeMap::new(),
            },
            program: sample_program(&self.adapter.capabilities()),
            permission_mode: None,
            permission_level: PermissionLevel::Default,
            model: ResolvedModelAccess {
                base_url: "http://127.0.0.1:9".to_owned(),
                model_name: "spec-model".to_owned(),
                credential: None,
                credential_kind: CredentialKind::Bearer,
                endpoint_provider: "conformance".to_owned(),
            },
            model_placeholder: PLACEHOLDER.to_owned(),
            mcp_headers: Vec::new(),
            workload: Arc::new(workload.clone()),
            env: environment(),
            conversation,
        }
    }

    pub(super) fn prepare_context(workload: &MemoryWorkload) -> PrepareContext {
        PrepareContext {
            workload: Arc::new(workload.clone()),
            env: environment(),
        }
    }

    /// Activates in this box.
    pub(super) async fn activate(
        &self,
        workload: &MemoryWorkload,
        epoch: u64,
        conversation: Conversation,
    ) -> Result<Box<dyn EngineClient>> {
        let context = self.context(workload, epoch, conversation);
        self.adapter.activate(context).await
    }

    /// Activates in this box and binds.
    pub(super) async fn bind(
        &self,
        workload: &MemoryWorkload,
        epoch: u64,
        conversation: Conversation,
    ) -> Result<(Box<dyn EngineClient>, BoundConversation)> {
        let expected = match &conversation {
            Conversation::New => None,
            Conversation::Resume { native_key } | Conversation::Attach { native_key, .. } => {
                Some(native_key.clone())
            }
        };
        let client = self.activate(workload, epoch, conversation).await?;
        let request = BindRequest {
            expected,
            within: BIND,
        };
        let bound = client.bind_conversation(request).await?;
        Ok((client, bound))
    }

    /// A new conversation with the native program.
    pub(super) async fn session(&self) -> std::result::Result<Session, Stop> {
        let workload = MemoryWorkload::running(self.program(Quirk::Faithful)?);
        self.session_in(workload).await
    }

    /// A new conversation in this box.
    pub(super) async fn session_in(
        &self,
        workload: MemoryWorkload,
    ) -> std::result::Result<Session, Stop> {
        let bound = self.bind(&workload, 1, Conversation::New).await;
        let (client, bound) = bound.doing("begin a conversation")?;
        Ok(Session {
            workload,
            client,
            native_key: bound.native_key,
        })
    }

    /// Puts in place what a resume needs.
    pub(super) fn restore(
        &self,
        workload: &MemoryWorkload,
        native_key: &str,
    ) -> std::result::Result<(), Stop> {
        for (path, content) in self.fixture()?.native_state(native_key) {
            workload
                .files()
                .write(&path, content, WriteOptions::default())
                .doing("put the native state in place")?;
        }
        Ok(())
    }
}

impl Session {
    /// How many times a word is in what the programs of the box were given.
    pub(super) fn given(&self, word: &str) -> usize {
        self.workload
            .spawned()
            .iter()
            .map(|spec| {
                let accepted = self.workload.accepted_stdin(&spec.name);
                String::from_utf8_lossy(&accepted).matches(word).count()
            })
            .sum()
    }
}

/// The environment that every process in a sandbox begins with.
pub(super) fn environment() -> BTreeMap<String, String> {
    [
        ("HOME", HOME.to_owned()),
        ("PATH", format!("{IMAGE_ROOT}/bin:/usr/bin:/bin")),
        ("LANG", "C.UTF-8".to_owned()),
        ("HTTPS_PROXY", "http://127.0.0.1:3128".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
