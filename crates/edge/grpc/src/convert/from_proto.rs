//! From the wire. What is missing or malformed is refused by the name of its field.

use std::collections::BTreeMap;
use std::str::FromStr;

use astrabox_platform::{
    AgentDraft, AgentUpdate, EnvironmentUpdate, Error, PageRequest, Result, SessionDraft,
    SessionFilter,
};
use astrabox_proto::v1;
use astrabox_types::{
    ContentPart, EnvironmentSpec, ImageMediaType, Networking, ParseIdError, PermissionLevel,
    ProgramSpec, ResourceLimits, VaultId,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::tooling;
use crate::mask::Mask;

/// An id that must be given.
pub(crate) fn id<T: FromStr<Err = ParseIdError>>(field: &str, text: &str) -> Result<T> {
    if text.is_empty() {
        return Err(Error::field(field, "must be given"));
    }
    text.parse().map_err(|error| Error::field(field, error))
}

/// A text that must be given.
pub(crate) fn given(field: &str, text: String) -> Result<String> {
    if text.is_empty() {
        return Err(Error::field(field, "must be given"));
    }
    Ok(text)
}

/// A text that may be left empty.
pub(crate) fn optional(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// A version where 0 stands for none.
pub(crate) fn nonzero(version: u32) -> Option<u32> {
    (version != 0).then_some(version)
}

/// A page; its limits are the platform's affair.
pub(crate) fn page(size: i32, token: String) -> Result<PageRequest> {
    let size =
        u32::try_from(size).map_err(|_| Error::field("page_size", "must not be negative"))?;
    Ok(PageRequest {
        size,
        token: optional(token),
    })
}

/// The content of an input; may be empty.
pub(crate) fn content(parts: Vec<v1::ContentPart>) -> Result<Vec<ContentPart>> {
    parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| content_part(index, part))
        .collect()
}

fn content_part(index: usize, part: v1::ContentPart) -> Result<ContentPart> {
    match part.part {
        None => Err(Error::field(
            &format!("content[{index}]"),
            "must be a text or an image",
        )),
        Some(v1::content_part::Part::Text(text)) => Ok(ContentPart::Text { text }),
        Some(v1::content_part::Part::Image(v1::Image { media_type, data })) => {
            let Some(media_type) = media_type_of(&media_type) else {
                return Err(Error::field(
                    &format!("content[{index}].image.media_type"),
                    "must be image/png, image/jpeg, image/gif or image/webp",
                ));
            };
            Ok(ContentPart::Image {
                media_type,
                data: STANDARD.encode(data),
            })
        }
    }
}

fn media_type_of(text: &str) -> Option<ImageMediaType> {
    [
        ImageMediaType::Png,
        ImageMediaType::Jpeg,
        ImageMediaType::Gif,
        ImageMediaType::Webp,
    ]
    .into_iter()
    .find(|known| known.as_str() == text)
}

pub(crate) fn session_draft(request: v1::CreateSessionRequest) -> Result<SessionDraft> {
    let v1::CreateSessionRequest {
        agent_id,
        agent_version,
        title,
        metadata,
        permission_mode,
        content: parts,
        idempotency_key: _,
    } = request;
    Ok(SessionDraft {
        agent_id: id("agent_id", &agent_id)?,
        agent_version: nonzero(agent_version),
        title,
        metadata: metadata.into_iter().collect(),
        permission_mode: optional(permission_mode),
        content: content(parts)?,
    })
}

pub(crate) fn session_filter(request: &v1::ListSessionsRequest) -> Result<SessionFilter> {
    let agent_id = match request.agent_id.as_str() {
        "" => None,
        text => Some(id("agent_id", text)?),
    };
    Ok(SessionFilter {
        agent_id,
        include_archived: request.include_archived,
    })
}

fn vault_ids(texts: &[String]) -> Result<Vec<VaultId>> {
    texts
        .iter()
        .map(|text| id("spec.vault_ids", text))
        .collect()
}

pub(crate) fn agent_draft(spec: Option<v1::AgentSpec>) -> Result<AgentDraft> {
    let v1::AgentSpec {
        name,
        description,
        environment,
        model,
        system,
        engine_options,
        permission_mode,
        repository,
        mcp_servers,
        skills,
        approval_rules,
        vault_ids: vaults,
        metadata,
    } = spec.ok_or_else(no_spec)?;
    Ok(AgentDraft {
        name,
        description,
        environment: given("spec.environment", environment)?,
        model,
        system,
        engine_options: engine_options.into_iter().collect(),
        permission_mode: optional(permission_mode),
        repository: repository.map(tooling::repository_from_proto),
        mcp_servers: tooling::servers_from_proto(mcp_servers)?,
        skills: tooling::skills_from_proto(skills),
        approval_rules: tooling::rules_from_proto(approval_rules)?,
        vault_ids: vault_ids(&vaults)?,
        metadata: metadata.into_iter().collect(),
    })
}

pub(crate) fn agent_update(request: v1::UpdateAgentRequest) -> Result<AgentUpdate> {
    const FIELDS: &[&str] = &[
        "name",
        "description",
        "environment",
        "model",
        "system",
        "engine_options",
        "permission_mode",
        "repository",
        "mcp_servers",
        "skills",
        "approval_rules",
        "vault_ids",
        "metadata",
    ];
    let v1::UpdateAgentRequest {
        agent_id: _,
        spec,
        update_mask,
        version,
        idempotency_key: _,
    } = request;
    let mask = Mask::of(update_mask, FIELDS, &[])?;
    let v1::AgentSpec {
        name,
        description,
        environment,
        model,
        system,
        engine_options,
        permission_mode,
        repository,
        mcp_servers,
        skills,
        approval_rules,
        vault_ids: vaults,
        metadata,
    } = spec.ok_or_else(no_spec)?;
    let environment = mask
        .take("environment", environment)
        .map(|text| given("spec.environment", text))
        .transpose()?;
    Ok(AgentUpdate {
        version: nonzero(version),
        name: mask.take("name", name),
        description: mask.take("description", description),
        environment,
        model: mask.take("model", model),
        system: mask.take("system", system),
        engine_options: mask.take(
            "engine_options",
            engine_options.into_iter().collect::<BTreeMap<_, _>>(),
        ),
        permission_mode: mask.take("permission_mode", optional(permission_mode)),
        repository: mask.take("repository", repository.map(tooling::repository_from_proto)),
        mcp_servers: mask.take("mcp_servers", tooling::servers_from_proto(mcp_servers)?),
        skills: mask.take("skills", tooling::skills_from_proto(skills)),
        approval_rules: mask.take("approval_rules", tooling::rules_from_proto(approval_rules)?),
        vault_ids: mask.take("vault_ids", vault_ids(&vaults)?),
        metadata: mask.take("metadata", metadata.into_iter().collect::<BTreeMap<_, _>>()),
    })
}

pub(crate) fn environment_spec(spec: Option<v1::EnvironmentSpec>) -> Result<EnvironmentSpec> {
    let v1::EnvironmentSpec {
        name,
        description,
        engine,
        sandbox,
        image,
        model_provider,
        networking: network,
        permission_level: level,
        limits: wanted,
        program,
    } = spec.ok_or_else(no_spec)?;
    Ok(EnvironmentSpec {
        name: given("spec.name", name)?,
        description,
        engine: given("spec.engine", engine)?,
        sandbox,
        image: optional(image),
        model_provider,
        networking: networking(network)?,
        permission_level: permission_level(level)?,
        limits: limits(wanted),
        program: program.map(program_spec),
    })
}

fn program_spec(spec: v1::ProgramSpec) -> ProgramSpec {
    let v1::ProgramSpec {
        command,
        arguments,
        env,
        model_wire,
        state_directory,
    } = spec;
    ProgramSpec {
        command,
        arguments,
        env: env.into_iter().collect(),
        model_wire,
        state_directory: optional(state_directory),
    }
}

pub(crate) fn environment_update(
    request: v1::UpdateEnvironmentRequest,
) -> Result<EnvironmentUpdate> {
    const FIELDS: &[&str] = &[
        "description",
        "image",
        "model_provider",
        "sandbox",
        "networking",
        "permission_level",
        "limits",
        "program",
    ];
    let v1::UpdateEnvironmentRequest {
        environment: _,
        spec,
        update_mask,
        version,
        idempotency_key: _,
    } = request;
    let mask = Mask::of(update_mask, FIELDS, &["name", "engine"])?;
    let v1::EnvironmentSpec {
        name: _,
        description,
        engine: _,
        sandbox,
        image,
        model_provider,
        networking: network,
        permission_level: level,
        limits: wanted,
        program,
    } = spec.ok_or_else(no_spec)?;
    Ok(EnvironmentUpdate {
        version: nonzero(version),
        description: mask.take("description", description),
        image: mask.take("image", optional(image)),
        sandbox: mask.take("sandbox", sandbox),
        model_provider: mask.take("model_provider", model_provider),
        networking: mask
            .take("networking", network)
            .map(networking)
            .transpose()?,
        permission_level: mask
            .take("permission_level", level)
            .map(permission_level)
            .transpose()?,
        limits: mask.take("limits", wanted).map(limits),
        program: mask.take("program", program.map(program_spec)),
    })
}

fn networking(networking: Option<v1::Networking>) -> Result<Networking> {
    let Some(networking) = networking else {
        return Ok(Networking::Limited {
            allowed_hosts: Vec::new(),
            allow_mcp_servers: false,
        });
    };
    match networking.r#type {
        None => Err(Error::field(
            "spec.networking",
            "must be limited or unrestricted",
        )),
        Some(v1::networking::Type::Limited(v1::LimitedNetworking {
            allowed_hosts,
            allow_mcp_servers,
        })) => Ok(Networking::Limited {
            allowed_hosts,
            allow_mcp_servers,
        }),
        Some(v1::networking::Type::Unrestricted(v1::UnrestrictedNetworking {})) => {
            Ok(Networking::Unrestricted)
        }
    }
}

fn permission_level(level: i32) -> Result<PermissionLevel> {
    match v1::PermissionLevel::try_from(level) {
        Ok(v1::PermissionLevel::Unspecified | v1::PermissionLevel::Default) => {
            Ok(PermissionLevel::Default)
        }
        Ok(v1::PermissionLevel::Advanced) => Ok(PermissionLevel::Advanced),
        Err(_) => Err(Error::field(
            "spec.permission_level",
            "is no permission level",
        )),
    }
}

/// Zeros stand for the server's defaults, which the platform fills in.
fn limits(limits: Option<v1::ResourceLimits>) -> ResourceLimits {
    let v1::ResourceLimits {
        memory_bytes,
        pids,
        cpu_millis,
        disk_bytes,
        wall_seconds,
    } = limits.unwrap_or_default();
    ResourceLimits {
        memory_bytes,
        pids,
        cpu_millis,
        disk_bytes,
        wall_seconds,
    }
}

fn no_spec() -> Error {
    Error::field("spec", "must be given")
}
