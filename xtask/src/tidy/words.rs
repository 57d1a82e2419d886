//! Words that no file may hold: paths of somebody's machine and addresses of package registries.

use crate::finding::Finding;

// Each is put together from two parts, so that this file does not hold it either.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/root/", ".cargo"),
    concat!("/root/", ".rustup"),
    concat!("/tmp/", "bash"),
];

const REGISTRY_HOSTS: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("registry.", "npmjs.org"),
    concat!("registry.", "yarnpkg.com"),
    concat!("pypi.", "org"),
    concat!("files.", "pythonhosted.org"),
    concat!("deb.", "debian.org"),
    concat!("security.", "debian.org"),
    concat!("proxy.", "golang.org"),
];

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in MACHINE_PATHS {
            if holds_path(line, word) {
                let message = format!("holds {word}, a path of one machine");
                findings.push(Finding::at(path, index + 1, message));
            }
        }
        for word in REGISTRY_HOSTS {
            if line.contains(word) {
                let message =
                    format!("names {word}: packages come through their client's own settings");
                findings.push(Finding::at(path, index + 1, message));
            }
        }
    }
    findings
}

/// Whether `path` stands in `line` as an absolute path, not as the tail of a longer one.
fn holds_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '~' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::{MACHINE_PATHS, REGISTRY_HOSTS, check};

    #[test]
    fn every_word_is_found_at_its_line() {
        for word in MACHINE_PATHS.iter().chain(REGISTRY_HOSTS) {
            let text = format!("fine\nsee `{word}`\n");
            let found = check("a.md", &text);
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!(found[0].line, Some(2), "{word}");
        }
    }

    #[test]
    fn a_path_that_only_ends_like_one_is_fine() {
        let path = MACHINE_PATHS[0];
        let text = format!("a/home{path} ~{path} /workspace/ {{dir}}{path}");
        assert_eq!(check("a.md", &text), []);
    }
}
