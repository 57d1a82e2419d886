//! `cargo xtask tidy`: the rules of the tree that neither the compiler nor clippy knows.

mod attacks;
mod docs;
mod manifests;
mod rust;
mod shape;
mod sleeps;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::finding::{Finding, report};
use crate::glob::matches_any;
use crate::tree::{self, Tree};

/// The rule file, relative to the root.
const RULES: &str = "xtask/tidy.toml";

/// Check file lengths, crate roots and their place in ARCHITECTURE.md, banned words and shapes.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<ExitCode> {
    let findings = check_tree(&tree::root())?;
    Ok(report(findings, "tidy: the tree keeps its rules"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    max_lines: usize,
    generated: Vec<String>,
    unsafe_in: Vec<String>,
    shape: Vec<shape::Shape>,
}

/// All checks on the tree at `root`.
pub(crate) fn check_tree(root: &Path) -> Result<Vec<Finding>> {
    let tree = Tree::load(root)?;
    let rules: Rules =
        toml::from_str(&tree.read(RULES)?).with_context(|| format!("{RULES} is not valid"))?;
    let files = tree::files(root)?;
    let mut findings = Vec::new();
    let mut sources = BTreeMap::new();
    for path in &files {
        if matches_any(&rules.generated, path) {
            continue;
        }
        // A file that is no text has no rule here.
        let Ok(text) = fs::read_to_string(root.join(path)) else {
            continue;
        };
        findings.extend(words::check(path, &text));
        if path.ends_with(".rs") {
            sources.insert(path.clone(), text.clone());
            findings.extend(rust::check(path, &text, &rules.limits(path)));
            findings.extend(sleeps::check(path, &text));
        }
    }
    findings.extend(docs::check(&tree, &crate::command_names())?);
    if let Ok(page) = tree.read(attacks::PAGE) {
        findings.extend(attacks::check(&page, &tree.packages, &sources));
    }
    findings.extend(manifests::check(&tree)?);
    findings.extend(shape::check(&tree, &rules.shape));
    findings.extend(shape::check_decisions(&files));
    Ok(findings)
}

impl Rules {
    fn limits(&self, path: &str) -> rust::Limits {
        rust::Limits {
            max_lines: self.max_lines,
            may_be_unsafe: matches_any(&self.unsafe_in, path),
        }
    }
}

#[cfg(test)]
mod tests;
