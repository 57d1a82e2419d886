//! The check of an agent's engine options, when the agent is written.

use std::collections::BTreeMap;

use astrabox_types::Json;
use serde_json::Value;

use crate::{EngineCapabilities, Error, ErrorKind, Result};

/// Checks block names, object shape and protected keys; everything else is the program's affair.
///
/// # Errors
/// `InvalidConfiguration`, naming the block and the key.
pub fn check_options(
    capabilities: &EngineCapabilities,
    options: &BTreeMap<String, Json>,
) -> Result<()> {
    let invalid = |text: String| Error::new(ErrorKind::InvalidConfiguration, "check options", text);
    for (name, value) in options {
        let Some(block) = capabilities
            .option_blocks
            .iter()
            .find(|block| block.name == name)
        else {
            let known: Vec<_> = capabilities
                .option_blocks
                .iter()
                .map(|block| block.name)
                .collect();
            return Err(invalid(format!(
                "unknown block `{name}`; this engine has: {}",
                known.join(", ")
            )));
        };
        let Value::Object(object) = value.value() else {
            return Err(invalid(format!("block `{name}` must be a JSON object")));
        };
        if let Some(key) = block
            .protected_keys
            .iter()
            .find(|key| has_path(&object, key))
        {
            return Err(invalid(format!(
                "`{name}.{key}` is set by the platform; remove it"
            )));
        }
    }
    Ok(())
}

fn has_path(object: &serde_json::Map<String, Value>, path: &str) -> bool {
    // Programs read `a.b` both as a dotted key and as a nested one.
    if object.contains_key(path) {
        return true;
    }
    match path.split_once('.') {
        None => object
            .keys()
            .any(|key| fits(key.split('.').next().unwrap_or_default(), path)),
        Some((first, rest)) => object
            .iter()
            .filter(|(key, _)| fits(key, first))
            .filter_map(|(_, value)| value.as_object())
            .any(|inner| has_path(inner, rest)),
    }
}

fn fits(key: &str, part: &str) -> bool {
    match part.strip_suffix('*') {
        Some(begin) => key.starts_with(begin),
        None => key == part,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_protected_key_is_found_dotted_nested_and_by_its_beginning() {
        for (path, value, found) in [
            ("a.b", json!({"a": {"b": 1}}), true),
            ("a.b", json!({"a.b": 1}), true),
            ("a.b", json!({"a": {"c": 1}}), false),
            ("a", json!({"a.b": 1}), true),
            ("a", json!({"ab": 1}), false),
            ("A_*", json!({"A_B": 1}), true),
            ("A_*", json!({"B_A_": 1}), false),
            ("*.b", json!({"x": {"b": 1}}), true),
            ("*.b", json!({"b": 1}), false),
        ] {
            let Value::Object(object) = value else {
                panic!("an object")
            };
            assert_eq!(has_path(&object, path), found, "{path}");
        }
    }
}
