//! Image names: `<engine>:<version>-<first 12 hex digits of the recipe's digest>`.

use std::fmt;
use std::str::FromStr;

use astrabox_engine::ImageRecipe;

use crate::digest::recipe_digest;
use crate::{Error, Result};

const MAX_PART: usize = 100;

/// A well-formed image name. Its parts are safe as file names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName {
    engine: String,
    tag: String,
}

/// The name of the image that this recipe of this engine makes on this host's architecture.
#[must_use]
pub fn image_name(engine: &str, recipe: &ImageRecipe) -> String {
    let digest = recipe_digest(engine, recipe);
    format!("{engine}:{}-{}", recipe.version, &digest[..12])
}

impl ImageName {
    /// The engine's kind.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// What follows the colon: version and hash.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        text.split_once(':')
            .filter(|(engine, tag)| is_engine_kind(engine) && is_tag(tag))
            .map(|(engine, tag)| Self {
                engine: engine.to_owned(),
                tag: tag.to_owned(),
            })
            .ok_or_else(|| Error::BadName {
                name: text.chars().take(200).collect(),
            })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.engine, self.tag)
    }
}

/// Whether this can be an engine's kind: lowercase letters, digits and underscores, a letter first.
pub(crate) fn is_engine_kind(text: &str) -> bool {
    text.len() <= MAX_PART
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether this can be a version, or a version and a hash: no slash, and no dot first.
pub(crate) fn is_tag(text: &str) -> bool {
    text.len() <= MAX_PART
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+'))
}

#[cfg(test)]
mod tests {
    use super::ImageName;

    #[test]
    fn a_name_is_an_engine_and_a_tag() {
        for good in [
            "codex:0.169.0-0123456789ab",
            "claude_code:2.1.328-a",
            "x:1+b",
        ] {
            let name: ImageName = good.parse().expect(good);
            assert_eq!(name.to_string(), good);
        }
    }

    #[test]
    fn what_could_leave_the_cache_is_no_name() {
        let long = format!("codex:{}", "1".repeat(101));
        for bad in [
            "",
            "codex",
            ":1",
            "codex:",
            "codex:..",
            "codex:.x",
            "codex:a/b",
            "../x:1",
            "a/b:1",
            "Codex:1",
            "codex:1\n",
            "codex:1 2",
            ".locks:1",
            "codex:1:2",
            &long,
        ] {
            assert!(bad.parse::<ImageName>().is_err(), "{bad:?}");
        }
    }
}
