//! A stage for one test: a scripted model, a server process, an agent.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use astrabox_client::{Client, Watch, WatchItem, WatchOptions, text_part, v1};
use astrabox_testkit::model::ScriptedModel;
use astrabox_testkit::server::{ServerOptions, ServerProcess};
use astrabox_types::EngineFeature;
use v1::event::Payload;

use crate::Turn;

/// How long anything in a test may take. Far more than it takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(90);

/// An agent program, in the words that differ between programs. A word for what the program does not have is empty.
#[derive(Debug)]
pub struct Program {
    /// Its name in the matrix: the engine's kind, and more where an engine runs several programs.
    pub name: &'static str,
    /// The engine's kind.
    pub engine: &'static str,
    /// What the environment names, for an engine that runs any program of its protocol.
    pub named: Option<Named>,
    /// What its engine declares and this program of it has not.
    pub lacks: &'static [EngineFeature],
    /// The permission mode in which it never asks.
    pub unasked: &'static str,
    /// The permission mode in which it asks before a command that writes. Where a program has no modes, the engine
    /// options with which it does, as JSON: `{"block": {...}}`.
    pub asking: &'static str,
    /// The choice that allows a call once.
    pub allow: &'static str,
    /// The choice that allows such calls for the session.
    pub allow_for_session: &'static str,
    /// The choice that declines a call.
    pub decline: &'static str,
    /// The choice that declines a call and stops the turn.
    pub decline_and_stop: &'static str,
    /// The name of its process, as the kernel tells it.
    pub process: &'static str,
    /// A shell command that succeeds once the running tool call is in what the program resumes from.
    pub call_is_saved: &'static str,
    /// The topic of the diagnostic that tells of a call that a killed program left.
    pub repair: &'static str,
    /// Its name for the tool `say` of an MCP server `echo`.
    pub mcp_say: &'static str,
    /// Whether it asks before it calls a tool of an MCP server, in the asking mode.
    pub asks_for_mcp: bool,
    /// A prompt upon which it asks `Which colour?`, with the options `Red` and `Blue`.
    pub question: &'static str,
    /// A prompt upon which a sub-agent says `from the child` while its parent waits.
    pub child: &'static str,
    /// A prompt upon which a sub-agent waits at the gate `child`, before it says `never said`.
    pub held_child: &'static str,
    /// A prompt upon which a sub-agent in the background waits at the gate `child` before it says `from the child`.
    pub background_child: &'static str,
    /// A prompt upon which a command in the background waits for the file `go`, or for the end of the second turn, while
    /// the model says `it begins`.
    pub background_command: &'static str,
    /// The variables of the model key and of the endpoint beside `astrabox run`.
    pub key_variables: (&'static str, &'static str),
    /// How a vault's model key is sent.
    pub key_kind: v1::ModelKeyKind,
}

/// A program that an environment names.
#[derive(Debug)]
pub struct Named {
    /// The program's arguments; the program itself is the image's node.
    pub arguments: &'static [&'static str],
    /// Its variables.
    pub env: &'static [(&'static str, &'static str)],
    /// The wire that it speaks to models.
    pub model_wire: &'static str,
    /// The directory below home that is its conversations.
    pub state_directory: &'static str,
    /// Whether it asks the network for nothing but the model, and the model for nothing but the turn.
    pub quiet: bool,
}

impl Program {
    /// Whether it asks the network for nothing but the model, and the model for nothing but the turn.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.named.as_ref().is_none_or(|named| named.quiet)
    }

    /// An environment for it; name and limits are still to be given.
    #[must_use]
    pub fn environment(&self) -> v1::EnvironmentSpec {
        let program = self.named.as_ref().map(|named| v1::ProgramSpec {
            command: "node".to_owned(),
            arguments: named
                .arguments
                .iter()
                .map(|text| (*text).to_owned())
                .collect(),
            env: named
                .env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            model_wire: named.model_wire.to_owned(),
            state_directory: named.state_directory.to_owned(),
        });
        v1::EnvironmentSpec {
            engine: self.engine.to_owned(),
            program,
            ..Default::default()
        }
    }
}

