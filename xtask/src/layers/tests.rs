use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{RULES, check_tree};
use crate::tree;

/// A workspace in miniature, checked with the real rules.
struct Sample {
    dir: TempDir,
}

impl Sample {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sample = Self { dir };
        let root = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/types\", \
                    \"crates/seams/engine\", \"crates/engines/codex\", \
                    \"crates/core/platform\", \"crates/conformance\"]\n\
                    [workspace.dependencies]\n";
        sample.write("Cargo.toml", root);
        let rules = fs::read_to_string(tree::root().join(RULES)).unwrap();
        sample.write(RULES, &rules);
        sample.package("crates/types", "astrabox-types", "");
        sample.package("crates/conformance", "astrabox-conformance", "");
        sample.package("crates/core/platform", "astrabox-platform", "");
        sample.package(
            "crates/seams/engine",
            "astrabox-engine",
            "[dependencies]\nastrabox-types = { path = \"../../types\" }\n",
        );
        sample.package("crates/engines/codex", "astrabox-engine-codex", ENGINE);
        sample
    }

    /// Writes a package whose source names everything that a test may make it depend on.
    fn package(&self, dir: &str, name: &str, dependencies: &str) {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n{dependencies}"
        );
        self.write(&format!("{dir}/Cargo.toml"), &manifest);
        let source = "use astrabox_types as _; use astrabox_engine as _; use sqlx as _; \
                      use astrabox_platform as _; use astrabox_conformance as _; \
                      use tonic as _; use anyhow as _; use tokio as _;";
        self.write(&format!("{dir}/src/lib.rs"), source);
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn findings(&self) -> Vec<String> {
        check(self.dir.path())
    }
}

fn check(root: &Path) -> Vec<String> {
    let findings = check_tree(root).unwrap();
    findings.iter().map(ToString::to_string).collect()
}

const ENGINE: &str = "[dependencies]\nastrabox-engine = { path = \"../../seams/engine\" }\n\
                      astrabox-types = { path = \"../../types\" }\n\
                      [dev-dependencies]\nastrabox-conformance = { path = \"../../conformance\" }\n";

#[test]
fn the_allowed_edges_pass() {
    assert_eq!(Sample::new().findings(), Vec::<String>::new());
}

#[test]
fn an_engine_that_depends_on_the_platform_fails_in_every_dependency_table() {
    for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let sample = Sample::new();
        let manifest = format!(
            "[target.'cfg(unix)'.{table}]\n\
             astrabox-platform = {{ path = \"../../core/platform\", optional = {} }}\n",
            table == "dependencies"
        );
        sample.package("crates/engines/codex", "astrabox-engine-codex", &manifest);
        let said = sample.findings();
        assert_eq!(said.len(), 1, "{said:?}");
        for part in [
            "crates/engines/codex: astrabox-engine-codex names astrabox-platform",
            table,
            "[\"crates/engines/*\"]",
        ] {
            assert!(said[0].contains(part), "{part} in {}", said[0]);
        }
    }
}

#[test]
fn an_edge_that_is_allowed_for_tests_is_refused_in_the_library() {
    let sample = Sample::new();
    let manifest = ENGINE.replace("[dev-dependencies]\n", "");
    sample.package("crates/engines/codex", "astrabox-engine-codex", &manifest);
    let said = sample.findings();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("astrabox-conformance"), "{}", said[0]);
}

#[test]
fn any_unlisted_edge_fails() {
    let sample = Sample::new();
    let manifest = "[dependencies]\nastrabox-engine = { path = \"../seams/engine\" }\n";
    sample.package("crates/types", "astrabox-types", manifest);
    sample.package("crates/seams/engine", "astrabox-engine", "");
    let said = sample.findings();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("crates/types: astrabox-types names astrabox-engine"));
}

#[test]
fn a_package_without_a_row_fails() {
    let sample = Sample::new();
    let root = fs::read_to_string(sample.dir.path().join("Cargo.toml")).unwrap();
    sample.write(
        "Cargo.toml",
        &root.replace("\"crates/types\"", "\"crates/types\", \"crates/odd\""),
    );
    sample.package("crates/odd", "odd", "");
    let said = sample.findings();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("no row"), "{}", said[0]);
}

#[test]
fn a_fixture_outside_the_workspace_is_checked_and_must_exist() {
    let sample = Sample::new();
    let root = fs::read_to_string(sample.dir.path().join("Cargo.toml")).unwrap();
    sample.write(
        "Cargo.toml",
        &root.replace(
            "[workspace]\n",
            "[workspace]\nexclude = [\"tests/embedder\"]\n",
        ),
    );
    assert!(sample.findings()[0].contains("holds no package"));
    let manifest = "[dependencies]\nastrabox-platform = { path = \"../../crates/core/platform\" }\n\
                    [workspace]\n";
    sample.package("tests/embedder", "embedder", manifest);
    let said = sample.findings();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("tests/embedder: embedder names astrabox-platform"));
}

#[test]
fn third_party_crates_stay_where_the_rules_put_them() {
    let cases = [
        (
            "crates/engines/codex",
            "astrabox-engine-codex",
            "sqlx",
            true,
        ),
        (
            "crates/engines/codex",
            "astrabox-engine-codex",
            "tonic",
            true,
        ),
        (
            "crates/engines/codex",
            "astrabox-engine-codex",
            "anyhow",
            true,
        ),
        (
            "crates/engines/codex",
            "astrabox-engine-codex",
            "tokio",
            false,
        ),
        ("crates/types", "astrabox-types", "tokio", true),
    ];
    for (dir, name, vendor, refused) in cases {
        let sample = Sample::new();
        let manifest = if dir == "crates/types" {
            "[dependencies]\n"
        } else {
            ENGINE
        };
        let manifest = manifest.replace(
            "[dependencies]\n",
            &format!("[dependencies]\n{vendor} = \"1\"\n"),
        );
        sample.package(dir, name, &manifest);
        let said = sample.findings();
        assert_eq!(said.len(), usize::from(refused), "{vendor}: {said:?}");
        assert!(said.iter().all(|finding| finding.contains("vendor rule")));
    }
}

#[test]
fn a_dependency_that_nothing_names_is_found() {
    let sample = Sample::new();
    sample.write(
        "crates/engines/codex/src/lib.rs",
        "//! astrabox_types in prose only",
    );
    let root = fs::read_to_string(sample.dir.path().join("Cargo.toml")).unwrap();
    sample.write("Cargo.toml", &format!("{root}bytes = \"1\"\n"));
    let said = sample.findings().join("\n");
    for part in [
        "astrabox-types is among the dependencies of astrabox-engine-codex",
        "astrabox-conformance is among the dev-dependencies of astrabox-engine-codex",
        "bytes in [workspace.dependencies]",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn the_workspace_has_no_other_edge() {
    let said = check(&tree::root());
    assert!(said.is_empty(), "\n{}", said.join("\n"));
}
