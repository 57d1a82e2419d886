//! What the suites must be told about linked providers, from `conformance.toml`.

use anyhow::{Context as _, Result};
use astrabox_conformance::linked::Settings;
use serde_json::Value;

const TEXT: &str = include_str!("../../../conformance.toml");

/// The settings, with the values of environment variables in place.
pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings> {
    let mut value: Value = toml::from_str(TEXT).context("read conformance.toml")?;
    put_variables(&mut value, &variable);
    serde_json::from_value(value).context("read conformance.toml")
}

/// Replaces `${NAME}` by the variable's value, or removes the setting.
fn put_variables(value: &mut Value, variable: &impl Fn(&str) -> Option<String>) {
    let Value::Object(table) = value else {
        return;
    };
    table.retain(|_, value| {
        if let Value::String(text) = value
            && let Some(name) = text.strip_prefix("${").and_then(|t| t.strip_suffix('}'))
        {
            let Some(found) = variable(name) else {
                return false;
            };
            *value = Value::String(found);
        }
        put_variables(value, variable);
        true
    });
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_variable_that_is_not_set_leaves_its_setting_out() {
        let runner = |found: Option<&str>| {
            let found = found.map(str::to_owned);
            let settings = read(|_| found.clone()).expect("the file is right");
            settings.sandbox["local"].config.get("runner").cloned()
        };
        assert_eq!(runner(None), None);
        assert_eq!(runner(Some("/a/runner")), Some("/a/runner".into()));
    }
}
