//! `key=value` options.

use std::collections::HashMap;

use crate::exit::Failure;

/// Reads `key=value` texts; a key that is given twice is refused.
pub(crate) fn read(option: &str, texts: &[String]) -> anyhow::Result<HashMap<String, String>> {
    let mut pairs = HashMap::new();
    for text in texts {
        let (key, value) = split(option, text)?;
        if pairs.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::usage(format!("{option}: `{key}` is given twice")));
        }
    }
    Ok(pairs)
}

/// Reads one `key=value`.
pub(crate) fn split<'a>(option: &str, text: &'a str) -> anyhow::Result<(&'a str, &'a str)> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| Failure::usage(format!("{option}: `{text}` is not `key=value`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_doubles_refused() {
        let texts = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let pairs = read("--x", &texts(&["a=1", "b=x=y", "c="])).expect("they are fine");
        assert_eq!(
            (
                pairs["a"].as_str(),
                pairs["b"].as_str(),
                pairs["c"].as_str()
            ),
            ("1", "x=y", "")
        );
        for wrong in [&["a"][..], &["=1"], &["a=1", "a=2"]] {
            assert!(read("--x", &texts(wrong)).is_err(), "{wrong:?}");
        }
    }
}
