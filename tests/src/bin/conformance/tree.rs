//! What the source tree itself must hold: pinned members, engines without runtimes of their own, linked adapters.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use astrabox_conformance::seed::{
    ENGINE_ADAPTER_MEMBERS, ENGINE_CLIENT_MEMBERS, ENGINE_PLATFORM_MEMBERS, check_engine_sources,
    check_members,
};
use astrabox_conformance::{CaseReport, Report, Verdict};

/// The folders in which adapters live.
const ADAPTERS: [&str; 2] = ["crates/engines", "crates/providers"];
/// The crates of the seams that adapters implement.
const SEAMS: [&str; 6] = [
    "astrabox-engine",
    "astrabox-sandbox",
    "astrabox-model",
    "astrabox-secrets",
    "astrabox-storage",
    "astrabox-identity",
];

/// One fact about the tree, and what speaks against it.
type Fact = (&'static str, Vec<String>);

/// Facts as the report of a suite.
pub(crate) fn report(suite: &str, facts: Vec<Fact>) -> Report {
    let cases = facts.into_iter().map(|(name, against)| CaseReport {
        name,
        clauses: &[],
        verdict: if against.is_empty() {
            Verdict::Passed
        } else {
            Verdict::Failed(against.join("; "))
        },
        took: Duration::ZERO,
    });
    Report {
        suite: suite.to_owned(),
        cases: cases.collect(),
    }
}

/// The root of the source tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The traits between platform and engines have their pinned members, and engines keep to their side.
pub(crate) fn source_cases() -> Vec<Fact> {
    let members =
        |file: &str, name: &str, pinned: &[&str]| match fs::read_to_string(root().join(file)) {
            Ok(source) => check_members(&source, name, pinned),
            Err(error) => vec![format!("{file}: {error}")],
        };
    vec![
        (
            "the_platform_contract_has_exactly_its_twelve_members",
            members(
                "crates/core/startup/src/platform.rs",
                "EnginePlatform",
                ENGINE_PLATFORM_MEMBERS,
            ),
        ),
        (
            "an_engine_adapter_has_exactly_its_members",
            members(
                "crates/seams/engine/src/adapter.rs",
                "EngineAdapter",
                ENGINE_ADAPTER_MEMBERS,
            ),
        ),
        (
            "an_engine_client_has_exactly_its_members",
            members(
                "crates/seams/engine/src/client.rs",
                "EngineClient",
                ENGINE_CLIENT_MEMBERS,
            ),
        ),
        (
            "no_engine_keeps_a_runtime_or_runs_turns_by_itself",
            engine_sources(),
        ),
    ]
}

fn engine_sources() -> Vec<String> {
    let mut against = Vec::new();
    for folder in folders("crates/engines") {
        match check_engine_sources(&folder.join("src")) {
            Ok(findings) => against.extend(
                findings
                    .iter()
                    .map(|finding| format!("{}: {finding}", folder.display())),
            ),
            Err(error) => against.push(format!("{}: {error}", folder.display())),
        }
    }
    against
}

/// The folders of adapters and the registrations that are linked are the same set.
pub(crate) fn linked_cases(origins: &BTreeSet<&str>) -> Vec<Fact> {
    let adapters = adapters();
    let missing = adapters
        .iter()
        .filter(|name| !origins.contains(name.as_str()))
        .map(|name| {
            format!("{name} is in the tree and is not linked: name it in astrabox-builtin")
        });
    let foreign = origins
        .iter()
        .filter(|name| !adapters.contains(**name))
        .map(|name| format!("{name} is linked and is no folder of an adapter"));
    let mut none = Vec::new();
    if adapters.is_empty() {
        none.push("the tree has no adapters".to_owned());
    }
    vec![
        ("the_tree_has_adapters", none),
        ("every_adapter_of_the_tree_is_linked", missing.collect()),
        ("nothing_else_is_linked", foreign.collect()),
    ]
}

/// The packages in the adapters' folders that implement a seam. What another of them builds on is a helper.
fn adapters() -> BTreeSet<String> {
    let packages: Vec<_> = ADAPTERS
        .iter()
        .flat_map(|parent| folders(parent))
        .filter_map(|folder| package(&folder))
        .collect();
    let helps = |name: &str| packages.iter().any(|(_, uses)| uses.contains(name));
    packages
        .iter()
        .filter(|(name, uses)| SEAMS.iter().any(|seam| uses.contains(*seam)) && !helps(name))
        .map(|(name, _)| name.clone())
        .collect()
}

/// The name of the package in this folder and what it depends on.
fn package(folder: &Path) -> Option<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let manifest: toml::Table = toml::from_str(&text).ok()?;
    let dependencies = manifest.get("dependencies")?.as_table()?;
    let name = manifest.get("package")?.get("name")?.as_str()?;
    Some((name.to_owned(), dependencies.keys().cloned().collect()))
}

fn folders(parent: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(parent)).into_iter().flatten();
    let mut folders: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    folders.sort();
    folders
}
