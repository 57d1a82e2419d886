//! What an agent brings along for its program: MCP servers and skills.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most bytes that the files of all skills of an agent have, names included (1 MiB).
pub const MAX_SKILL_BYTES: usize = 1 << 20;

/// A server of the Model Context Protocol that the program uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// Its name, 1 to 64 of `[A-Za-z0-9_-]`; its tools are named after it.
    pub name: String,
    /// How it is reached.
    pub transport: McpTransport,
}

/// How an MCP server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum McpTransport {
    /// A program in the sandbox, over its standard input and output.
    Stdio {
        /// The program, by path or by name.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables that it has besides the sandbox's own.
        env: BTreeMap<String, String>,
    },
    /// A server on the network; the environment's networking must allow its host.
    Http {
        /// Its address, with `http` or `https`.
        url: String,
    },
}

/// A skill: a folder of texts that the program reads when a task asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    /// Its name, 1 to 64 of `[a-z0-9-]`: the folder's.
    pub name: String,
    /// Its files: relative path to text. One is `SKILL.md`.
    pub files: BTreeMap<String, String>,
}

/// A git repository over HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repository {
    /// Its address, with `https`, a path and nothing else.
    pub url: String,
    /// The branch or tag; the repository's own when absent.
    pub branch: Option<String>,
    /// How many commits of history; all when absent.
    pub depth: Option<u32>,
}
