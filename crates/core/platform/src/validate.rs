//! The checks of what clients write; each names the field.

use std::collections::{BTreeMap, BTreeSet};

use astrabox_egress::DestinationPattern;
use astrabox_engine::EngineCapabilities;
use astrabox_sandbox::BoxPath;
use astrabox_startup::url_destination;
use astrabox_types::{
    ApprovalRule, ContentPart, EngineFeature, EnvironmentSpec, ErrorReason, Json, MAX_AGENT_VAULTS,
    MAX_INPUT_BYTES, MAX_SKILL_BYTES, McpServer, McpTransport, Networking, PermissionLevel,
    ProgramSpec, Repository, ResourceLimits, Skill, VaultId,
};

use crate::{AgentDraft, Error, PageRequest, Result};

const MAX_DESCRIPTION: usize = 2048;
const MAX_SYSTEM: usize = 100_000;
const MAX_HOSTS: usize = 256;
const MAX_CONTENT_PARTS: usize = 100;
const MAX_MCP_SERVERS: usize = 32;
const MAX_MCP_TEXT: usize = 4096;
const MAX_MCP_PARTS: usize = 64;
const MAX_URL: usize = 2048;
const MAX_SKILLS: usize = 64;
/// The most approval rules of an agent.
const MAX_RULES: usize = 64;
const MIB: u64 = 1 << 20;

/// The size of a page.
pub(crate) fn page_size(page: &PageRequest) -> Result<u32> {
    match page.size {
        0 => Ok(100),
        size @ 1..=1000 => Ok(size),
        _ => Err(Error::field("page_size", "is a number from 1 to 1000")),
    }
}

fn length(field: &str, text: &str, least: usize, most: usize) -> Result<()> {
    if text.len() < least || text.len() > most {
        return Err(Error::field(field, format!("has {least} to {most} bytes")));
    }
    Ok(())
}

/// The caller's own labels.
pub(crate) fn metadata(metadata: &BTreeMap<String, String>) -> Result<()> {
    if metadata.len() > 16 {
        return Err(Error::field("metadata", "has at most 16 entries"));
    }
    for (key, value) in metadata {
        length("metadata", key, 1, 64)?;
        length("metadata", value, 0, 512)?;
    }
    Ok(())
}

/// An environment with its defaults already filled in.
pub(crate) fn environment(spec: &EnvironmentSpec) -> Result<()> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if spec.name.is_empty() || spec.name.len() > 64 || !spec.name.bytes().all(plain) {
        return Err(Error::field("spec.name", "is 1 to 64 of a-z, 0-9 and -"));
    }
    // An id in place of a name must never be ambiguous.
    if spec.name.starts_with("env_") {
        return Err(Error::field("spec.name", "does not begin with env_"));
    }
    length("spec.description", &spec.description, 0, MAX_DESCRIPTION)?;
    if let Networking::Limited { allowed_hosts, .. } = &spec.networking {
        if allowed_hosts.len() > MAX_HOSTS {
            return Err(Error::field(
                "spec.networking.limited.allowed_hosts",
                format!("has at most {MAX_HOSTS} hosts"),
            ));
        }
        for host in allowed_hosts {
            host.parse::<DestinationPattern>()
                .map_err(|error| Error::field("spec.networking.limited.allowed_hosts", error))?;
        }
    }
    limits(&spec.limits)
}

/// The program of an environment against its engine.
pub(crate) fn program(
    capabilities: &EngineCapabilities,
    program: Option<&ProgramSpec>,
) -> Result<()> {
    const FIELD: &str = "spec.program";
    let program = match (capabilities.names_program, program) {
        (false, None) => return Ok(()),
        (true, Some(program)) => program,
        (false, Some(_)) => {
            let text = "is for engines that run any program; this one brings its own: leave it out";
            return Err(Error::field(FIELD, text));
        }
        (true, None) => {
            let text = "names the program that this engine runs: give its command";
            return Err(Error::field(FIELD, text));
        }
    };
    let ProgramSpec {
        command,
        arguments,
        env,
        model_wire: _,
        state_directory,
    } = program;
    length("spec.program.command", command, 1, MAX_MCP_TEXT)?;
    if arguments.len() > MAX_MCP_PARTS || env.len() > MAX_MCP_PARTS {
        let text = format!("has at most {MAX_MCP_PARTS} arguments and variables");
        return Err(Error::field(FIELD, text));
    }
    for text in arguments.iter().chain(env.values()).chain([command]) {
        length(FIELD, text, 0, MAX_MCP_TEXT)?;
        if text.contains('\0') {
            return Err(Error::field(FIELD, "has no NUL"));
        }
    }
    let named =
        |name: &String| !name.is_empty() && name.len() <= 256 && !name.contains(['=', '\0']);
    if let Some(name) = env.keys().find(|name| !named(name)) {
        let text = format!("has `{name}`, which is not the name of a variable");
        return Err(Error::field("spec.program.env", text));
    }
    if let Some(path) = state_directory
        && (path.len() > 512 || path.is_empty() || BoxPath::new(format!("/{path}")).is_err())
    {
        let text = format!("has `{path}`, which is not a relative path without `.` and `..`");
        return Err(Error::field("spec.program.state_directory", text));
    }
    Ok(())
}

