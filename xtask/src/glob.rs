//! Path patterns of the rule files: `*` stays within one segment, `**` does not.

/// Whether `path` (with `/` between segments) matches `pattern`.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    match_bytes(pattern.as_bytes(), path.as_bytes())
}

/// Whether any of `patterns` matches.
pub(crate) fn matches_any<S: AsRef<str>>(patterns: &[S], path: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| matches(pattern.as_ref(), path))
}

fn match_bytes(pattern: &[u8], path: &[u8]) -> bool {
    match pattern {
        [] => path.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=path.len()).any(|end| match_bytes(rest, &path[end..])),
        [b'*', rest @ ..] => {
            let segment = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
            (0..=segment).any(|end| match_bytes(rest, &path[end..]))
        }
        [byte, rest @ ..] => path
            .split_first()
            .is_some_and(|(first, path)| first == byte && match_bytes(rest, path)),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stays_in_its_segment_and_two_do_not() {
        let cases = [
            ("crates/types", "crates/types", true),
            ("crates/types", "crates/types2", false),
            ("crates/engines/*", "crates/engines/codex", true),
            ("crates/engines/*", "crates/engines", false),
            ("crates/engines/*", "crates/engines/a/b", false),
            (
                "crates/providers/sandbox-*",
                "crates/providers/sandbox-local",
                true,
            ),
            (
                "crates/providers/sandbox-*",
                "crates/providers/model-direct",
                false,
            ),
            ("crates/**", "crates/engines/a/b", true),
            ("**/gen/**", "crates/edge/proto/src/gen/x.rs", true),
            ("**/gen/**", "crates/edge/proto/src/generic/x.rs", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern, path), expected, "{pattern} on {path}");
        }
    }
}
