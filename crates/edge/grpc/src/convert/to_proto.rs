//! Resources to the wire.

use std::fmt::Display;

use astrabox_platform::{
    BoundaryState, EngineView, FileInfo, FileKind, LimitState, Posture, SandboxInfo, SandboxState,
    SandboxView, SessionView,
};
use astrabox_proto::v1;
use astrabox_types::{
    Agent, AgentSpec, Environment, EnvironmentSpec, Networking, PermissionLevel, ProgramSpec,
    ResourceLimits, Session, SessionState, Timestamp,
};

use super::tooling;

/// An id that may be absent: empty then.
pub(crate) fn id(id: Option<impl Display>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

pub(crate) fn timestamp(at: Timestamp) -> Option<prost_types::Timestamp> {
    // Before 1970 jiff counts the fraction backwards too; protobuf always counts it forwards.
    let (mut seconds, mut nanos) = (at.as_second(), at.subsec_nanosecond());
    if nanos < 0 {
        seconds -= 1;
        nanos += 1_000_000_000;
    }
    Some(prost_types::Timestamp { seconds, nanos })
}

pub(crate) fn agent(agent: Agent) -> v1::Agent {
    let Agent {
        id,
        version,
        spec,
        archived,
        created_at,
        updated_at,
    } = agent;
    v1::Agent {
        id: id.to_string(),
        version,
        spec: Some(agent_spec(spec)),
        archived,
        created_at: timestamp(created_at),
        updated_at: timestamp(updated_at),
    }
}

fn agent_spec(spec: AgentSpec) -> v1::AgentSpec {
    let AgentSpec {
        name,
        description,
        environment_id,
        model,
        system,
        engine_options,
        permission_mode,
        repository,
        mcp_servers,
        skills,
        approval_rules,
        vault_ids,
        metadata,
    } = spec;
    v1::AgentSpec {
        name,
        description,
        environment: environment_id.to_string(),
        model,
        system,
        engine_options: engine_options
            .into_iter()
            .map(|(name, block)| (name, block.text().to_owned()))
            .collect(),
        permission_mode: permission_mode.unwrap_or_default(),
        repository: repository.map(tooling::repository_to_proto),
        mcp_servers: mcp_servers
            .into_iter()
            .map(tooling::server_to_proto)
            .collect(),
        skills: skills.into_iter().map(tooling::skill_to_proto).collect(),
        approval_rules: approval_rules
            .into_iter()
            .map(tooling::rule_to_proto)
            .collect(),
        vault_ids: vault_ids.iter().map(ToString::to_string).collect(),
        metadata: metadata.into_iter().collect(),
    }
}

pub(crate) fn environment(environment: Environment) -> v1::Environment {
    let Environment {
        id,
        spec,
        version,
        created_at,
        updated_at,
    } = environment;
    v1::Environment {
        id: id.to_string(),
        spec: Some(environment_spec(spec)),
        version,
        created_at: timestamp(created_at),
        updated_at: timestamp(updated_at),
    }
}

fn environment_spec(spec: EnvironmentSpec) -> v1::EnvironmentSpec {
    let EnvironmentSpec {
        name,
        description,
        engine,
        sandbox,
        image,
        model_provider,
        networking,
        permission_level: level,
        limits,
        program,
    } = spec;
    let ResourceLimits {
        memory_bytes,
        pids,
        cpu_millis,
        disk_bytes,
        wall_seconds,
    } = limits;
    let network = match networking {
        Networking::Limited {
            allowed_hosts,
            allow_mcp_servers,
        } => v1::networking::Type::Limited(v1::LimitedNetworking {
            allowed_hosts,
            allow_mcp_servers,
        }),
        Networking::Unrestricted => {
            v1::networking::Type::Unrestricted(v1::UnrestrictedNetworking {})
        }
    };
    v1::EnvironmentSpec {
        name,
        description,
        engine,
        sandbox,
        image: image.unwrap_or_default(),
        model_provider,
        networking: Some(v1::Networking {
            r#type: Some(network),
        }),
        permission_level: permission_level(level).into(),
        limits: Some(v1::ResourceLimits {
            memory_bytes,
            pids,
            cpu_millis,
            disk_bytes,
            wall_seconds,
        }),
        program: program.map(program_spec),
    }
}

fn program_spec(spec: ProgramSpec) -> v1::ProgramSpec {
    let ProgramSpec {
        command,
        arguments,
        env,
        model_wire,
        state_directory,
    } = spec;
    v1::ProgramSpec {
        command,
        arguments,
        env: env.into_iter().collect(),
        model_wire,
        state_directory: state_directory.unwrap_or_default(),
    }
}

fn permission_level(level: PermissionLevel) -> v1::PermissionLevel {
    match level {
        PermissionLevel::Default => v1::PermissionLevel::Default,
        PermissionLevel::Advanced => v1::PermissionLevel::Advanced,
    }
}

pub(crate) fn session(view: SessionView) -> v1::Session {
    let SessionView {
        session,
        engine,
        sandbox_id,
    } = view;
    let Session {
        id: session_id,
        agent_id,
        agent_version,
        kind,
        title,
        state,
        state_reason,
        archived,
        permission_mode,
        current_turn,
        last_seq,
        metadata,
        created_by,
        created_at,
        updated_at,
    } = session;
    v1::Session {
        id: session_id.to_string(),
        agent_id: agent_id.to_string(),
        agent_version,
        kind: kind.as_str().to_owned(),
        title,
        state: session_state(state).into(),
        state_reason: state_reason.unwrap_or_default(),
        archived,
        permission_mode: permission_mode.unwrap_or_default(),
        current_turn_id: id(current_turn),
        last_seq,
        metadata: metadata.into_iter().collect(),
        created_by,
        created_at: timestamp(created_at),
        updated_at: timestamp(updated_at),
        engine,
        sandbox_id: id(sandbox_id),
    }
}

pub(crate) fn session_state(state: SessionState) -> v1::SessionState {
    match state {
        SessionState::Creating => v1::SessionState::Creating,
        SessionState::Ready => v1::SessionState::Ready,
        SessionState::Busy => v1::SessionState::Busy,
        SessionState::Interrupting => v1::SessionState::Interrupting,
        SessionState::WaitingInput => v1::SessionState::WaitingInput,
        SessionState::BackgroundRunning => v1::SessionState::BackgroundRunning,
        SessionState::Hibernated => v1::SessionState::Hibernated,
        SessionState::RecoveryRequired => v1::SessionState::RecoveryRequired,
        SessionState::Terminated => v1::SessionState::Terminated,
        SessionState::Deleted => v1::SessionState::Deleted,
    }
}

pub(crate) fn engine(view: EngineView) -> v1::Engine {
    let EngineView {
        kind,
        capabilities,
        image,
        image_built,
        build_command,
    } = view;
    let strings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    v1::Engine {
        kind: kind.to_owned(),
        display_name: capabilities.display_name.to_owned(),
        program_version: capabilities.program_version.to_owned(),
        session_kinds: capabilities
            .session_kinds
            .iter()
            .map(|kind| kind.as_str().to_owned())
            .collect(),
        input_content_types: strings(capabilities.input_content_types),
        permission_modes: capabilities
            .permission_modes
            .iter()
            .map(|mode| v1::PermissionMode {
                name: mode.name.to_owned(),
                description: mode.description.to_owned(),
                level: permission_level(mode.level).into(),
            })
            .collect(),
        default_permission_mode: capabilities
            .default_permission_mode
            .unwrap_or_default()
            .to_owned(),
        option_blocks: capabilities
            .option_blocks
            .iter()
            .map(|block| v1::OptionBlock {
                name: block.name.to_owned(),
                description: block.description.to_owned(),
                protected_keys: strings(block.protected_keys),
            })
            .collect(),
        image: Some(v1::EngineImage {
            name: image,
            built: image_built,
            build_command,
        }),
        steering: capabilities.steering,
        features: capabilities
            .features
            .iter()
            .map(|feature| feature.as_str().to_owned())
            .collect(),
        names_program: capabilities.names_program,
    }
}

pub(crate) fn sandbox(view: SandboxView) -> v1::Sandbox {
    let SandboxView { provider, info } = view;
    let SandboxInfo {
        id,
        claim,
        state,
        created_at,
        image,
        labels: _,
    } = info;
    let state = match state {
        SandboxState::Running => v1::SandboxState::Running,
        SandboxState::Paused => v1::SandboxState::Paused,
        SandboxState::Dead => v1::SandboxState::Dead,
        SandboxState::Unknown => v1::SandboxState::Unknown,
    };
    v1::Sandbox {
        id: id.to_string(),
        provider: provider.to_owned(),
        session_id: claim.session_id.to_string(),
        state: state.into(),
        image: image.unwrap_or_default(),
        created_at: timestamp(created_at),
    }
}

pub(crate) fn posture(posture: Posture, boundary: Option<BoundaryState>) -> v1::SecurityPosture {
    let Posture {
        technology,
        host_uid,
        rootless,
        permission_level: level,
        seccomp,
        no_new_privileges,
        capabilities,
        loopback_only,
        memory,
        pids,
        cpu,
        disk,
        notes,
    } = posture;
    v1::SecurityPosture {
        technology,
        host_uid,
        rootless,
        permission_level: permission_level(level).into(),
        seccomp,
        no_new_privileges,
        capabilities,
        loopback_only,
        memory: limit_state(memory).into(),
        pids: limit_state(pids).into(),
        cpu: limit_state(cpu).into(),
        disk: limit_state(disk).into(),
        notes,
        boundary: boundary.map(|state| {
            let BoundaryState {
                in_force,
                unrestricted,
                allowed,
                credentials,
            } = state;
            v1::BoundaryState {
                in_force,
                unrestricted,
                allowed,
                credentials,
            }
        }),
    }
}

fn limit_state(state: LimitState) -> v1::LimitState {
    match state {
        LimitState::Hard => v1::LimitState::Hard,
        LimitState::Soft => v1::LimitState::Soft,
        LimitState::None => v1::LimitState::None,
    }
}

pub(crate) fn file(info: FileInfo) -> v1::File {
    let FileInfo {
        name,
        kind,
        size,
        modified_at,
    } = info;
    let kind = match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    };
    v1::File {
        name,
        kind: kind.to_owned(),
        size,
        modified_at: timestamp(modified_at),
    }
}