/// What an agent asks of its program against what the program has.
pub(crate) fn consumed(capabilities: &EngineCapabilities, draft: &AgentDraft) -> Result<()> {
    let over = |wanted: fn(&McpTransport) -> bool| {
        draft
            .mcp_servers
            .iter()
            .any(|server| wanted(&server.transport))
    };
    let asked = [
        (
            !draft.system.is_empty(),
            EngineFeature::SystemPrompt,
            "spec.system: this engine's program takes no instructions besides the inputs",
        ),
        (
            over(|transport| matches!(transport, McpTransport::Stdio { .. })),
            EngineFeature::McpStdio,
            "spec.mcp_servers: this engine's program uses no MCP servers over standard input and output",
        ),
        (
            over(|transport| matches!(transport, McpTransport::Http { .. })),
            EngineFeature::McpHttp,
            "spec.mcp_servers: this engine's program uses no MCP servers over HTTP",
        ),
        (
            !draft.skills.is_empty(),
            EngineFeature::Skills,
            "spec.skills: this engine's program has no skills",
        ),
        (
            !draft.approval_rules.is_empty(),
            EngineFeature::ToolApproval,
            "spec.approval_rules: this engine's program never asks before it calls a tool",
        ),
    ];
    match asked
        .into_iter()
        .find(|(wanted, feature, _)| *wanted && !capabilities.has(*feature))
    {
        None => Ok(()),
        Some((_, feature, text)) => {
            let refused = Error::new(ErrorReason::CapabilityUnavailable, text);
            Err(refused.with("feature", feature.as_str().to_owned()))
        }
    }
}

/// Zeros become the defaults.
pub(crate) fn with_defaults(limits: ResourceLimits, defaults: ResourceLimits) -> ResourceLimits {
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let or32 = |value: u32, default: u32| if value == 0 { default } else { value };
    ResourceLimits {
        memory_bytes: or(limits.memory_bytes, defaults.memory_bytes),
        pids: or32(limits.pids, defaults.pids),
        cpu_millis: or32(limits.cpu_millis, defaults.cpu_millis),
        disk_bytes: or(limits.disk_bytes, defaults.disk_bytes),
        wall_seconds: limits.wall_seconds,
    }
}

fn limits(limits: &ResourceLimits) -> Result<()> {
    let least = [
        ("spec.limits.memory_bytes", limits.memory_bytes, 64 * MIB),
        ("spec.limits.pids", u64::from(limits.pids), 16),
        ("spec.limits.cpu_millis", u64::from(limits.cpu_millis), 50),
        ("spec.limits.disk_bytes", limits.disk_bytes, 64 * MIB),
    ];
    for (field, value, least) in least {
        if value < least {
            return Err(Error::field(field, format!("is at least {least}")));
        }
    }
    Ok(())
}

/// What an agent says, but for what depends on its environment.
pub(crate) fn agent(
    name: &str,
    description: &str,
    model: &str,
    system: &str,
    labels: &BTreeMap<String, String>,
) -> Result<()> {
    length("spec.name", name, 1, 256)?;
    length("spec.description", description, 0, MAX_DESCRIPTION)?;
    length("spec.model", model, 1, 256)?;
    if model.chars().any(char::is_control) {
        return Err(Error::field("spec.model", "has no control characters"));
    }
    length("spec.system", system, 0, MAX_SYSTEM)?;
    metadata(labels)
}

