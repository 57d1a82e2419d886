//! What a conversation is opened with.

use std::collections::{BTreeMap, VecDeque};

use astrabox_engine::McpHeader;
use astrabox_types::{McpServer, McpTransport};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::wire::Fields;

/// What a conversation is opened with. It is forgotten once the conversation is bound.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The directory that the program works in.
    pub cwd: String,
    /// The MCP servers.
    pub mcp_servers: Vec<McpServer>,
    /// The headers of those that are on the network.
    pub mcp_headers: Vec<Header>,
    /// What the agent is told about itself, for programs that take it over ACP; empty for nothing.
    pub instructions: String,
    /// The permission mode, by native name; `None` for the program's own choice.
    pub mode: Option<String>,
    /// What is set once the conversation is open, before its mode.
    pub wishes: VecDeque<Wish>,
    /// With what environment commands are run for the program, which then may ask for them and for text files of the
    /// workspace; `None` for a program that does everything itself.
    pub serve: Option<BTreeMap<String, String>>,
    /// `_meta` of `session/new`, `session/load` and `session/resume`.
    pub meta: Map<String, Value>,
}

/// A header of every request to one MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The server's name.
    pub server: String,
    /// The header's name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl From<&McpHeader> for Header {
    fn from(header: &McpHeader) -> Self {
        Self {
            server: header.server.clone(),
            name: header.name.clone(),
            value: header.value.clone(),
        }
    }
}

/// Something that is set in an open conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Wish {
    /// The permission mode, by native name.
    Mode(String),
    /// A configuration option by the program's own id: a text for a choice, or yes and no.
    Option {
        /// The id.
        id: String,
        /// The value.
        value: Value,
    },
    /// A request of the program's own; `sessionId` is added.
    Call {
        /// The method.
        method: String,
        /// Its other parameters.
        params: Map<String, Value>,
    },
}

impl Settings {
    /// What opens the conversation; the session's id is added where there is one.
    pub(crate) fn opening(&self, offers: &Offers) -> Result<Map<String, Value>, String> {
        let mut params = Map::new();
        if !self.meta.is_empty() {
            params.insert("_meta".to_owned(), json!(self.meta));
        }
        params.insert("cwd".to_owned(), json!(self.cwd));
        params.insert("mcpServers".to_owned(), json!(self.servers(offers)?));
        if !self.instructions.is_empty() {
            if !offers.system_prompt {
                return Err(
                    "the program takes no instructions over ACP; leave the agent's `system` empty and \
                     give them in the way that the program has"
                        .to_owned(),
                );
            }
            let text = json!({"type": "text", "text": self.instructions});
            let prompt = json!({"mode": "append", "content": [text]});
            params.insert("systemPrompt".to_owned(), prompt);
        }
        Ok(params)
    }