/// Every program, one an engine at least.
pub const PROGRAMS: &[&Program] = &[
    &CLAUDE_CODE,
    &CODEX,
    &ACP_CLAUDE,
    &ACP_CODEX,
    &DEEPSEEK_HARNESS,
    &HERMES,
    &PI,
];

/// Claude Code behind claude-agent-acp, run by the ACP engine.
pub const ACP_CLAUDE: Program = Program {
    name: "acp_claude",
    engine: "acp",
    named: Some(Named {
        arguments: &[
            "/opt/astrabox/image/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
        ],
        env: &[
            ("ANTHROPIC_BASE_URL", "${model.base_url}"),
            ("ANTHROPIC_API_KEY", "${model.key}"),
            ("ANTHROPIC_MODEL", "${model.name}"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("CLAUDE_CODE_MAX_RETRIES", "3"),
            ("DISABLE_AUTOUPDATER", "1"),
            ("DISABLE_TELEMETRY", "1"),
            ("DISABLE_ERROR_REPORTING", "1"),
            ("ENABLE_TOOL_SEARCH", "false"),
        ],
        model_wire: "anthropic_messages",
        state_directory: ".claude/projects",
        quiet: true,
    }),
    lacks: &[],
    allow: "allow-once",
    allow_for_session: "",
    decline: "reject",
    decline_and_stop: "",
    process: "node",
    repair: "",
    ..CLAUDE_CODE
};

/// Codex behind codex-acp, run by the ACP engine.
pub const ACP_CODEX: Program = Program {
    name: "acp_codex",
    engine: "acp",
    named: Some(Named {
        arguments: &[
            "/opt/astrabox/image/node_modules/@agentclientprotocol/codex-acp/dist/index.js",
        ],
        env: &[
            ("ASTRABOX_MODEL_KEY", "${model.key}"),
            ("MODEL_PROVIDER", "astrabox"),
            (
                "CODEX_CONFIG",
                r#"{"model":"${model.name}","web_search":"disabled","check_for_update_on_startup":false,"analytics":{"enabled":false},"features":{"plugins":false},"model_providers":{"astrabox":{"name":"astrabox","base_url":"${model.base_url}/v1","wire_api":"responses","env_key":"ASTRABOX_MODEL_KEY","request_max_retries":3,"stream_max_retries":3}}}"#,
            ),
        ],
        model_wire: "openai_responses",
        state_directory: ".codex/sessions",
        // Codex asks for plugins before it reads that it shall not, and its adapter asks the model for a title.
        quiet: false,
    }),
    // It asks only when the model wants to leave Codex's own sandbox, or to call a tool of an MCP server.
    lacks: &[EngineFeature::ToolApproval, EngineFeature::Question],
    unasked: "agent-full-access",
    asking: "read-only",
    allow: "allow-once",
    allow_for_session: "",
    decline: "reject",
    decline_and_stop: "",
    process: "node",
    call_is_saved: "grep -rqs function_call \"$HOME/.codex/sessions\"",
    ..CODEX
};

/// OpenAI Codex.
pub const CODEX: Program = Program {
    name: "codex",
    engine: "codex",
    named: None,
    lacks: &[],
    unasked: "never",
    asking: "untrusted",
    allow: "accept",
    allow_for_session: "acceptForSession",
    decline: "decline",
    decline_and_stop: "cancel",
    process: "codex",
    call_is_saved: "grep -rqs function_call \"$CODEX_HOME/sessions\"",
    repair: "",
    mcp_say: "mcp__echo.say",
    asks_for_mcp: true,
    question: "",
    child: "SPAWN: SAY: from the child\nWAIT\nSAY: the parent is done",
    held_child: "SPAWN: HOLD: child\\nSAY: never said\nWAIT\nSAY: the parent is done",
    background_child: "",
    background_command: "",
    key_variables: ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    key_kind: v1::ModelKeyKind::Bearer,
};

/// Anthropic Claude Code.
pub const CLAUDE_CODE: Program = Program {
    name: "claude_code",
    engine: "claude_code",
    named: None,
    lacks: &[],
    unasked: "bypassPermissions",
    asking: "default",
    allow: "allow",
    allow_for_session: "allow_session",
    decline: "deny",
    decline_and_stop: "deny_stop",
    process: "claude",
    // The program writes the call a moment after it began.
    call_is_saved: "grep -rqs '\"type\":\"tool_use\"' \"${CLAUDE_CONFIG_DIR:-$HOME/.claude}/projects\"",
    repair: "transcript_repaired",
    mcp_say: "mcp__echo__say",
    asks_for_mcp: true,
    question: r#"TOOL: AskUserQuestion {"questions":[{"question":"Which colour?","header":"Colour","multiSelect":false,"options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}"#,
    child: "TOOL: Agent {\"description\": \"a task\", \"prompt\": \"SAY: from the child\", \
            \"subagent_type\": \"general-purpose\", \"run_in_background\": false}\nSAY: the parent is done",
    held_child: "SPAWN: HOLD: child\\nSAY: never said",
    background_child: "SPAWN: SAY: a child begins\\nHOLD: child\\nSAY: from the child",
    background_command: "TOOL: Bash {\"command\": \"until test -e go; do sleep 0.05; done\", \"description\": \"waits\", \
                         \"run_in_background\": true}\nSAY: it begins",
    key_variables: ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    key_kind: v1::ModelKeyKind::ApiKey,
};

/// DeepSeek Harness.
pub const DEEPSEEK_HARNESS: Program = Program {
    name: "deepseek_harness",
    engine: "deepseek_harness",
    named: None,
    lacks: &[],
    unasked: "danger-full-access",
    asking: "ask",
    allow: "allow-once",
    allow_for_session: "",
    decline: "reject-once",
    decline_and_stop: "",
    // Node names its first thread so.
    process: "MainThread",
    call_is_saved: "grep -rqs '\"type\":\"tool/call\"' \"$HOME/.dsh/sessions\"",
    repair: "",
    mcp_say: "mcp__echo__say",
    asks_for_mcp: true,
    question: r#"TOOL: ask_user_question {"questions":[{"id":"colour","question":"Which colour?","options":[{"label":"Red"},{"label":"Blue"}]}]}"#,
    child: "SPAWN: SAY: from the child\nSAY: the parent is done",
    held_child: "SPAWN: HOLD: child\\nSAY: never said",
    background_child: "",
    // It tells of a command that ends while a turn runs in that turn.
    background_command: "TOOL: bash {\"command\": \"until test $(cat ~/.dsh/sessions/*/*/session.v4.jsonl | \
                         grep -c '^..type.:.turn/end') -ge 2; do sleep 0.05; done\", \"description\": \"waits\", \
                         \"run_in_background\": true}\nSAY: it begins",
    key_variables: ("DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"),
    key_kind: v1::ModelKeyKind::ApiKey,
};

/// Hermes Agent.
pub const HERMES: Program = Program {
    name: "hermes",
    engine: "hermes",
    named: None,
    lacks: &[],
    unasked: "dont_ask",
    asking: "default",
    allow: "allow_once",
    allow_for_session: "allow_session",
    decline: "deny",
    decline_and_stop: "deny_stop",
    process: "python3",
    call_is_saved: "grep -qs '\"name\": \"terminal\"' $HOME/.hermes/state.db $HOME/.hermes/state.db-wal",
    repair: "transcript_repaired",
    mcp_say: "mcp__echo__say",
    asks_for_mcp: true,
    question: "",
    child: "SPAWN: SAY: from the child\nSAY: the parent is done",
    held_child: "SPAWN: HOLD: child\\nSAY: never said\nSAY: the parent is done",
    background_child: "",
    background_command: "",
    key_variables: ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    key_kind: v1::ModelKeyKind::Bearer,
};

/// Pi.
pub const PI: Program = Program {
    name: "pi",
    engine: "pi",
    named: None,
    lacks: &[],
    unasked: "",
    asking: r#"{"approvals":{"ask":["bash","write","edit","mcp__*"]}}"#,
    allow: "allow",
    allow_for_session: "allow_session",
    decline: "deny",
    decline_and_stop: "deny_stop",
    process: "pi",
    call_is_saved: "grep -rqs '\"type\":\"toolCall\"' \"$PI_CODING_AGENT_DIR/sessions\"",
    repair: "transcript_repaired",
    mcp_say: "mcp__echo__say",
    asks_for_mcp: true,
    question: "",
    child: "",
    held_child: "",
    background_child: "",
    background_command: "",
    key_variables: ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    key_kind: v1::ModelKeyKind::Bearer,
};

/// A model, a server and an agent of their own.
pub struct Stage {
    /// The scripted model.
    pub model: ScriptedModel,
    /// The server.
    pub server: ServerProcess,
    /// A client of the server.
    pub client: Client,
    /// The agent.
    pub agent_id: String,
}

/// Fails the test with the whole chain of causes.
///
/// # Panics
/// When it is an error.
pub fn must<T>(result: Result<T, impl Into<anyhow::Error>>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{:?}", error.into()),
    }
}

