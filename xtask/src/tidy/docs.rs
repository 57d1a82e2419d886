//! What crates and commands say about themselves, and that the documents say the same.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::finding::Finding;
use crate::tree::Tree;

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const README: &str = "README.md";

/// Every crate has its sentence and its invariant, ARCHITECTURE.md has both in the same words,
/// and the README names every command.
pub(super) fn check(tree: &Tree, commands: &[String]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let dirs = tree.packages.iter().map(|package| &*package.dir).collect();
    let map = tree.read(ARCHITECTURE).map(|text| entries(&text, &dirs));
    if map.is_err() {
        findings.push(Finding::new(ARCHITECTURE, "is missing"));
    }
    let map = map.unwrap_or_default();
    for package in tree.packages.iter().filter(|package| !package.fixture) {
        let Some(path) = &package.crate_root else {
            continue;
        };
        match Root::parse(&tree.read(path)?) {
            Ok(root) => findings.extend(root.missing_from(&map, &package.dir)),
            Err(message) => findings.push(Finding::new(path, message)),
        }
    }
    findings.extend(readme(&tree.read(README).unwrap_or_default(), commands));
    Ok(findings)
}

/// The first lines of a crate.
#[derive(Debug, PartialEq, Eq)]
struct Root {
    sentence: String,
    invariant: String,
}

impl Root {
    fn parse(code: &str) -> Result<Self, &'static str> {
        let documentation: Vec<&str> = code
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .map(|line| line.trim_start_matches("//!").trim())
            .collect();
        let mut paragraphs = documentation
            .split(|line| line.is_empty())
            .map(|lines| lines.join(" "));
        let sentence = paragraphs.next().unwrap_or_default();
        if !sentence.ends_with('.') {
            return Err("does not begin with the crate's one sentence: //! It does this.");
        }
        let invariant =
            paragraphs.find_map(|text| text.strip_prefix("Invariant: ").map(str::to_owned));
        match invariant {
            Some(invariant) if invariant.ends_with('.') => Ok(Self {
                sentence,
                invariant,
            }),
            _ => Err("has no paragraph `//! Invariant: ...` below its sentence"),
        }
    }

    fn missing_from(&self, map: &BTreeMap<String, String>, dir: &str) -> Option<Finding> {
        let entry = map.get(dir).map_or("", String::as_str);
        let complete =
            entry.contains(&plain(&self.sentence)) && entry.contains(&plain(&self.invariant));
        (!complete).then(|| {
            let message = format!(
                "does not have {dir} with the words of its crate root; it should say:\n  \
                 - `{dir}`: {} *Invariant:* {}",
                self.sentence, self.invariant
            );
            Finding::new(ARCHITECTURE, message)
        })
    }
}

/// The entries of ARCHITECTURE.md: folder to text. An entry is a paragraph, list item or table row
/// that begins with the folder in backticks, up to the next entry or heading.
fn entries(document: &str, dirs: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let mut entries: BTreeMap<String, String> = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in document.lines() {
        let start = line.trim_start_matches([' ', '-', '*', '|', '#']);
        if let Some((dir, rest)) = entry_start(start).filter(|(dir, _)| dirs.contains(dir)) {
            current = Some(dir.to_owned());
            entries.insert(dir.to_owned(), plain(rest));
        } else if line.starts_with('#') {
            current = None;
        } else if let Some(text) = current.as_ref().and_then(|dir| entries.get_mut(dir)) {
            text.push(' ');
            text.push_str(&plain(line));
        }
    }
    entries
}

/// The words in backticks that a line begins with, and what follows them.
fn entry_start(line: &str) -> Option<(&str, &str)> {
    let (dir, rest) = line.strip_prefix('`')?.split_once('`')?;
    Some((dir.trim_end_matches('/'), rest))
}

/// Text without emphasis and with single spaces, so that a document may wrap and stress words.
fn plain(text: &str) -> String {
    text.replace(['*', '_'], "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn readme(text: &str, commands: &[String]) -> Vec<Finding> {
    commands
        .iter()
        .filter(|command| !text.contains(&format!("cargo xtask {command}")))
        .map(|command| Finding::new(README, format!("does not mention `cargo xtask {command}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Root, entries, readme};

    const CODE: &str = "//! Does one thing,\n//! well.\n//!\n//! Invariant: knows no HTTP,\n\
                        //! not even a *bit* of it.\n//!\n//! More.\n\nfn f() {}\n";

    #[test]
    fn a_crate_root_gives_its_sentence_and_its_invariant() {
        let root = Root::parse(CODE).unwrap();
        assert_eq!(root.sentence, "Does one thing, well.");
        assert_eq!(root.invariant, "knows no HTTP, not even a *bit* of it.");
        for code in [
            "",
            "//! No full stop\n",
            "//! A sentence.\n",
            "//! A.\n//!\n//! Invariant: x\n",
        ] {
            assert!(Root::parse(code).is_err(), "{code:?}");
        }
    }

    #[test]
    fn architecture_may_wrap_the_words_but_not_change_them() {
        let root = Root::parse(CODE).unwrap();
        let good = "- `crates/x`: Does one\n  thing, well. *Invariant:* knows no HTTP, not even \
                    a bit of it.\n- `crates/y`: Other.\n";
        let table =
            "| `crates/x/` | Does one thing, well. | knows no HTTP, not even a bit of it. |";
        let changed = good.replace("no HTTP", "HTTP");
        let dirs = ["crates/x", "crates/y", "crates/z"].into();
        let elsewhere = good.replace("crates/x", "crates/z");
        let headed = good.replace("well.", "well.\n# Other\n");
        for (document, complete) in [
            (good, true),
            (table, true),
            (&changed, false),
            (&elsewhere, false),
            (&headed, false),
        ] {
            let missing = root.missing_from(&entries(document, &dirs), "crates/x");
            assert_eq!(missing.is_none(), complete, "{document}");
        }
    }

    #[test]
    fn the_readme_names_every_command() {
        let commands = ["test".to_owned(), "tidy".to_owned()];
        let found = readme("run `cargo xtask test`", &commands);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("cargo xtask tidy"));
    }
}