    fn servers(&self, offers: &Offers) -> Result<Vec<Value>, String> {
        let servers = self.mcp_servers.iter().map(|server| {
            let name = &server.name;
            match &server.transport {
                McpTransport::Stdio { command, args, env } => Ok(json!({
                    "name": name,
                    "command": command,
                    "args": args,
                    "env": pairs(env.iter().map(|(name, value)| (name.as_str(), value.as_str()))),
                })),
                McpTransport::Http { url } if offers.mcp_http => {
                    let own = self.mcp_headers.iter().filter(|one| one.server == *name);
                    let headers: BTreeMap<_, _> = own
                        .map(|one| (one.name.as_str(), one.value.as_str()))
                        .collect();
                    Ok(json!({
                        "type": "http",
                        "name": name,
                        "url": url,
                        "headers": pairs(headers.into_iter()),
                    }))
                }
                McpTransport::Http { .. } => Err(format!(
                    "the program takes no MCP servers on the network; remove `{name}`"
                )),
            }
        });
        servers.collect()
    }
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Value> {
    pairs
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

/// What the program said that it can, in its answer to `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offers {
    /// It takes pictures.
    pub image: bool,
    /// It loads a conversation and replays it.
    pub load: bool,
    /// It resumes a conversation without a replay.
    pub resume: bool,
    /// It closes a conversation on request.
    pub close: bool,
    /// It takes MCP servers that are spoken to over HTTP.
    pub mcp_http: bool,
    /// It takes instructions for a conversation.
    pub system_prompt: bool,
}

impl Offers {
    /// Reads the result of `initialize`.
    #[must_use]
    pub fn of(result: &Fields<'_>) -> Self {
        let all = result.fields("agentCapabilities");
        let session = all.fields("sessionCapabilities");
        let there = |key| session.raw(key).is_some();
        Self {
            image: all.fields("promptCapabilities").flag("image") == Some(true),
            load: all.flag("loadSession") == Some(true),
            resume: there("resume"),
            close: there("close"),
            mcp_http: all.fields("mcpCapabilities").flag("http") == Some(true),
            system_prompt: there("systemPrompt"),
        }
    }
}

/// The permission modes that the program has, and how they are set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modes {
    pub(crate) known: Vec<String>,
    pub(crate) current: Option<String>,
    pub(crate) set_by: SetBy,
}

/// How a permission mode is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum SetBy {
    /// There are no modes.
    #[default]
    Nothing,
    /// By `session/set_mode`.
    Mode,
    /// By the configuration option with this id.
    Option(String),
}

impl Modes {
    /// Reads the answer to `session/new`, `session/load` or `session/resume`.
    pub(crate) fn of(result: &Fields<'_>) -> Self {
        let modes = result.fields("modes");
        let listed = modes.list("availableModes").into_iter().map(Fields::of);
        let known: Vec<_> = listed.filter_map(|mode| mode.text("id")).collect();
        if !known.is_empty() {
            return Self {
                known,
                current: modes.text("currentModeId"),
                set_by: SetBy::Mode,
            };
        }
        let mode = ConfigOption::all(result)
            .into_iter()
            .find(ConfigOption::is_mode);
        mode.map_or_else(Self::default, |option| Self {
            known: option.values,
            current: option.current,
            set_by: SetBy::Option(option.id),
        })
    }

    /// Demands that there is a mode of this name.
    pub(crate) fn demand(&self, mode: &str) -> Result<(), String> {
        if self.set_by == SetBy::Nothing {
            return Err("the program has no permission modes".to_owned());
        }
        if self.known.iter().any(|known| known == mode) {
            return Ok(());
        }
        let known = self.known.join(", ");
        Err(format!("no permission mode `{mode}`; there are: {known}"))
    }
}

/// One configuration option of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOption {
    /// Its id.
    pub id: String,
    /// What it is about: `mode`, `model`, `thought_level` or the program's own word.
    pub category: Option<String>,
    /// The value that it has, where it is a choice.
    pub current: Option<String>,
    /// The values that it can have, where it is a choice.
    pub values: Vec<String>,
    /// Whether it is a yes or no.
    pub boolean: bool,
}

impl ConfigOption {
    /// The options in an object with `configOptions`.
    #[must_use]
    pub fn all(of: &Fields<'_>) -> Vec<Self> {
        let options = of.list("configOptions").into_iter().map(Fields::of);
        options
            .filter_map(|option| {
                Some(Self {
                    id: option.text("id")?,
                    category: option.text("category"),
                    current: option.text("currentValue"),
                    values: values(&option),
                    boolean: option.text("type").as_deref() == Some("boolean"),
                })
            })
            .collect()
    }

    fn is_mode(&self) -> bool {
        self.category.as_deref() == Some("mode") && !self.values.is_empty()
    }
}

