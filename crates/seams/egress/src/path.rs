//! One canonical form of a path, and the patterns that match it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which paths a rule means: an absolute path of segments, in which `*` stands for one whole segment and a last `**`
/// for everything below.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPattern(String);

/// A text that is not a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a path pattern: {why}")]
pub struct InvalidPath {
    pattern: String,
    why: &'static str,
}

impl FromStr for PathPattern {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        if text.starts_with('/') {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidPath {
            pattern: text.to_owned(),
            why: "it begins with `/`",
        })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for PathPattern {
    type Error = InvalidPath;
    fn try_from(text: String) -> Result<Self, InvalidPath> {
        text.parse()
    }
}

impl From<PathPattern> for String {
    fn from(pattern: PathPattern) -> Self {
        pattern.0
    }
}