impl Stage {
    /// A stage with a real program.
    ///
    /// # Errors
    /// When something of it does not come up, as when the image is not built.
    pub async fn of(program: &Program) -> Result<Self> {
        Self::with(program, v1::AgentSpec::default()).await
    }

    /// A stage with a real program and an agent that has more than a name, a model and an environment.
    ///
    /// # Errors
    /// As `of`.
    pub async fn with(program: &Program, agent: v1::AgentSpec) -> Result<Self> {
        Self::build(program, agent, |_| {}).await
    }

    /// A stage whose server is changed before it starts.
    ///
    /// # Errors
    /// As `of`.
    pub async fn build(
        program: &Program,
        agent: v1::AgentSpec,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Result<Self> {
        let model = ScriptedModel::builder().start().await?;
        let mut options = ServerOptions::with_model(model.address());
        change(&mut options);
        Self::over(model, &options, program.environment(), agent).await
    }

    /// A stage with this model, this server, and an environment and an agent of which names and limits are given.
    ///
    /// # Errors
    /// As `of`.
    pub async fn over(
        model: ScriptedModel,
        options: &ServerOptions,
        environment: v1::EnvironmentSpec,
        agent: v1::AgentSpec,
    ) -> Result<Self> {
        let server = ServerProcess::start(options).await?;
        let client = server.client().await?;
        let environment = v1::EnvironmentSpec {
            name: "tested".to_owned(),
            limits: Some(v1::ResourceLimits {
                memory_bytes: 1 << 30,
                disk_bytes: 256 << 20,
                ..Default::default()
            }),
            ..environment
        };
        client
            .create_environment(v1::CreateEnvironmentRequest {
                spec: Some(environment),
                ..Default::default()
            })
            .await?;
        let spec = v1::AgentSpec {
            name: "worker".to_owned(),
            environment: "tested".to_owned(),
            model: "scripted".to_owned(),
            ..agent
        };
        let agent = client
            .create_agent(v1::CreateAgentRequest {
                spec: Some(spec),
                ..Default::default()
            })
            .await?
            .agent
            .context("an agent in the answer")?;
        Ok(Self {
            model,
            server,
            client,
            agent_id: agent.id,
        })
    }

    /// The agent of a conversation in this mode: the stage's own, or one like it with engine options in the place of a
    /// mode.
    async fn agent_for(&self, mode: &str) -> Result<(String, String)> {
        if !mode.starts_with('{') {
            return Ok((self.agent_id.clone(), mode.to_owned()));
        }
        let options: BTreeMap<String, serde_json::Value> = serde_json::from_str(mode)?;
        let request = v1::GetAgentRequest {
            agent_id: self.agent_id.clone(),
            ..Default::default()
        };
        let own = self.client.get_agent(request).await?.agent;
        let mut spec = own.and_then(|agent| agent.spec).context("its agent")?;
        spec.name = "asker".to_owned();
        let options = options.into_iter();
        spec.engine_options
            .extend(options.map(|(name, block)| (name, block.to_string())));
        let request = v1::CreateAgentRequest {
            spec: Some(spec),
            ..Default::default()
        };
        let agent = self.client.create_agent(request).await?.agent;
        Ok((agent.context("an agent in the answer")?.id, String::new()))
    }

    /// A new conversation whose engine is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn conversation(&self, permission_mode: &str) -> Result<Conversation> {
        let (agent_id, permission_mode) = self.agent_for(permission_mode).await?;
        let request = v1::CreateSessionRequest {
            agent_id,
            permission_mode,
            ..Default::default()
        };
        let session = self
            .client
            .create_session(request)
            .await?
            .session
            .context("a session in the answer")?;
        let watch = self
            .client
            .watch(&session.id, WatchOptions::default())
            .await?;
        let mut conversation = Conversation {
            client: self.client.clone(),
            id: session.id,
            watch,
        };
        conversation
            .until_state(v1::SessionState::Ready)
            .await
            .with_context(|| self.server.log())?;
        Ok(conversation)
    }