/// The values of a choice, also those in groups.
fn values(option: &Fields<'_>) -> Vec<String> {
    let mut values = Vec::new();
    for entry in option.list("options").into_iter().map(Fields::of) {
        match entry.text("value") {
            Some(value) => values.push(value),
            None => values.extend(
                entry
                    .list("options")
                    .into_iter()
                    .filter_map(|inner| Fields::of(inner).text("value")),
            ),
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers() -> Offers {
        let result = r#"{"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true},
            "mcpCapabilities":{"http":true},"sessionCapabilities":{"resume":{},"close":null,"systemPrompt":{}}}}"#;
        Offers::of(&Fields::of(result))
    }

    #[test]
    fn what_the_program_can_is_read_from_its_first_answer() {
        assert_eq!(
            offers(),
            Offers {
                image: true,
                load: true,
                resume: true,
                close: false,
                mcp_http: true,
                system_prompt: true,
            }
        );
        assert_eq!(Offers::of(&Fields::of("{}")), Offers::default());
    }

    fn settings() -> Settings {
        let server = |name: &str, transport| McpServer {
            name: name.to_owned(),
            transport,
        };
        Settings {
            cwd: "/workspace".to_owned(),
            mcp_servers: vec![
                server(
                    "echo",
                    McpTransport::Stdio {
                        command: "perl".to_owned(),
                        args: vec!["x.pl".to_owned()],
                        env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
                    },
                ),
                server(
                    "far",
                    McpTransport::Http {
                        url: "https://mcp.test/x".to_owned(),
                    },
                ),
            ],
            mcp_headers: vec![Header {
                server: "far".to_owned(),
                name: "Authorization".to_owned(),
                value: "Bearer p".to_owned(),
            }],
            ..Settings::default()
        }
    }

    #[test]
    fn a_conversation_is_opened_with_servers_in_the_protocols_form() {
        let opened = settings().opening(&offers()).expect("it can be opened");
        expect_test::expect![[
            r#"{"cwd":"/workspace","mcpServers":[{"args":["x.pl"],"command":"perl","env":[{"name":"A","value":"b"}],"name":"echo"},{"headers":[{"name":"Authorization","value":"Bearer p"}],"name":"far","type":"http","url":"https://mcp.test/x"}]}"#
        ]]
        .assert_eq(&Value::Object(opened).to_string());
    }

    #[test]
    fn what_the_program_does_not_take_is_refused() {
        let none = Offers::default();
        let error = settings().opening(&none).expect_err("no network servers");
        assert!(error.contains("`far`"), "{error}");
        let told = Settings {
            instructions: "Be brief.".to_owned(),
            ..Settings::default()
        };
        let error = told.opening(&none).expect_err("no instructions");
        assert!(error.contains("`system`"), "{error}");
        let opened = told.opening(&offers()).expect("it takes instructions");
        assert_eq!(opened["systemPrompt"]["content"][0]["text"], "Be brief.");
    }

    #[test]
    fn modes_come_from_the_list_or_from_the_option_for_them() {
        let listed = r#"{"modes":{"currentModeId":"a","availableModes":[{"id":"a","name":"A"},{"id":"b","name":"B"}]},
            "configOptions":[{"id":"m","category":"mode","currentValue":"x","options":[{"value":"x"}]}]}"#;
        let modes = Modes::of(&Fields::of(listed));
        assert_eq!((modes.known.len(), modes.set_by), (2, SetBy::Mode));
        let optional = r#"{"configOptions":[{"id":"x","currentValue":true,"type":"boolean"},
            {"id":"m","category":"mode","currentValue":"a","options":[{"group":"g","options":[{"value":"a"},{"value":"b"}]}]}]}"#;
        let modes = Modes::of(&Fields::of(optional));
        assert_eq!(modes.known, ["a", "b"]);
        assert_eq!(modes.current.as_deref(), Some("a"));
        assert_eq!(modes.set_by, SetBy::Option("m".to_owned()));
        assert!(modes.demand("b").is_ok());
        let error = modes.demand("c").expect_err("there is no such mode");
        assert!(error.ends_with("a, b"), "{error}");
        assert!(Modes::default().demand("a").is_err());
    }
}
