//! What commands print: JSON for programs, tables and lines for people.

use std::io::{self, Write as _};

use astrabox_client::Json;
use serde_json::{Map, Value, json};

/// The beginnings of enum names, which people need not see.
const ENUM_PREFIXES: &[&str] = &[
    "SESSION_STATE_",
    "SANDBOX_STATE_",
    "PERMISSION_LEVEL_",
    "LIMIT_STATE_",
    "INTERACTION_STATE_",
    "TURN_OUTCOME_",
    "CHILD_RUN_STATE_",
];

/// A column of a table: its title, and where its value is in a row.
pub(crate) type Column = (&'static str, &'static str);

/// Prints.
#[derive(Clone, Default)]
pub(crate) struct Out {
    json: bool,
    messages: Json,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            messages: Json::default(),
        }
    }

    /// Whether programs read it.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// A message of the API as JSON.
    pub(crate) fn message(&self, name: &str, message: &impl astrabox_client::Message) -> Value {
        self.messages.of(name, message)
    }

    /// One thing: an object, or its keys and values on lines.
    pub(crate) fn object(&self, value: &Value) -> anyhow::Result<()> {
        if self.json {
            return self.line(&value.to_string());
        }
        let mut text = String::new();
        describe(value, 0, &mut text);
        self.write(&text)
    }

    /// Several things: an object with a list, or a table.
    pub(crate) fn table(
        &self,
        key: &str,
        rows: Vec<Value>,
        columns: &[Column],
    ) -> anyhow::Result<()> {
        if self.json {
            return self.line(&json!({ key: rows }).to_string());
        }
        self.write(&table(&rows, columns))
    }

    /// That something was done: an object, or a line.
    pub(crate) fn done(&self, value: &Value, text: &str) -> anyhow::Result<()> {
        if self.json {
            self.line(&value.to_string())
        } else {
            self.line(text)
        }
    }

    /// A line.
    pub(crate) fn line(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        // Who follows something wants each line when it comes.
        out.flush()?;
        Ok(())
    }

    /// Text as it is.
    pub(crate) fn write(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }
}

/// A line for people beside the result, on standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn table(rows: &[Value], columns: &[Column]) -> String {
    let mut lines = vec![
        columns
            .iter()
            .map(|(title, _)| (*title).to_owned())
            .collect::<Vec<_>>(),
    ];
    for row in rows {
        lines.push(
            columns
                .iter()
                .map(|(_, pointer)| row.pointer(pointer).map(cell).unwrap_or_default())
                .collect(),
        );
    }
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<_> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A value in one line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => enum_name(text).unwrap_or_else(|| one_line(text, 60)),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(", "),
        Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// A text in one line of at most this many characters.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(limit.saturating_add(1))
        .collect();
    if line.chars().count() > limit {
        line.pop();
        line.push('…');
    }
    line
}

/// The name of an enum's value for people, as `ready`.
pub(crate) fn enum_name(text: &str) -> Option<String> {
    let prefix = ENUM_PREFIXES
        .iter()
        .find(|prefix| text.starts_with(**prefix))?;
    Some(text[prefix.len()..].to_ascii_lowercase())
}

/// Keys and values, one a line; what is empty is left out.
fn describe(value: &Value, depth: usize, text: &mut String) {
    let Value::Object(map) = value else {
        push_line(depth, &cell(value), text);
        return;
    };
    let width = map
        .iter()
        .filter(|(_, value)| is_short(value))
        .map(|(key, _)| key.len())
        .max()
        .unwrap_or(0);
    for (key, value) in map.iter().filter(|(_, value)| !is_empty(value)) {
        match value {
            Value::Object(_) => {
                push_line(depth, &format!("{key}:"), text);
                describe(value, depth + 1, text);
            }
            Value::Array(values) if values.iter().any(Value::is_object) => {
                push_line(depth, &format!("{key}:"), text);
                for value in values {
                    describe_item(value, depth + 1, text);
                }
            }
            Value::String(long) if long.contains('\n') => {
                push_line(depth, &format!("{key}:"), text);
                long.lines()
                    .for_each(|line| push_line(depth + 1, line, text));
            }
            Value::String(long) if enum_name(long).is_none() => {
                push_line(depth, &format!("{key:width$}  {long}"), text);
            }
            _ => push_line(depth, &format!("{key:width$}  {}", cell(value)), text),
        }
    }
}

fn describe_item(value: &Value, depth: usize, text: &mut String) {
    let mut inner = String::new();
    describe(value, 0, &mut inner);
    for (index, line) in inner.lines().enumerate() {
        let mark = if index == 0 { "- " } else { "  " };
        push_line(depth, &format!("{mark}{line}"), text);
    }
}

fn push_line(depth: usize, line: &str, text: &mut String) {
    for _ in 0..depth {
        text.push_str("  ");
    }
    text.push_str(line);
    text.push('\n');
}

fn is_short(value: &Value) -> bool {
    match value {
        Value::Object(_) => false,
        Value::Array(values) => !values.iter().any(Value::is_object) && !values.is_empty(),
        Value::String(text) => !text.is_empty() && !text.contains('\n'),
        Value::Null => false,
        Value::Bool(_) | Value::Number(_) => true,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(map) => map.values().all(is_empty) || Map::is_empty(map),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_speaks_plainly() {
        let rows = vec![
            json!({ "id": "a", "state": "SESSION_STATE_READY", "spec": { "name": "one\ntwo" } }),
            json!({ "id": "longer", "state": "SESSION_STATE_WAITING_INPUT", "spec": {} }),
        ];
        let text = table(
            &rows,
            &[("ID", "/id"), ("STATE", "/state"), ("NAME", "/spec/name")],
        );
        assert_eq!(
            text,
            "ID      STATE          NAME\na       ready          one two\nlonger  waiting_input\n"
        );
    }

    #[test]
    fn an_object_is_told_without_what_is_empty() {
        let mut text = String::new();
        let value = json!({
            "id": "a",
            "title": "",
            "spec": { "model": "m", "system": "one\ntwo" },
            "modes": [{ "name": "x", "level": "PERMISSION_LEVEL_DEFAULT" }],
            "none": {},
        });
        describe(&value, 0, &mut text);
        assert_eq!(
            text,
            "id  a\nmodes:\n  - level  default\n    name   x\nspec:\n  model  m\n  system:\n    one\n    two\n"
        );
    }

    #[test]
    fn a_long_text_is_cut_to_one_line() {
        assert_eq!(one_line("a\nb", 10), "a b");
        assert_eq!(
            one_line("abcdef", 3),
            "abc…".chars().take(3).collect::<String>() + "…"
        );
    }
}