    /// A conversation that is there, from its begin, with the client that the stage has now.
    ///
    /// # Errors
    /// When it cannot be watched.
    pub async fn again(&self, id: &str) -> Result<Conversation> {
        let watch = self.client.watch(id, WatchOptions::default()).await?;
        Ok(Conversation::resume(self.client.clone(), id, watch))
    }

    /// Removes every session and ends server and model in order.
    ///
    /// # Errors
    /// When something is left.
    pub async fn clear(mut self) -> Result<()> {
        self.remove_all().await?;
        self.server.stop().await?;
        self.model.shutdown().await;
        Ok(())
    }

    /// Removes every session.
    ///
    /// # Errors
    /// When a sandbox is left.
    pub async fn remove_all(&self) -> Result<()> {
        for session in self.client.all_sessions(None, true).await? {
            self.client
                .delete_session(v1::DeleteSessionRequest {
                    session_id: session.id,
                    ..Default::default()
                })
                .await?;
        }
        let left = self
            .client
            .list_sandboxes(v1::ListSandboxesRequest {})
            .await?
            .sandboxes;
        if !left.is_empty() {
            bail!("sandboxes are left: {left:?}");
        }
        Ok(())
    }
}

/// One conversation and the watch on it.
pub struct Conversation {
    /// The client.
    pub client: Client,
    /// The session.
    pub id: String,
    watch: Watch,
}

