//! MCP servers and skills.

use astrabox_platform::{Error, Result};
use astrabox_proto::v1;
use astrabox_types::{McpServer, McpTransport, Skill};
use v1::mcp_server::Transport;

/// # Errors
/// `INVALID_FIELD` for a server without a transport.
pub(crate) fn servers_from_proto(servers: Vec<v1::McpServer>) -> Result<Vec<McpServer>> {
    servers.into_iter().map(server_from_proto).collect()
}

fn server_from_proto(server: v1::McpServer) -> Result<McpServer> {
    let v1::McpServer { name, transport } = server;
    let transport = match transport {
        Some(Transport::Stdio(v1::McpStdio { command, args, env })) => McpTransport::Stdio {
            command,
            args,
            env: env.into_iter().collect(),
        },
        Some(Transport::Http(v1::McpHttp { url })) => McpTransport::Http { url },
        None => {
            let text = format!("has `{name}` without `stdio` or `http`");
            return Err(Error::field("spec.mcp_servers", text));
        }
    };
    Ok(McpServer { name, transport })
}

pub(crate) fn server_to_proto(server: McpServer) -> v1::McpServer {
    let McpServer { name, transport } = server;
    let transport = match transport {
        McpTransport::Stdio { command, args, env } => Transport::Stdio(v1::McpStdio {
            command,
            args,
            env: env.into_iter().collect(),
        }),
        McpTransport::Http { url } => Transport::Http(v1::McpHttp { url }),
    };
    v1::McpServer {
        name,
        transport: Some(transport),
    }
}

pub(crate) fn skills_from_proto(skills: Vec<v1::Skill>) -> Vec<Skill> {
    let skills = skills.into_iter().map(|v1::Skill { name, files }| Skill {
        name,
        files: files.into_iter().collect(),
    });
    skills.collect()
}

pub(crate) fn skill_to_proto(skill: Skill) -> v1::Skill {
    let Skill { name, files } = skill;
    v1::Skill {
        name,
        files: files.into_iter().collect(),
    }
}
