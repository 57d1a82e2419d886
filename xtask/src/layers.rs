//! `cargo xtask layers`: the table of allowed dependency edges, checked on the real tree.

mod unused;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::finding::{Finding, report};
use crate::glob::matches_any;
use crate::tree::{self, Dependency, Kind, Package, Tree};

/// The rule file, relative to the root.
const RULES: &str = "xtask/layers.toml";

/// Check every dependency between our crates against the table of allowed edges.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<ExitCode> {
    let findings = check_tree(&tree::root())?;
    Ok(report(findings, "layers: every edge is allowed"))
}

/// All checks on the workspace at `root`, with the rules that lie in it.
pub(crate) fn check_tree(root: &Path) -> Result<Vec<Finding>> {
    let tree = Tree::load(root)?;
    let rules = Rules::parse(&tree.read(RULES)?)?;
    let mut findings = check(&tree, &rules);
    findings.extend(unused::check(&tree, &rules.unnamed)?);
    Ok(findings)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rules {
    row: Vec<Row>,
    #[serde(default)]
    vendor: Vec<Vendor>,
    #[serde(default)]
    unnamed: Vec<Unnamed>,
}

/// What the packages in `crates` may depend on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    crates: Vec<String>,
    may_use: Vec<String>,
    /// Allowed as dev-dependencies on top.
    #[serde(default)]
    dev: Vec<String>,
}

/// Third-party crates that `only` some packages may name, or that some may `never` name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vendor {
    names: Vec<String>,
    only: Option<Vec<String>>,
    #[serde(default)]
    never: Vec<String>,
    why: String,
}

/// Dependencies that are needed although no source file names them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unnamed {
    crates: Vec<String>,
    names: Vec<String>,
    #[expect(dead_code, reason = "required in the file, for whoever reads it")]
    why: String,
}

impl Rules {
    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).with_context(|| format!("{RULES} is not valid"))
    }

    fn row(&self, package: &Package) -> Option<&Row> {
        self.row
            .iter()
            .find(|row| matches_any(&row.crates, &package.dir))
    }
}

/// The edges of `tree` that `rules` do not allow.
pub(crate) fn check(tree: &Tree, rules: &Rules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for fixture in &tree.missing_fixtures {
        let message = "is in workspace.exclude but holds no package";
        findings.push(Finding::new(fixture, message));
    }
    for package in &tree.packages {
        let row = rules.row(package);
        if row.is_none() {
            let message = format!("no row of {RULES} matches package {}", package.name);
            findings.push(Finding::new(&package.dir, message));
        }
        for dependency in &package.dependencies {
            match (&dependency.ours, row) {
                (Some(dir), Some(row)) => {
                    findings.extend(edge(tree, package, row, dependency, dir));
                }
                (Some(_), None) => {}
                (None, _) => findings.extend(vendor(rules, package, dependency)),
            }
        }
    }
    findings
}

fn edge(
    tree: &Tree,
    package: &Package,
    row: &Row,
    dependency: &Dependency,
    dir: &str,
) -> Option<Finding> {
    let dev = dependency.kind == Kind::Dev && matches_any(&row.dev, dir);
    let known = tree.package(dir).is_some();
    if known && (dev || matches_any(&row.may_use, dir)) {
        return None;
    }
    let message = if known {
        format!(
            "{} names {} ({dir}) in its {}, which row {:?} of {RULES} does not allow",
            package.name,
            dependency.name,
            dependency.kind.section(),
            row.crates
        )
    } else {
        format!(
            "{} depends on the path {dir}, where no package of this workspace lies",
            package.name
        )
    };
    Some(Finding::new(&package.dir, message))
}

fn vendor(rules: &Rules, package: &Package, dependency: &Dependency) -> Vec<Finding> {
    let refuses = |rule: &&Vendor| {
        let outside = |only: &Vec<String>| !matches_any(only, &package.dir);
        matches_any(&rule.names, &dependency.name)
            && (matches_any(&rule.never, &package.dir) || rule.only.as_ref().is_some_and(outside))
    };
    let say = |rule: &Vendor| {
        let message = format!(
            "{} names {} in its {}: {} (vendor rule of {RULES})",
            package.name,
            dependency.name,
            dependency.kind.section(),
            rule.why
        );
        Finding::new(&package.dir, message)
    };
    rules.vendor.iter().filter(refuses).map(say).collect()
}

#[cfg(test)]
mod tests;
