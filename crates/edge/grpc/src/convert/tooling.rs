//! Repositories, MCP servers, skills and approval rules.

use astrabox_platform::{Error, Result};
use astrabox_proto::v1;
use astrabox_types::{ApprovalDecision, ApprovalRule, McpServer, McpTransport, Repository, Skill};
use v1::mcp_server::Transport;

pub(crate) fn repository_from_proto(repository: v1::Repository) -> Repository {
    let v1::Repository { url, branch, depth } = repository;
    Repository {
        url,
        branch: Some(branch).filter(|branch| !branch.is_empty()),
        depth: Some(depth).filter(|depth| *depth > 0),
    }
}

pub(crate) fn repository_to_proto(repository: Repository) -> v1::Repository {
    let Repository { url, branch, depth } = repository;
    v1::Repository {
        url,
        branch: branch.unwrap_or_default(),
        depth: depth.unwrap_or_default(),
    }
}

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

/// # Errors
/// `INVALID_FIELD` for a rule without a decision, or with one that is not known.
pub(crate) fn rules_from_proto(rules: Vec<v1::ApprovalRule>) -> Result<Vec<ApprovalRule>> {
    rules.into_iter().map(rule_from_proto).collect()
}

fn rule_from_proto(rule: v1::ApprovalRule) -> Result<ApprovalRule> {
    let decision = match v1::ApprovalDecision::try_from(rule.decision) {
        Ok(v1::ApprovalDecision::Allow) => ApprovalDecision::Allow,
        Ok(v1::ApprovalDecision::Deny) => ApprovalDecision::Deny,
        Ok(v1::ApprovalDecision::Ask) => ApprovalDecision::Ask,
        Ok(v1::ApprovalDecision::Unspecified) | Err(_) => {
            let text = format!(
                "has a rule for `{}` whose decision is none of allow, deny and ask",
                rule.tool
            );
            return Err(Error::field("spec.approval_rules", text));
        }
    };
    Ok(ApprovalRule {
        tool: rule.tool,
        decision,
    })
}

pub(crate) fn rule_to_proto(rule: ApprovalRule) -> v1::ApprovalRule {
    let ApprovalRule { tool, decision } = rule;
    let decision = match decision {
        ApprovalDecision::Allow => v1::ApprovalDecision::Allow,
        ApprovalDecision::Deny => v1::ApprovalDecision::Deny,
        ApprovalDecision::Ask => v1::ApprovalDecision::Ask,
    };
    v1::ApprovalRule {
        tool,
        decision: decision.into(),
    }
}
