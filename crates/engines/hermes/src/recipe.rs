//! How the Hermes image is made: its packages, run by the sandbox's own Python.

use astrabox_engine::{ImageRecipe, PythonPackages, RecipeCheck, RecipeCopy};

/// The version of the program that this adapter is written for.
pub(crate) const VERSION: &str = "0.19.0";

/// The packages, below the image's root.
pub(crate) const PACKAGES: &str = "python";

/// Loads the server, and with it what it cannot do without.
const TRIED: &str = "import sys; sys.path.insert(1, sys.argv[1]); \
    import acp_adapter.server, hermes_cli, mcp, run_agent; print(hermes_cli.__version__)";

/// The recipe of the Hermes image.
///
/// `hermes-agent` 0.19.0 runs with Python 3.11 to 3.13. Its extras `acp` and `mcp` are what its server and its MCP
/// servers need; all else that it would install by itself while it works stays out.
pub(crate) fn recipe() -> ImageRecipe {
    ImageRecipe {
        version: VERSION,
        architectures: &["x86_64", "aarch64"],
        commands: &[],
        npm: None,
        python: Some(PythonPackages {
            requirements: include_str!("recipe/requirements.lock"),
            runs_in_box: true,
        }),
        copies: &[RecipeCopy {
            from: "python",
            to: PACKAGES,
        }],
        check: RecipeCheck {
            program: "python3",
            arguments: &["-P", "-s", "-B", "-c", TRIED],
            expect: VERSION,
        },
        licence: "MIT; its packages are MIT, BSD, Apache-2.0, MPL-2.0 (certifi, tqdm), PSF-2.0 and HPND (Pillow)",
    }
}

#[cfg(test)]
mod tests {
    use super::{VERSION, recipe};

    fn requirements() -> Vec<(String, usize)> {
        let lock = recipe().python.expect("comes from pip").requirements;
        let text = lock.replace("\\\n", " ");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let pin = line.split_whitespace().next().unwrap_or_default();
                (pin.to_owned(), line.matches("--hash=sha256:").count())
            })
            .collect()
    }

    #[test]
    fn every_locked_package_has_a_version_and_a_hash_and_no_host() {
        let all = requirements();
        assert_eq!(all.len(), 71);
        for (pin, hashes) in &all {
            let (name, version) = pin.split_once("==").unwrap_or_else(|| panic!("{pin}"));
            assert!(!name.is_empty() && !version.is_empty(), "{pin}");
            assert!((1..=6).contains(hashes), "{pin}: {hashes} hashes");
        }
        let lock = recipe().python.expect("comes from pip").requirements;
        assert!(!lock.contains("://"), "no host is named");
    }

    #[test]
    fn what_only_one_version_of_python_loads_is_locked_for_each() {
        let all = requirements();
        for name in [
            "pydantic-core",
            "cffi",
            "uvloop",
            "pyyaml",
            "pillow",
            "rpds-py",
        ] {
            let found = all
                .iter()
                .find(|(pin, _)| pin.starts_with(&format!("{name}==")));
            let (pin, hashes) = found.unwrap_or_else(|| panic!("{name} is locked"));
            assert_eq!(*hashes, 6, "{pin}: three Pythons, two architectures");
        }
    }

    #[test]
    fn the_lock_the_check_and_the_version_agree() {
        let pin = format!("hermes-agent=={VERSION}");
        assert!(requirements().iter().any(|(found, _)| *found == pin));
        assert_eq!(recipe().check.expect, VERSION);
    }
}
