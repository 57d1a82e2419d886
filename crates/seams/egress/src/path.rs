//! The patterns that say which paths a rule means.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::CanonicalTarget;

/// The longest pattern, in bytes.
const MOST_BYTES: usize = 1024;

/// Which paths a rule means: an absolute path in which
///
/// * `*` as a whole segment stands for one segment that is not empty: `/v1/*/x` means `/v1/a/x`, not `/v1/x` nor
///   `/v1/a/b/x`;
/// * `*` in a segment stands for any part of it, an empty one too, and never crosses a slash: `/v1/m*s` means
///   `/v1/ms` and `/v1/models`;
/// * `**` as the last segment stands for everything below and for the path itself: `/a/b/**` means `/a/b`, `/a/b/`
///   and `/a/b/x/y`, not `/a/b-other`. `/**` means every path.
///
/// Everything else is meant letter by letter, upper and lower case apart; `/a` and `/a/` are two paths. What no
/// unescaped path holds is refused when it is written; a `*` stands for an escaped character too.
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

impl PathPattern {
    /// Whether the pattern means the path of this target. A target with a doubt is never meant (EG9).
    #[must_use]
    pub fn matches(&self, target: &CanonicalTarget) -> bool {
        target.doubt().is_none() && self.matches_path(target.path())
    }

    fn matches_path(&self, path: &str) -> bool {
        let mut wanted = self.0.split('/');
        let mut given = path.split('/');
        loop {
            match (wanted.next(), given.next()) {
                (Some("**"), _) | (None, None) => return true,
                (Some(pattern), Some(segment)) if matches_segment(pattern, segment) => {}
                _ => return false,
            }
        }
    }
}

fn matches_segment(pattern: &str, segment: &str) -> bool {
    if pattern == "*" {
        return !segment.is_empty();
    }
    if !pattern.contains('*') {
        return pattern == segment;
    }
    if !segment.contains('%') {
        return matches_glob(pattern.as_bytes(), segment.as_bytes());
    }
    // Every `%` of a canonical path begins an escape; it stands for the whole of it, and is in no pattern.
    let mut units = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        units.push(byte);
        rest = &behind[if byte == b'%' { 2 } else { 0 }..];
    }
    matches_glob(pattern.as_bytes(), &units)
}

/// `*` for any run of bytes; linear but for the way back to the last `*`.
fn matches_glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, from)) = star {
            (p, t) = (at + 1, from + 1);
            star = Some((at, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

impl FromStr for PathPattern {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        match check(text) {
            Ok(()) => Ok(Self(text.to_owned())),
            Err(why) => Err(InvalidPath {
                pattern: text.chars().take(MOST_BYTES).collect(),
                why,
            }),
        }
    }
}

fn check(text: &str) -> Result<(), &'static str> {
    let Some(path) = text.strip_prefix('/') else {
        return Err("it begins with `/`");
    };
    if text.len() > MOST_BYTES {
        return Err("it is longer than 1024 bytes");
    }
    if text.contains(['?', '#']) {
        return Err("it is a path without query and fragment");
    }
    if text.contains('%') {
        return Err("it holds no escapes; write `*` for an escaped character");
    }
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,=:@/".contains(&byte);
    if !text.bytes().all(fine) {
        return Err(
            "only letters, digits and -._~!$&'()*+,=:@ are allowed (write `*` for another character)",
        );
    }
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => return Err("it holds a `.` or `..` segment"),
            "" if !last => return Err("it holds an empty segment"),
            "**" if last => {}
            _ if segment.contains("**") => return Err("`**` is the whole last segment"),
            _ => {}
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eg10_a_pattern_means_what_it_says() {
        for (pattern, path, wanted) in [
            ("/a/b", "/a/b", true),
            ("/a/b", "/a/b/", false),
            ("/a/b", "/A/b", false),
            ("/a/b", "/a", false),
            ("/a/b/", "/a/b/", true),
            ("/a/b/", "/a/b", false),
            ("/", "/", true),
            ("/", "/a", false),
            // E6
            ("/acme/repo.git/**", "/acme/repo.git", true),
            (
                "/acme/repo.git/**",
                "/acme/repo.git/info/refs?service=x",
                true,
            ),
            ("/acme/repo.git/**", "/acme/repo.git-other", false),
            ("/acme/repo.git/**", "/acme/repo.git-other/info", false),
            ("/a/b/**", "/a/b/", true),
            ("/a/b/**", "/a", false),
            ("/**", "/", true),
            ("/**", "/a/b", true),
            // `*` stays in its segment
            ("/v1/*", "/v1/a", true),
            ("/v1/*", "/v1/", false),
            ("/v1/*", "/v1", false),
            ("/v1/*", "/v1/a/b", false),
            ("/v1/*/x", "/v1/a/x", true),
            ("/v1/*/x", "/v1/a/b/x", false),
            ("/v1/m*s", "/v1/ms", true),
            ("/v1/m*s", "/v1/models", true),
            ("/v1/m*s", "/v1/model", false),
            ("/v1/m*s", "/v1/m/s", false),
            ("/*a*b*", "/xaxbx", true),
            ("/*a*b*", "/xbxax", false),
            ("/v1/x*", "/v1/x", true),
            ("/v1/*/**", "/v1/a/b/c", true),
            ("/v1/*/**", "/v1/a", true),
            ("/v1/*/**", "/v1", false),
            // An escape is one character, which only a star means.
            ("/@s/*", "/@s/caf%c3%a9", true),
            ("/@s/x", "/%40s/x", false),
            ("/*0s", "/%40s", false),
            ("/*s", "/%40s", true),
            ("/%C3", "/%C3", false),
            // Doubt
            ("/**", "/a//b", false),
            ("/**", "/a%2fb", false),
            ("/a/*", "/a/b;c", false),
        ] {
            let Ok(pattern) = pattern.parse::<PathPattern>() else {
                assert!(!wanted, "{pattern}");
                continue;
            };
            let matched = CanonicalTarget::parse(path).is_ok_and(|path| pattern.matches(&path));
            assert_eq!(matched, wanted, "{pattern} against {path}");
        }
    }

    #[test]
    fn eg10_bad_patterns_are_refused() {
        for text in [
            "",
            "a",
            "*",
            "**",
            "/a?",
            "/a#",
            "/a b",
            "/a\t",
            "/a%20",
            "/a\0",
            "/a/./b",
            "/..",
            "/a/../b",
            "/a//b",
            "//",
            "/a/**/b",
            "/a**",
            "/**/",
            "/a/b**",
            "/***",
            "/a\\b",
            "/a;b",
            "/caf\u{e9}",
            "/[a]",
            "/{a,b}",
        ] {
            assert!(text.parse::<PathPattern>().is_err(), "{text:?}");
        }
        assert!(
            format!("/{}", "a".repeat(1023))
                .parse::<PathPattern>()
                .is_ok()
        );
        assert!(
            format!("/{}", "a".repeat(1024))
                .parse::<PathPattern>()
                .is_err()
        );
    }

    #[test]
    fn a_pattern_survives_text() {
        for text in ["/", "/a/", "/a/*/b*c/**", "/**"] {
            assert_eq!(text.parse::<PathPattern>().expect(text).to_string(), text);
        }
    }
}
