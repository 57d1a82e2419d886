//! What an environment's program is told of its session: `${...}` in its arguments and variables.

use std::collections::BTreeMap;

use astrabox_engine::{Error, ErrorKind, Result};

/// The names that are known, with what they mean.
pub(crate) const NAMES: [&str; 5] = [
    "model.base_url",
    "model.key",
    "model.name",
    "home",
    "workspace",
];

/// Puts values in place of `${name}`; `$${` is `${`.
///
/// # Errors
/// `InvalidConfiguration` for a name that is not known, or one that has no end.
pub(crate) fn fill(text: &str, values: &BTreeMap<&'static str, String>) -> Result<String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        filled.push_str(&rest[..at]);
        let Some((name, after)) = rest[at + 2..].split_once('}') else {
            return Err(invalid(format!("`{text}` has a `${{` without an end")));
        };
        let Some(value) = values.get(name) else {
            let known = NAMES.map(|name| format!("${{{name}}}")).join(", ");
            return Err(invalid(format!(
                "`${{{name}}}` is not known; there are: {known}; write `$${{` for the characters themselves"
            )));
        };
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn invalid(text: String) -> Error {
    Error::new(
        ErrorKind::InvalidConfiguration,
        "environment's program",
        text,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_in_and_unknown_ones_refused() {
        let values: BTreeMap<_, _> = NAMES
            .iter()
            .map(|name| (*name, format!("<{name}>")))
            .collect();
        for (text, expected) in [
            ("", Some("")),
            ("plain $HOME {x}", Some("plain $HOME {x}")),
            ("${model.base_url}/v1", Some("<model.base_url>/v1")),
            (
                r#"{"a":"${model.name}","b":"${home}${workspace}"}"#,
                Some(r#"{"a":"<model.name>","b":"<home><workspace>"}"#),
            ),
            (
                "$${model.key} ${model.key}",
                Some("${model.key} <model.key>"),
            ),
            ("${model.url}", None),
            ("${", None),
            ("${}", None),
        ] {
            assert_eq!(fill(text, &values).ok().as_deref(), expected, "{text}");
        }
    }
}
