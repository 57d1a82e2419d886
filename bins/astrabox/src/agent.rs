//! `astrabox agent`.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::Context as _;
use astrabox_client::v1;
use prost_types::FieldMask;

use crate::args::Global;
use crate::connect::connect;
use crate::exit::Failure;
use crate::out::{Column, Out};
use crate::{pairs, tooling};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes an agent
    Create {
        /// A name for people
        #[arg(long)]
        name: String,
        /// The environment, by id or name
        #[arg(long)]
        environment: String,
        /// The model, by the name that the model endpoint knows
        #[arg(long)]
        model: String,
        #[command(flatten)]
        fields: Fields,
    },
    /// All agents in their latest versions
    List {
        /// Also those that are archived
        #[arg(long)]
        archived: bool,
    },
    /// One agent
    Show {
        /// Its id
        agent: String,
        /// A version [default: the latest]
        #[arg(
            long = "at",
            value_name = "VERSION",
            default_value_t = 0,
            hide_default_value = true
        )]
        version: u32,
    },
    /// All versions of an agent
    Versions {
        /// Its id
        agent: String,
    },
    /// Changes what is given and makes a new version
    Update {
        /// Its id
        agent: String,
        /// A name for people
        #[arg(long)]
        name: Option<String>,
        /// The environment, by id or name
        #[arg(long)]
        environment: Option<String>,
        /// The model
        #[arg(long)]
        model: Option<String>,
        #[command(flatten)]
        fields: Fields,
        /// Only if this is the stored version
        #[arg(
            long = "if-version",
            value_name = "VERSION",
            default_value_t = 0,
            hide_default_value = true
        )]
        version: u32,
    },
    /// Takes no new sessions of an agent from now on
    Archive {
        /// Its id
        agent: String,
    },
}

/// What may be left out.
#[derive(Debug, clap::Args)]
pub(crate) struct Fields {
    /// A text for people
    #[arg(long)]
    description: Option<String>,
    /// Instructions
    #[arg(long, conflicts_with = "system_file")]
    system: Option<String>,
    /// A file with instructions
    #[arg(long, value_name = "FILE")]
    system_file: Option<PathBuf>,
    /// A block of native options; may be given again
    #[arg(long = "option", value_name = "BLOCK=JSON")]
    options: Vec<String>,
    /// The permission mode that sessions begin with, by native name
    #[arg(long)]
    permission_mode: Option<String>,
    /// A git repository over HTTPS that an empty workspace begins with
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
    /// Its branch or tag
    #[arg(long, value_name = "NAME", requires = "repository")]
    repository_branch: Option<String>,
    /// How many commits of its history
    #[arg(long, value_name = "N", requires = "repository")]
    repository_depth: Option<u32>,
    /// An MCP server, as {"command":"...","args":[...],"env":{...}} or {"url":"..."}; may be given again
    #[arg(long = "mcp-server", value_name = "NAME=JSON")]
    mcp_servers: Vec<String>,
    /// A folder with a skill, named as the skill; may be given again
    #[arg(long = "skill", value_name = "DIR")]
    skills: Vec<PathBuf>,
    /// What is done when the program asks for a tool: allow, deny or ask; `*` in the name stands for any characters,
    /// the first that fits decides; may be given again
    #[arg(long = "approval", value_name = "TOOL=DECISION")]
    approvals: Vec<String>,
    /// A vault whose credentials its sessions may use, by id; may be given again, the first counts first
    #[arg(long = "vault", value_name = "ID")]
    vaults: Vec<String>,
    /// A label; may be given again
    #[arg(long, value_name = "KEY=VALUE")]
    metadata: Vec<String>,
}

const COLUMNS: &[Column] = &[
    ("ID", "/id"),
    ("VERSION", "/version"),
    ("NAME", "/spec/name"),
    ("MODEL", "/spec/model"),
    ("ENVIRONMENT", "/spec/environment"),
    ("ARCHIVED", "/archived"),
    ("UPDATED", "/updated_at"),
];

