//! MCP servers, skills and approval rules as people give them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use astrabox_client::v1;
use serde::Deserialize;
use v1::mcp_server::Transport;

use crate::exit::Failure;
use crate::pairs;

/// The most bytes of a skill that are read; the server takes less.
const MOST: usize = 4 << 20;
/// How deep a skill's folder is read.
const DEPTH: usize = 8;

/// One of the two ways to reach a server.
#[derive(Deserialize)]
#[serde(untagged)]
enum Wanted {
    Stdio(Stdio),
    Http(Http),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stdio {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: HashMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Http {
    url: String,
}

/// Reads `NAME=JSON`.
pub(crate) fn mcp_server(text: &str) -> anyhow::Result<v1::McpServer> {
    let (name, json) = pairs::split("--mcp-server", text)?;
    let wanted = serde_json::from_str(json).map_err(|_| {
        Failure::usage(format!(
            "--mcp-server: `{name}` wants {{\"command\": ..., \"args\": [...], \"env\": {{...}}}} or {{\"url\": ...}}"
        ))
    })?;
    let transport = match wanted {
        Wanted::Stdio(Stdio { command, args, env }) => {
            Transport::Stdio(v1::McpStdio { command, args, env })
        }
        Wanted::Http(Http { url }) => Transport::Http(v1::McpHttp { url }),
    };
    Ok(v1::McpServer {
        name: name.to_owned(),
        transport: Some(transport),
    })
}

/// Reads `TOOL=allow|deny|ask`. The decision is behind the last `=`, so that a name may have one.
pub(crate) fn approval_rule(text: &str) -> anyhow::Result<v1::ApprovalRule> {
    let wrong = || {
        Failure::usage(format!(
            "--approval: `{text}` is not TOOL=allow, deny or ask"
        ))
    };
    let (tool, decision) = text.rsplit_once('=').ok_or_else(wrong)?;
    let decision = match decision {
        "allow" => v1::ApprovalDecision::Allow,
        "deny" => v1::ApprovalDecision::Deny,
        "ask" => v1::ApprovalDecision::Ask,
        _ => return Err(wrong()),
    };
    Ok(v1::ApprovalRule {
        tool: tool.to_owned(),
        decision: decision.into(),
    })
}

/// Reads a folder; links are not followed.
pub(crate) fn skill(folder: &Path) -> anyhow::Result<v1::Skill> {
    let whole = fs::canonicalize(folder)
        .with_context(|| format!("--skill: {} cannot be read", folder.display()))?;
    let name = whole.file_name().and_then(|name| name.to_str());
    let name = name
        .ok_or_else(|| Failure::usage(format!("--skill: {} has no name", folder.display())))?
        .to_owned();
    let mut files = HashMap::new();
    let mut bytes = 0;
    let mut open = vec![(whole.clone(), 0)];
    while let Some((directory, depth)) = open.pop() {
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("--skill: {} cannot be read", directory.display()))?;
        for entry in entries {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() && depth < DEPTH {
                open.push((path, depth + 1));
            } else if kind.is_file() {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("--skill: {} is not a text", path.display()))?;
                bytes += text.len();
                if bytes > MOST {
                    let text = format!("--skill: {} has over {MOST} bytes", folder.display());
                    return Err(Failure::usage(text));
                }
                let below = path.strip_prefix(&whole).context("a file of the folder")?;
                files.insert(below.to_string_lossy().into_owned(), text);
            }
        }
    }
    Ok(v1::Skill { name, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_program_or_an_address() {
        let read = mcp_server(r#"a={"command":"perl","args":["x.pl"]}"#).expect("a program");
        assert!(
            matches!(read.transport, Some(Transport::Stdio(program)) if program.args == ["x.pl"])
        );
        let read = mcp_server(r#"b={"url":"https://mcp.test"}"#).expect("an address");
        assert_eq!(read.name, "b");
        for wrong in ["a", "a={}", r#"a={"command":"x","url":"y"}"#, "a=x"] {
            assert!(mcp_server(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_skill_is_its_folder() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("hello");
        fs::create_dir_all(folder.join("more")).expect("it is made");
        fs::write(folder.join("SKILL.md"), "one").expect("it is written");
        fs::write(folder.join("more/a.txt"), "two").expect("it is written");
        let skill = skill(&folder).expect("it is read");
        assert_eq!(skill.name, "hello");
        assert_eq!(skill.files["more/a.txt"], "two");
        assert_eq!(skill.files.len(), 2);
    }
}