impl Conversation {
    /// A conversation that is there, seen by this client.
    #[must_use]
    pub fn resume(client: Client, id: &str, watch: Watch) -> Self {
        Self {
            client,
            id: id.to_owned(),
            watch,
        }
    }

    /// The next thing that the watch gives.
    ///
    /// # Errors
    /// When nothing comes in time or the watch ends.
    pub async fn next(&mut self) -> Result<WatchItem> {
        let item = tokio::time::timeout(PATIENCE, self.watch.next())
            .await
            .context("nothing came in time")??;
        item.context("the watch ended")
    }

    /// Sends a prompt.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn send(&self, prompt: &str) -> Result<String> {
        self.send_parts(vec![text_part(prompt)]).await
    }

    /// Sends a prompt of these parts.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn send_parts(&self, content: Vec<v1::ContentPart>) -> Result<String> {
        let request = v1::SendInputRequest {
            session_id: self.id.clone(),
            content,
            ..Default::default()
        };
        Ok(self.client.send_input(request).await?.input_id)
    }

    /// Sends a prompt and reads its turn to the end.
    ///
    /// # Errors
    /// When the turn does not end.
    pub async fn say(&mut self, prompt: &str) -> Result<Turn> {
        self.send(prompt).await?;
        self.turn().await
    }

    /// Reads until a turn has ended.
    ///
    /// # Errors
    /// When none ends.
    pub async fn turn(&mut self) -> Result<Turn> {
        let mut turn = Turn::default();
        while !self
            .read_into(&mut turn, |payload| {
                matches!(payload, Payload::TurnEnded(_))
            })
            .await?
        {}
        Ok(turn)
    }

    /// Reads one item into `turn`; tells whether it was an event of the wanted kind.
    ///
    /// # Errors
    /// As `next`.
    pub async fn read_into(
        &mut self,
        turn: &mut Turn,
        wanted: impl Fn(&Payload) -> bool,
    ) -> Result<bool> {
        match self.next().await? {
            WatchItem::Event(event) => {
                let found = event.payload.as_ref().is_some_and(wanted);
                turn.events.push(*event);
                Ok(found)
            }
            WatchItem::Delta(delta) => {
                turn.deltas.push(delta);
                Ok(false)
            }
            WatchItem::CaughtUp { .. } => Ok(false),
        }
    }

    /// Reads what was there before the watch began.
    ///
    /// # Errors
    /// As `next`.
    pub async fn catch_up(&mut self) -> Result<()> {
        while !matches!(self.next().await?, WatchItem::CaughtUp { .. }) {}
        Ok(())
    }

    /// Reads until the session is in this state.
    ///
    /// # Errors
    /// When it does not come to it, or needs recovery.
    pub async fn until_state(&mut self, state: v1::SessionState) -> Result<()> {
        loop {
            if let WatchItem::Event(event) = self.next().await?
                && let Some(Payload::SessionStatus(status)) = event.payload
            {
                if status.state() == state {
                    return Ok(());
                }
                let stuck = matches!(
                    status.state(),
                    v1::SessionState::RecoveryRequired | v1::SessionState::Hibernated
                );
                if stuck {
                    bail!("the session is {:?}: {}", status.state(), status.reason);
                }
            }
        }
    }

    /// Reads until the engine asks something.
    ///
    /// # Errors
    /// When it does not.
    pub async fn until_asked(&mut self) -> Result<v1::Interaction> {
        loop {
            if let WatchItem::Event(event) = self.next().await?
                && let Some(Payload::InteractionRequested(requested)) = event.payload
            {
                return requested.interaction.context("an interaction in the event");
            }
        }
    }

    /// Answers an interaction with one of its choices.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn choose(&self, interaction: &v1::Interaction, choice: &str) -> Result<()> {
        let choose = v1::Choose {
            choice_id: choice.to_owned(),
            ..Default::default()
        };
        let answer = v1::interaction_answer::Answer::Choose(choose);
        self.respond(interaction, answer).await
    }

    /// Answers an interaction.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn respond(
        &self,
        interaction: &v1::Interaction,
        answer: v1::interaction_answer::Answer,
    ) -> Result<()> {
        let request = v1::RespondInteractionRequest {
            session_id: self.id.clone(),
            interaction_id: interaction.id.clone(),
            answer: Some(v1::InteractionAnswer {
                answer: Some(answer),
            }),
            ..Default::default()
        };
        self.client.respond_interaction(request).await?;
        Ok(())
    }

    /// Changes the permission mode.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn set_mode(&self, mode: &str) -> Result<()> {
        let request = v1::SetPermissionModeRequest {
            session_id: self.id.clone(),
            permission_mode: mode.to_owned(),
            ..Default::default()
        };
        self.client.set_permission_mode(request).await?;
        Ok(())
    }

    /// The whole journal.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn journal(&self) -> Result<Vec<v1::Event>> {
        Ok(self.client.all_events(&self.id, 0).await?)
    }

    /// A file of the sandbox.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn file(&self, path: &str) -> Result<String> {
        let request = v1::ReadFileRequest {
            session_id: self.id.clone(),
            path: path.to_owned(),
        };
        let mut reader = self.client.read_file(request).await?;
        let mut content = Vec::new();
        while let Some(piece) = reader.next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(String::from_utf8(content)?)
    }
}