pub(crate) async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    let out = Out::new(global.json);
    let show =
        |agent: Option<v1::Agent>| out.object(&out.message("Agent", &agent.unwrap_or_default()));
    let list = |agents: Vec<v1::Agent>| {
        out.table(
            "agents",
            agents
                .iter()
                .map(|agent| out.message("Agent", agent))
                .collect(),
            COLUMNS,
        )
    };
    match command {
        Command::Create {
            name,
            environment,
            model,
            fields,
        } => {
            let fields = fields.read()?;
            let spec = v1::AgentSpec {
                name,
                environment,
                model,
                ..fields.spec
            };
            let request = v1::CreateAgentRequest {
                spec: Some(spec),
                ..Default::default()
            };
            show(connect(global).await?.create_agent(request).await?.agent)
        }
        Command::List { archived } => list(connect(global).await?.all_agents(archived).await?),
        Command::Show {
            agent: agent_id,
            version,
        } => {
            let request = v1::GetAgentRequest { agent_id, version };
            show(connect(global).await?.get_agent(request).await?.agent)
        }
        Command::Versions { agent } => {
            list(connect(global).await?.all_agent_versions(&agent).await?)
        }
        Command::Update {
            agent,
            name,
            environment,
            model,
            fields,
            version,
        } => {
            let mut read = fields.read()?;
            read.take("name", name, |spec| &mut spec.name);
            read.take("environment", environment, |spec| &mut spec.environment);
            read.take("model", model, |spec| &mut spec.model);
            let request = read.into_update(agent, version)?;
            show(connect(global).await?.update_agent(request).await?.agent)
        }
        Command::Archive { agent: agent_id } => {
            let request = v1::ArchiveAgentRequest {
                agent_id,
                ..Default::default()
            };
            show(connect(global).await?.archive_agent(request).await?.agent)
        }
    }
}

/// A spec with the fields that were given, and their names.
#[derive(Default)]
struct Given {
    spec: v1::AgentSpec,
    paths: Vec<String>,
}

impl Given {
    fn take(
        &mut self,
        path: &str,
        value: Option<String>,
        field: impl Fn(&mut v1::AgentSpec) -> &mut String,
    ) {
        if let Some(value) = value {
            *field(&mut self.spec) = value;
            self.paths.push(path.to_owned());
        }
    }

    fn take_map(
        &mut self,
        path: &str,
        value: HashMap<String, String>,
        field: impl Fn(&mut v1::AgentSpec) -> &mut HashMap<String, String>,
    ) {
        if !value.is_empty() {
            *field(&mut self.spec) = value;
            self.paths.push(path.to_owned());
        }
    }

    fn into_update(self, agent_id: String, version: u32) -> anyhow::Result<v1::UpdateAgentRequest> {
        if self.paths.is_empty() {
            return Err(Failure::usage(
                "nothing to change: give at least one option",
            ));
        }
        Ok(v1::UpdateAgentRequest {
            agent_id,
            spec: Some(self.spec),
            update_mask: Some(FieldMask { paths: self.paths }),
            version,
            idempotency_key: String::new(),
        })
    }
}

impl Fields {
    fn read(self) -> anyhow::Result<Given> {
        let Self {
            description,
            system,
            system_file,
            options,
            permission_mode,
            repository,
            repository_branch,
            repository_depth,
            mcp_servers,
            skills,
            approvals,
            vaults,
            metadata,
        } = self;
        let system = match system_file {
            Some(file) => Some(
                std::fs::read_to_string(&file)
                    .with_context(|| format!("--system-file: {} cannot be read", file.display()))?,
            ),
            None => system,
        };
        let mut given = Given::default();
        given.take("description", description, |spec| &mut spec.description);
        given.take("system", system, |spec| &mut spec.system);
        given.take("permission_mode", permission_mode, |spec| {
            &mut spec.permission_mode
        });
        given.take_map(
            "engine_options",
            pairs::read("--option", &options)?,
            |spec| &mut spec.engine_options,
        );
        if let Some(url) = repository {
            given.spec.repository = Some(v1::Repository {
                url,
                branch: repository_branch.unwrap_or_default(),
                depth: repository_depth.unwrap_or_default(),
            });
            given.paths.push("repository".to_owned());
        }
        if !mcp_servers.is_empty() {
            let servers = mcp_servers.iter().map(|text| tooling::mcp_server(text));
            given.spec.mcp_servers = servers.collect::<anyhow::Result<_>>()?;
            given.paths.push("mcp_servers".to_owned());
        }
        if !skills.is_empty() {
            let skills = skills.iter().map(|folder| tooling::skill(folder));
            given.spec.skills = skills.collect::<anyhow::Result<_>>()?;
            given.paths.push("skills".to_owned());
        }
        if !approvals.is_empty() {
            let rules = approvals.iter().map(|text| tooling::approval_rule(text));
            given.spec.approval_rules = rules.collect::<anyhow::Result<_>>()?;
            given.paths.push("approval_rules".to_owned());
        }
        if !vaults.is_empty() {
            given.spec.vault_ids = vaults;
            given.paths.push("vault_ids".to_owned());
        }
        given.take_map("metadata", pairs::read("--metadata", &metadata)?, |spec| {
            &mut spec.metadata
        });
        Ok(given)
    }
}