/// An agent's engine options against its engine.
pub(crate) fn engine_options(
    capabilities: &EngineCapabilities,
    options: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Json>> {
    let mut parsed = BTreeMap::new();
    for (name, text) in options {
        let value = Json::parse(text).map_err(|error| {
            Error::field(
                "spec.engine_options",
                format!("block `{name}` is not JSON: {error}"),
            )
        })?;
        parsed.insert(name.clone(), value);
    }
    astrabox_engine::check_options(capabilities, &parsed)
        .map_err(|error| Error::field("spec.engine_options", error.context()))?;
    Ok(parsed)
}

/// The repository of an agent.
pub(crate) fn repository(repository: &Repository) -> Result<()> {
    const FIELD: &str = "spec.repository";
    let Repository { url, branch, depth } = repository;
    length(FIELD, url, 1, MAX_URL)?;
    let path = url
        .strip_prefix("https://")
        .filter(|_| url_destination(url).is_some())
        .and_then(|rest| rest.split_once('/'))
        .map(|(_, path)| path);
    // What git, the boundary and a server could each read in a way of their own is refused.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/+".contains(&b);
    let whole = |segment: &str| !matches!(segment, "" | "." | "..");
    let fits = path.is_some_and(|path| path.bytes().all(plain) && path.split('/').all(whole));
    if !fits {
        let text = format!(
            "has `{url}`, which is not https://host/path of letters, digits and - . _ ~ + (no user, no query)"
        );
        return Err(Error::field(FIELD, text));
    }
    if let Some(branch) = branch {
        length(FIELD, branch, 1, 255)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._/+".contains(&b);
        let odd = branch.starts_with(['-', '/', '.'])
            || branch.ends_with(['/', '.'])
            || branch.contains("..")
            || branch.contains("//")
            || !branch.bytes().all(plain);
        if odd {
            let text = format!("has `{branch}`, which is not the name of a branch or tag");
            return Err(Error::field(FIELD, text));
        }
    }
    if *depth == Some(0) {
        return Err(Error::field(FIELD, "has a depth of 0; leave it out"));
    }
    Ok(())
}

/// The MCP servers of an agent.
pub(crate) fn mcp_servers(servers: &[McpServer]) -> Result<()> {
    const FIELD: &str = "spec.mcp_servers";
    if servers.len() > MAX_MCP_SERVERS {
        return Err(Error::field(
            FIELD,
            format!("has at most {MAX_MCP_SERVERS} servers"),
        ));
    }
    let mut names = BTreeSet::new();
    for server in servers {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        named(FIELD, &server.name, plain, "A-Z, a-z, 0-9, _ and -")?;
        if !names.insert(&server.name) {
            let text = format!("names `{}` twice", server.name);
            return Err(Error::field(FIELD, text));
        }
        match &server.transport {
            McpTransport::Stdio { command, args, env } => {
                length(FIELD, command, 1, MAX_MCP_TEXT)?;
                if args.len() > MAX_MCP_PARTS || env.len() > MAX_MCP_PARTS {
                    let text = format!("has at most {MAX_MCP_PARTS} arguments and variables");
                    return Err(Error::field(FIELD, text));
                }
                let texts = args.iter().chain(env.keys()).chain(env.values());
                for text in texts.chain([command]) {
                    length(FIELD, text, 0, MAX_MCP_TEXT)?;
                    if text.contains('\0') {
                        return Err(Error::field(FIELD, "has no NUL"));
                    }
                }
                if let Some(name) = env
                    .keys()
                    .find(|name| name.is_empty() || name.contains('='))
                {
                    let text = format!("has `{name}`, which is not the name of a variable");
                    return Err(Error::field(FIELD, text));
                }
            }
            McpTransport::Http { url } => {
                length(FIELD, url, 1, MAX_URL)?;
                if url_destination(url).is_none() || url.chars().any(char::is_whitespace) {
                    let text = format!("has `{url}`, which is not an http or https address");
                    return Err(Error::field(FIELD, text));
                }
            }
        }
    }
    Ok(())
}

/// The hosts of an agent's MCP servers against what its environment allows.
pub(crate) fn mcp_hosts(servers: &[McpServer], networking: &Networking) -> Result<()> {
    let Networking::Limited {
        allowed_hosts,
        allow_mcp_servers: false,
    } = networking
    else {
        return Ok(());
    };
    let patterns: Vec<DestinationPattern> = allowed_hosts
        .iter()
        .filter_map(|host| host.parse().ok())
        .collect();
    for server in servers {
        let McpTransport::Http { url } = &server.transport else {
            continue;
        };
        let Some(to) = url_destination(url) else {
            continue;
        };
        // The sandbox's own loopback is no way out.
        let host = to.host.to_string();
        let inside = matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1" | "[::1]");
        let allowed = patterns
            .iter()
            .any(|pattern| pattern.matches(&to.host, to.port));
        if !inside && !allowed {
            return Err(Error::field(
                "agent.mcp_servers",
                format!(
                    "`{}` is at {host}:{}, which the environment's networking does not allow; add it to \
                     networking.limited.allowed_hosts, or set networking.limited.allow_mcp_servers",
                    server.name, to.port
                ),
            ));
        }
    }
    Ok(())
}

/// The approval rules of an agent.
pub(crate) fn approval_rules(rules: &[ApprovalRule]) -> Result<()> {
    const FIELD: &str = "spec.approval_rules";
    if rules.len() > MAX_RULES {
        return Err(Error::field(
            FIELD,
            format!("has at most {MAX_RULES} rules"),
        ));
    }
    for rule in rules {
        length(FIELD, &rule.tool, 1, 256)?;
    }
    Ok(())
}

/// The vaults of an agent.
pub(crate) fn vault_ids(ids: &[VaultId]) -> Result<()> {
    const FIELD: &str = "spec.vault_ids";
    if ids.len() > MAX_AGENT_VAULTS {
        return Err(Error::field(
            FIELD,
            format!("has at most {MAX_AGENT_VAULTS} vaults"),
        ));
    }
    let unique: BTreeSet<_> = ids.iter().collect();
    if unique.len() != ids.len() {
        return Err(Error::field(FIELD, "names a vault twice"));
    }
    Ok(())
}

/// The skills of an agent.
pub(crate) fn skills(skills: &[Skill]) -> Result<()> {
    const FIELD: &str = "spec.skills";
    if skills.len() > MAX_SKILLS {
        let text = format!("has at most {MAX_SKILLS} skills");
        return Err(Error::field(FIELD, text));
    }
    let (mut names, mut bytes) = (BTreeSet::new(), 0);
    for skill in skills {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        named(FIELD, &skill.name, plain, "a-z, 0-9 and -")?;
        if !names.insert(&skill.name) {
            let text = format!("names `{}` twice", skill.name);
            return Err(Error::field(FIELD, text));
        }
        if !skill.files.contains_key("SKILL.md") {
            let text = format!("has no file `SKILL.md` in `{}`", skill.name);
            return Err(Error::field(FIELD, text));
        }
        for (path, content) in &skill.files {
            if path.len() > 512 || BoxPath::new(format!("/{path}")).is_err() {
                let text =
                    format!("has `{path}`, which is not a relative path without `.` and `..`");
                return Err(Error::field(FIELD, text));
            }
            bytes += path.len() + content.len();
        }
    }
    if bytes > MAX_SKILL_BYTES {
        let text = format!("has {bytes} bytes; at most {MAX_SKILL_BYTES} are taken");
        return Err(Error::field(FIELD, text));
    }
    Ok(())
}

fn named(field: &str, name: &str, plain: impl Fn(u8) -> bool, of: &str) -> Result<()> {
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        let text = format!("has a name that is not 1 to 64 of {of}");
        return Err(Error::field(field, text));
    }
    Ok(())
}

