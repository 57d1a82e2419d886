//! One layer: where it comes from, and what it says.

use std::path::{Path, PathBuf};

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use crate::keys::{EGRESS, OPEN_TABLES, find, is_table, members};
use crate::{CLIENT_VARIABLES, ConfigError};

const PREFIX: &str = "ASTRABOX_";

/// Where a layer comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    Environment,
    CommandLine,
}

impl Source {
    /// The source of one key, for people.
    pub(crate) fn name(&self, key: &str) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Environment => format!(
                "the variable {PREFIX}{}",
                key.replace('.', "__").to_ascii_uppercase()
            ),
            Self::CommandLine => "the command line".to_owned(),
        }
    }
}

/// What one source says.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) source: Source,
    pub(crate) dict: Dict,
}

impl Layer {
    /// A file, which must be there.
    pub(crate) fn file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable {
            file: path.to_owned(),
            why: error.to_string(),
        })?;
        let not_toml = |why: String| ConfigError::NotToml {
            file: path.to_owned(),
            why,
        };
        let table: toml::Table =
            toml::from_str(&text).map_err(|error| not_toml(place(&text, &error)))?;
        let dict = Value::serialize(table).ok().and_then(Value::into_dict);
        let dict =
            dict.ok_or_else(|| not_toml("it holds a value that is no setting".to_owned()))?;
        Ok(Self {
            source: Source::File(path.to_owned()),
            dict,
        })
    }

    /// The variables that are settings.
    pub(crate) fn environment<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut dict = Dict::new();
        for (name, value) in variables {
            let Some(rest) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let path = rest.to_ascii_lowercase().replace("__", ".");
            // Without a section it may be a variable of another program of AstraBox.
            let foreign = !path.contains('.') && find(&path).is_none();
            if foreign || CLIENT_VARIABLES.contains(&name) {
                continue;
            }
            insert(&mut dict, &path, value);
        }
        Self {
            source: Source::Environment,
            dict,
        }
    }

    /// `section.key=value`, in order.
    pub(crate) fn command_line(overrides: &[String]) -> Result<Self, ConfigError> {
        let mut dict = Dict::new();
        for text in overrides {
            let split = text.split_once('=').filter(|(path, _)| !path.is_empty());
            let (path, value) =
                split.ok_or_else(|| ConfigError::NotAnOverride(before_value(text)))?;
            insert(&mut dict, path.trim(), value);
        }
        Ok(Self {
            source: Source::CommandLine,
            dict,
        })
    }

    /// Refuses keys that nobody knows.
    pub(crate) fn check_keys(&self) -> Result<(), ConfigError> {
        self.check_table("", &self.dict)
    }

    fn check_table(&self, table: &str, dict: &Dict) -> Result<(), ConfigError> {
        for (name, value) in dict {
            let path = if table.is_empty() {
                name.clone()
            } else {
                format!("{table}.{name}")
            };
            if find(&path).is_some() || table == EGRESS {
                continue;
            }
            match value {
                Value::Dict(_, inner) if is_table(&path) => self.check_table(&path, inner)?,
                // The block of an adapter.
                Value::Dict(..) if OPEN_TABLES.contains(&table) => {}
                _ if is_table(&path) => {
                    return Err(ConfigError::WrongValue {
                        source_name: self.source.name(&path),
                        key: path,
                        why: "must be a table".to_owned(),
                    });
                }
                _ => return Err(self.unknown(path, table)),
            }
        }
        Ok(())
    }

    fn unknown(&self, key: String, table: &str) -> ConfigError {
        let known = members(table).join(", ");
        let hint = match table {
            "" => format!("there are {known}"),
            _ if OPEN_TABLES.contains(&table) => {
                format!("in `{table}` there are {known} and the providers' own tables")
            }
            _ => format!("in `{table}` there are {known}"),
        };
        ConfigError::UnknownKey {
            source_name: self.source.name(&key),
            key,
            hint,
        }
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        // The error finds the layer again by this name.
        Metadata::named(self.source.name(""))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.dict.clone()))
    }
}

/// Puts a text at a path: as it stands where the setting is a text, else as TOML would read it.
fn insert(dict: &mut Dict, path: &str, text: &str) {
    let value = match find(path) {
        Some(key) if key.kind.is_text() => Value::from(text),
        Some(_) | None => toml_value(text),
    };
    insert_at(dict, path, value);
}

fn insert_at(dict: &mut Dict, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            dict.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = dict
                .entry(first.to_owned())
                .or_insert_with(|| Value::from(Dict::new()));
            if !matches!(inner, Value::Dict(..)) {
                *inner = Value::from(Dict::new());
            }
            if let Value::Dict(_, inner) = inner {
                insert_at(inner, rest, value);
            }
        }
    }
}

fn toml_value(text: &str) -> Value {
    let parsed = toml::from_str::<toml::Table>(&format!("value = {text}")).ok();
    let value = parsed
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"));
    value
        .and_then(|value| Value::serialize(value).ok())
        .unwrap_or_else(|| Value::from(text))
}

/// Where the error is and what; the text around it, which may hold anything, is left out.
fn place(text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map(|span| text[..span.start.min(text.len())].lines().count().max(1));
    match line {
        Some(line) => format!("line {line}: {}", error.message()),
        None => error.message().to_owned(),
    }
}

/// A text that should have been `key=value`, without what may be a value.
fn before_value(text: &str) -> String {
    text.split('=')
        .next()
        .unwrap_or_default()
        .chars()
        .take(64)
        .collect()
}
