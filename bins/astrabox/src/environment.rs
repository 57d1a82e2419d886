//! `astrabox environment`.

use astrabox_client::v1;
use prost_types::FieldMask;
use serde_json::json;

use crate::args::Global;
use crate::connect::connect;
use crate::exit::Failure;
use crate::out::{Column, Out};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Makes an environment
    Create {
        /// A unique name: 1 to 64 of a-z, 0-9 and -
        #[arg(long)]
        name: String,
        /// The engine's kind, as codex
        #[arg(long)]
        engine: String,
        #[command(flatten)]
        fields: Fields,
    },
    /// All environments
    List,
    /// One environment
    Show {
        /// Its id or name
        environment: String,
    },
    /// Changes what is given
    Update {
        /// Its id or name
        environment: String,
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
    /// Removes an environment that no agent uses
    Delete {
        /// Its id or name
        environment: String,
    },
}

/// What may be left out.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Fields {
    /// A text for people
    #[arg(long)]
    description: Option<String>,
    /// The sandbox provider [default: the server's]
    #[arg(long)]
    sandbox: Option<String>,
    /// The image [default: the engine's own]
    #[arg(long)]
    image: Option<String>,
    /// The model endpoint provider [default: the server's]
    #[arg(long)]
    model_provider: Option<String>,
    #[command(flatten)]
    pub(crate) network: Network,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    program: Program,
}

/// The program, for an engine that runs any program of its protocol, as acp. An update takes all of it.
#[derive(Debug, Default, clap::Args)]
struct Program {
    /// The program inside the sandbox and its arguments: --program my-agent --program=--stdio
    #[arg(long = "program", value_name = "WORD", allow_hyphen_values = true)]
    command: Vec<String>,
    /// A variable of the program: NAME=VALUE; not for secrets
    #[arg(long = "program-env", value_name = "NAME=VALUE", value_parser = pair, requires = "command")]
    env: Vec<(String, String)>,
    /// The wire that the program speaks to models: anthropic_messages, openai_responses or openai_chat
    #[arg(long = "program-model-wire", value_name = "WIRE", requires = "command")]
    model_wire: Option<String>,
    /// The directory below the home directory whose files are the conversation
    #[arg(long = "program-state", value_name = "DIRECTORY", requires = "command")]
    state_directory: Option<String>,
}

/// What a sandbox may reach and use of the kernel.
#[derive(Debug, Default, Clone, clap::Args)]
pub(crate) struct Network {
    /// A host that the sandbox may reach: example.com, *.example.com, example.com:8443, 203.0.113.0/24; may be given again
    #[arg(
        long = "allow-host",
        value_name = "HOST",
        conflicts_with = "unrestricted"
    )]
    pub(crate) allow_hosts: Vec<String>,
    /// Lets the sandbox reach the agent's own MCP servers, wherever they are
    #[arg(long, conflicts_with = "unrestricted")]
    pub(crate) allow_mcp_servers: bool,
    /// Lets the sandbox reach every public host
    #[arg(long)]
    pub(crate) unrestricted: bool,
    /// How much of the kernel the sandbox may use
    #[arg(long, value_enum)]
    pub(crate) permission_level: Option<Level>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// No namespaces, no mounts
    Default,
    /// User namespaces and mounts inside the sandbox
    Advanced,
}

#[derive(Debug, Default, clap::Args)]
struct Limits {
    /// Memory, as 4GiB; all limits that are not given become the server's defaults
    #[arg(long, value_parser = crate::bytes::read, value_name = "SIZE")]
    memory: Option<u64>,
    /// Processes and threads
    #[arg(long)]
    pids: Option<u32>,
    /// CPU time, thousandths of one core
    #[arg(long)]
    cpu_millis: Option<u32>,
    /// The volume, as 10GiB
    #[arg(long, value_parser = crate::bytes::read, value_name = "SIZE")]
    disk: Option<u64>,
    /// How long one engine process may live, seconds
    #[arg(long)]
    wall_seconds: Option<u64>,
}

const COLUMNS: &[Column] = &[
    ("NAME", "/spec/name"),
    ("ID", "/id"),
    ("ENGINE", "/spec/engine"),
    ("SANDBOX", "/spec/sandbox"),
    ("HOSTS", "/spec/networking/limited/allowed_hosts"),
    ("VERSION", "/version"),
    ("UPDATED", "/updated_at"),
];