/// A permission mode against the engine and the sandbox's level.
pub(crate) fn permission_mode(
    capabilities: &EngineCapabilities,
    level: PermissionLevel,
    mode: &str,
) -> Result<()> {
    let known = |wanted: PermissionLevel| {
        level == PermissionLevel::Advanced || wanted == PermissionLevel::Default
    };
    // Which modes it has, only the program itself can tell: it is asked when the conversation begins.
    if capabilities.names_program && !mode.is_empty() && mode.len() <= 256 {
        return Ok(());
    }
    let fits = capabilities
        .permission_modes
        .iter()
        .any(|known_mode| known_mode.name == mode && known(known_mode.level));
    if fits {
        return Ok(());
    }
    let names: Vec<_> = capabilities
        .permission_modes
        .iter()
        .filter(|mode| known(mode.level))
        .map(|mode| mode.name)
        .collect();
    let list = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Err(Error::new(
        ErrorReason::PermissionModeUnknown,
        format!(
            "`{mode}` is not a permission mode of this engine at this permission level; there are: {list}"
        ),
    ))
}

/// The content of an input against what the engine takes.
pub(crate) fn content(capabilities: &EngineCapabilities, content: &[ContentPart]) -> Result<()> {
    if content.is_empty() || content.iter().all(ContentPart::is_empty) {
        return Err(Error::field(
            "content",
            "has at least one part that is not empty",
        ));
    }
    if content.len() > MAX_CONTENT_PARTS {
        return Err(Error::field(
            "content",
            format!("has at most {MAX_CONTENT_PARTS} parts"),
        ));
    }
    let bytes: usize = content.iter().map(ContentPart::len).sum();
    if bytes > MAX_INPUT_BYTES {
        return Err(Error::new(
            ErrorReason::TooLarge,
            format!("content: has at most {MAX_INPUT_BYTES} bytes in all"),
        ));
    }
    for part in content {
        let wanted = match part {
            ContentPart::Text { .. } => "text",
            ContentPart::Image { .. } => "image",
        };
        if !capabilities.input_content_types.contains(&wanted) {
            return Err(Error::new(
                ErrorReason::CapabilityUnavailable,
                format!("content: this engine takes no `{wanted}` parts"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
