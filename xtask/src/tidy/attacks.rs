//! The page about attacks names tests, and every one of them is there.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::tree::Package;

/// The page, relative to the root.
pub(super) const PAGE: &str = "docs/egress-attacks.md";

/// Prefix of the names of our packages, which the page leaves out.
const PREFIX: &str = "astrabox-";

/// Names each row without a test, and each test that no source file has. A test is `crate::module::function`, each in
/// backticks; `sources` are the Rust files by path.
pub(super) fn check(
    page: &str,
    packages: &[Package],
    sources: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let Some(cells) = row(line) else { continue };
        let tests: Vec<&str> = cells[3]
            .split('`')
            .filter(|word| word.contains("::"))
            .collect();
        if tests.is_empty() {
            let message = format!("{} has no test that proves it", cells[0]);
            findings.push(Finding::at(PAGE, number, message));
        }
        for test in tests {
            if !exists(test, packages, sources) {
                let message =
                    format!("there is no test {test}: name one as crate::module::function");
                findings.push(Finding::at(PAGE, number, message));
            }
        }
    }
    findings
}

/// The cells of a row with content.
fn row(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let content = cells.len() >= 4 && !cells[0].starts_with('-');
    let heading = matches!(cells[0], "line" | "case");
    (content && !heading).then_some(cells)
}

fn exists(test: &str, packages: &[Package], sources: &BTreeMap<String, String>) -> bool {
    let parts: Vec<&str> = test.split("::").collect();
    let [package, module, function] = parts[..] else {
        return false;
    };
    let name = format!("{PREFIX}{}", package.replace('_', "-"));
    let Some(package) = packages.iter().find(|package| package.name == name) else {
        return false;
    };
    let folder = format!("{}/", package.dir);
    let files = [format!("/{module}.rs"), format!("/{module}/mod.rs")];
    // A test is a function, or a name in a table of them.
    let forms = [format!("fn {function}("), format!("\"{function}\"")];
    sources.iter().any(|(path, text)| {
        path.starts_with(&folder)
            && files.iter().any(|file| path.ends_with(file))
            && forms.iter().any(|form| text.contains(form))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(page: &str) -> Vec<String> {
        let package = Package {
            name: "astrabox-egress-proxy".to_owned(),
            dir: "crates/core/egress-proxy".to_owned(),
            crate_root: None,
            has_build_script: false,
            fixture: false,
            dependencies: Vec::new(),
        };
        let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let sources = BTreeMap::from([
            source(
                "crates/core/egress-proxy/tests/egress/identity.rs",
                "async fn a1_is_refused() {}",
            ),
            source(
                "crates/core/egress-proxy/tests/process/role.rs",
                "(\"a_role_ends\", f)",
            ),
            source("crates/other/src/identity.rs", "fn a2_is_elsewhere() {}"),
        ]);
        check(page, &[package], &sources)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_row_names_tests_that_are_there() {
        let head = "| line | attack | verdict | tests |\n|---|---|---|---|\n";
        for (row, wanted) in [
            (
                "| A1 | x | refused | `egress_proxy::identity::a1_is_refused` |",
                None,
            ),
            ("| A1 | x | `y` | `egress_proxy::role::a_role_ends` |", None),
            ("| A1 | x | refused | |", Some("A1 has no test")),
            (
                "| A1 | x | refused | `egress_proxy::identity::a1` |",
                Some("there is no test"),
            ),
            (
                "| A1 | x | refused | `egress_proxy::identity::a2_is_elsewhere` |",
                Some("there is no test"),
            ),
            (
                "| A1 | x | refused | `egress_proxy::role::a1_is_refused` |",
                Some("there is no test"),
            ),
            (
                "| A1 | x | refused | `nobody::identity::a1_is_refused` |",
                Some("there is no test"),
            ),
        ] {
            let got = findings(&format!("{head}{row}\n"));
            match wanted {
                None => assert!(got.is_empty(), "{row}: {got:?}"),
                Some(part) => assert!(got.len() == 1 && got[0].contains(part), "{row}: {got:?}"),
            }
        }
    }
}
