//! Rules of the packages' manifests.

use anyhow::Result;

use crate::finding::Finding;
use crate::tree::Tree;

/// Every package of the workspace inherits lints, edition and dependency versions, and none has a
/// build script.
pub(super) fn check(tree: &Tree) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for package in tree.packages.iter().filter(|package| !package.fixture) {
        let path = format!("{}/Cargo.toml", package.dir);
        let manifest: toml::Table = toml::from_str(&tree.read(&path)?)?;
        if package.has_build_script {
            let message = "has a build script: generate and commit instead (cargo xtask codegen)";
            findings.push(Finding::new(&path, message));
        }
        if !inherits(manifest.get("lints")) {
            let message = "does not take the lints of the workspace: [lints] workspace = true";
            findings.push(Finding::new(&path, message));
        }
        for name in own_versions(&manifest) {
            let message = format!("gives {name} its own source: use {name}.workspace = true");
            findings.push(Finding::new(&path, message));
        }
    }
    Ok(findings)
}

fn inherits(value: Option<&toml::Value>) -> bool {
    value
        .and_then(|value| value.get("workspace"))
        .and_then(toml::Value::as_bool)
        == Some(true)
}

/// Dependencies that do not come from `[workspace.dependencies]`.
fn own_versions(manifest: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else {
            continue;
        };
        if key.ends_with("dependencies") {
            let own = |entry: &(&String, &toml::Value)| !inherits(Some(entry.1));
            names.extend(table.iter().filter(own).map(|(name, _)| name.clone()));
        } else if key == "target" {
            for platform in table.values().filter_map(toml::Value::as_table) {
                names.extend(own_versions(platform));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::own_versions;

    #[test]
    fn a_version_outside_the_workspace_table_is_found_in_every_table() {
        let manifest = "[dependencies]\na.workspace = true\nb = \"1\"\nc = { path = \"c\" }\n\
                        [dev-dependencies]\nd = { workspace = true, features = [\"x\"] }\n\
                        [target.'cfg(unix)'.build-dependencies]\ne = \"1\"\n[features]\nf = []\n";
        let manifest = toml::from_str(manifest).unwrap();
        assert_eq!(own_versions(&manifest), ["b", "c", "e"]);
    }
}
