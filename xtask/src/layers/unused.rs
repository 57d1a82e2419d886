//! Dependencies that are declared and not used.

use std::collections::BTreeSet;

use anyhow::Result;

use super::Unnamed;
use crate::finding::Finding;
use crate::glob::matches_any;
use crate::source::{Item, items};
use crate::tree::{Package, Tree};

/// Entries of `[workspace.dependencies]` that no package takes, and dependencies of a package
/// that none of its source files names.
pub(super) fn check(tree: &Tree, exceptions: &[Unnamed]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut taken = BTreeSet::new();
    for package in &tree.packages {
        let manifest = tree.read(&format!("{}/Cargo.toml", package.dir))?;
        taken.extend(inherited(&toml::from_str(&manifest)?));
        let words = words(tree, package)?;
        for dependency in &package.dependencies {
            let excepted = exceptions.iter().any(|exception| {
                matches_any(&exception.crates, &package.dir)
                    && exception.names.contains(&dependency.name)
            });
            if !words.contains(&dependency.ident) && !excepted {
                let message = format!(
                    "{} is among the {} of {} and no source file names it: remove it",
                    dependency.name,
                    dependency.kind.section(),
                    package.name
                );
                findings.push(Finding::new(&package.dir, message));
            }
        }
    }
    for name in tree.shared_dependencies.difference(&taken) {
        let message = format!("{name} in [workspace.dependencies] is used by no package");
        findings.push(Finding::new("Cargo.toml", message));
    }
    Ok(findings)
}

/// The keys that a manifest takes with `workspace = true`, in any of its dependency tables.
fn inherited(manifest: &toml::Table) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else {
            continue;
        };
        if key.ends_with("dependencies") {
            names.extend(
                table
                    .iter()
                    .filter(|(_, entry)| {
                        entry.get("workspace").and_then(toml::Value::as_bool) == Some(true)
                    })
                    .map(|(name, _)| name.clone()),
            );
        } else if key == "target" {
            for platform in table.values().filter_map(toml::Value::as_table) {
                names.extend(inherited(platform));
            }
        }
    }
    names
}

/// Every identifier in the package's source, and every word of its path-like string literals.
fn words(tree: &Tree, package: &Package) -> Result<BTreeSet<String>> {
    let mut words = BTreeSet::new();
    for file in tree.rust_files(package)? {
        // A file that is no Rust is the compiler's business, or tidy's.
        for (_, item) in items(&tree.read(&file)?).unwrap_or_default() {
            match item {
                Item::Ident(name) => {
                    words.insert(name);
                }
                Item::PathLiteral(path) => words.extend(path.split("::").map(str::to_owned)),
                Item::Macro(_) | Item::Attribute(_) => {}
            }
        }
    }
    Ok(words)
}
