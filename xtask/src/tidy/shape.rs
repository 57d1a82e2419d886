//! Which files there are: the same ones in every adapter, numbered ones among the decisions.

use serde::Deserialize;

use crate::finding::Finding;
use crate::glob::matches_any;
use crate::tree::Tree;

/// Files that every package of one kind has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Shape {
    crates: Vec<String>,
    except: Vec<String>,
    /// Each stands for `src/<name>.rs` or `src/<name>/mod.rs`.
    files: Vec<String>,
}

pub(super) fn check(tree: &Tree, shapes: &[Shape]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let dir = &package.dir;
        for shape in shapes {
            if !matches_any(&shape.crates, dir) || matches_any(&shape.except, dir) {
                continue;
            }
            for name in &shape.files {
                let src = tree.root.join(dir).join("src");
                if !src.join(format!("{name}.rs")).is_file()
                    && !src.join(name).join("mod.rs").is_file()
                {
                    let message = format!("has no src/{name}.rs, as every adapter of its kind has");
                    findings.push(Finding::new(dir, message));
                }
            }
        }
    }
    findings
}

/// `docs/decisions/` holds `NNNN-some-words.md`, numbered from 1 without a gap.
pub(super) fn check_decisions(files: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut expected = 1;
    for path in files {
        let Some(name) = path.strip_prefix("docs/decisions/") else {
            continue;
        };
        if name == "README.md" {
            continue;
        }
        match number(name) {
            None => findings.push(Finding::new(path, "is not named like 0001-some-words.md")),
            Some(number) if number != expected => {
                let message =
                    format!("is numbered {number:04}, the next free number is {expected:04}");
                findings.push(Finding::new(path, message));
                expected = number + 1;
            }
            Some(_) => expected += 1,
        }
    }
    findings
}

fn number(name: &str) -> Option<u32> {
    let (number, words) = name.strip_suffix(".md")?.split_once('-')?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (number.len() == 4 && !words.is_empty() && words.chars().all(plain))
        .then(|| number.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::check_decisions;

    #[test]
    fn decisions_are_numbered_without_gap_or_double() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["0001-a.md", "0002-b-c.md", "README.md"], &[]),
            (&["0001-a.md", "0003-b.md", "0004-c.md"], &["0003-b.md"]),
            (&["0001-a.md", "0001-b.md"], &["0001-b.md"]),
            (&["notes.md"], &["notes.md"]),
            (&["1-a.md"], &["1-a.md"]),
            (&["0001-A b.md"], &["0001-A b.md"]),
        ];
        for (names, wrong) in cases {
            let files: Vec<_> = names
                .iter()
                .map(|n| format!("docs/decisions/{n}"))
                .collect();
            let found: Vec<_> = check_decisions(&files)
                .into_iter()
                .map(|f| f.place)
                .collect();
            let wrong: Vec<_> = wrong
                .iter()
                .map(|n| format!("docs/decisions/{n}"))
                .collect();
            assert_eq!(found, wrong);
        }
    }
}