pub(crate) async fn run(global: &Global, command: Command) -> anyhow::Result<()> {
    let out = Out::new(global.json);
    let client = connect(global).await?;
    let show = |environment: Option<v1::Environment>| {
        out.object(&out.message("Environment", &environment.unwrap_or_default()))
    };
    match command {
        Command::Create {
            name,
            engine,
            fields,
        } => {
            let spec = v1::EnvironmentSpec {
                name,
                engine,
                ..fields.given().spec
            };
            let request = v1::CreateEnvironmentRequest {
                spec: Some(spec),
                ..Default::default()
            };
            show(client.create_environment(request).await?.environment)
        }
        Command::List => {
            let all = client.all_environments().await?;
            let rows = all
                .iter()
                .map(|environment| out.message("Environment", environment))
                .collect();
            out.table("environments", rows, COLUMNS)
        }
        Command::Show { environment } => show(
            client
                .get_environment(v1::GetEnvironmentRequest { environment })
                .await?
                .environment,
        ),
        Command::Update {
            environment,
            fields,
            version,
        } => {
            let Given { spec, paths } = fields.given();
            if paths.is_empty() {
                return Err(Failure::usage(
                    "nothing to change: give at least one option",
                ));
            }
            let request = v1::UpdateEnvironmentRequest {
                environment,
                spec: Some(spec),
                update_mask: Some(FieldMask { paths }),
                version,
                idempotency_key: String::new(),
            };
            show(client.update_environment(request).await?.environment)
        }
        Command::Delete { environment } => {
            let request = v1::DeleteEnvironmentRequest {
                environment: environment.clone(),
                ..Default::default()
            };
            client.delete_environment(request).await?;
            out.done(
                &json!({ "deleted": environment }),
                &format!("{environment} is deleted"),
            )
        }
    }
}

/// A spec with the fields that were given, and their names.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) spec: v1::EnvironmentSpec,
    paths: Vec<String>,
}

impl Given {
    fn text(
        &mut self,
        path: &str,
        value: Option<String>,
        field: impl Fn(&mut v1::EnvironmentSpec) -> &mut String,
    ) {
        if let Some(value) = value {
            *field(&mut self.spec) = value;
            self.paths.push(path.to_owned());
        }
    }
}

impl Fields {
    /// Only what the network options say.
    pub(crate) fn of_network(network: Network) -> Self {
        Self {
            network,
            ..Self::default()
        }
    }

    pub(crate) fn given(self) -> Given {
        let Self {
            description,
            sandbox,
            image,
            model_provider,
            network,
            limits,
            program,
        } = self;
        let mut given = Given::default();
        given.text("description", description, |spec| &mut spec.description);
        given.text("sandbox", sandbox, |spec| &mut spec.sandbox);
        given.text("image", image, |spec| &mut spec.image);
        given.text("model_provider", model_provider, |spec| {
            &mut spec.model_provider
        });
        let networking = match network {
            Network {
                unrestricted: true, ..
            } => Some(v1::networking::Type::Unrestricted(
                v1::UnrestrictedNetworking {},
            )),
            Network {
                ref allow_hosts,
                allow_mcp_servers,
                ..
            } if allow_mcp_servers || !allow_hosts.is_empty() => {
                Some(v1::networking::Type::Limited(v1::LimitedNetworking {
                    allowed_hosts: allow_hosts.clone(),
                    allow_mcp_servers,
                }))
            }
            Network { .. } => None,
        };
        if networking.is_some() {
            given.spec.networking = Some(v1::Networking { r#type: networking });
            given.paths.push("networking".to_owned());
        }
        if let Some(level) = network.permission_level {
            given.spec.permission_level = match level {
                Level::Default => v1::PermissionLevel::Default.into(),
                Level::Advanced => v1::PermissionLevel::Advanced.into(),
            };
            given.paths.push("permission_level".to_owned());
        }
        if let Some(limits) = limits.given() {
            given.spec.limits = Some(limits);
            given.paths.push("limits".to_owned());
        }
        if let Some(program) = program.given() {
            given.spec.program = Some(program);
            given.paths.push("program".to_owned());
        }
        given
    }
}

/// Reads one `NAME=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it is not NAME=VALUE".to_owned()),
    }
}

impl Program {
    fn given(self) -> Option<v1::ProgramSpec> {
        let Self {
            command,
            env,
            model_wire,
            state_directory,
        } = self;
        let mut words = command.into_iter();
        Some(v1::ProgramSpec {
            command: words.next()?,
            arguments: words.collect(),
            env: env.into_iter().collect(),
            model_wire: model_wire.unwrap_or_default(),
            state_directory: state_directory.unwrap_or_default(),
        })
    }
}

impl Limits {
    fn given(self) -> Option<v1::ResourceLimits> {
        let Self {
            memory,
            pids,
            cpu_millis,
            disk,
            wall_seconds,
        } = self;
        let limits = v1::ResourceLimits {
            memory_bytes: memory.unwrap_or_default(),
            pids: pids.unwrap_or_default(),
            cpu_millis: cpu_millis.unwrap_or_default(),
            disk_bytes: disk.unwrap_or_default(),
            wall_seconds: wall_seconds.unwrap_or_default(),
        };
        (limits != v1::ResourceLimits::default()).then_some(limits)
    }
}
