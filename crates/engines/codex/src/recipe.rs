//! How the Codex image is made: the native program and the files that it wants beside it.

use astrabox_engine::{ImageRecipe, NpmPackage, RecipeCheck, RecipeCopy};

/// The version of the program that this adapter is written for.
pub(crate) const VERSION: &str = "0.169.0";

/// The program, below the image's root.
pub(crate) const PROGRAM: &str = "bin/codex";

/// The recipe of the Codex image.
///
/// `@openai/codex` 0.169.0 is a launcher for node and, per platform, a package that holds the native
/// program, linked statically. Only the native program is taken, so the image needs no node.
pub(crate) fn recipe() -> ImageRecipe {
    ImageRecipe {
        version: VERSION,
        architectures: &["x86_64", "aarch64"],
        commands: &["npm"],
        npm: Some(NpmPackage {
            manifest: include_str!("recipe/package.json"),
            lock: include_str!("recipe/package-lock.json"),
        }),
        python: None,
        copies: COPIES,
        check: RecipeCheck {
            program: PROGRAM,
            arguments: &["--version"],
            expect: "codex-cli 0.169.0",
        },
        licence: "Apache-2.0; with ripgrep (MIT OR Unlicense) and bubblewrap (LGPL-2.0-or-later)",
    }
}

#[cfg(not(target_arch = "aarch64"))]
macro_rules! vendor {
    ($path:literal) => {
        concat!(
            "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/",
            $path
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! vendor {
    ($path:literal) => {
        concat!(
            "node_modules/@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/",
            $path
        )
    };
}

const fn copy(from: &'static str, to: &'static str) -> RecipeCopy {
    RecipeCopy { from, to }
}

// codex 0.169.0 finds the folder above `bin` by its codex-package.json and counts it as complete with
// these siblings. The voice helper, which needs glibc and a sound device, is left out.
const COPIES: &[RecipeCopy] = &[
    copy(vendor!("codex-package.json"), "codex-package.json"),
    copy(vendor!("bin/codex"), PROGRAM),
    // Runs JavaScript when an agent turns `features.code_mode_host` on.
    copy(
        vendor!("bin/codex-code-mode-host"),
        "bin/codex-code-mode-host",
    ),
    // The program puts this file's folder on the PATH of its commands.
    copy(vendor!("codex-path/rg"), "codex-path/rg"),
    // The inner sandbox, for agents that are allowed one.
    copy(vendor!("codex-resources/bwrap"), "codex-resources/bwrap"),
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{COPIES, PROGRAM, VERSION, recipe};

    fn lock() -> Value {
        let npm = recipe().npm.expect("comes from npm");
        serde_json::from_str(npm.lock).expect("the lock file is JSON")
    }

    #[test]
    fn every_locked_package_has_a_hash_and_no_host() {
        let lock = lock();
        let packages = lock["packages"].as_object().expect("has packages");
        let mut counted = 0;
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            let integrity = package["integrity"].as_str().unwrap_or_default();
            assert!(integrity.starts_with("sha512-"), "{name}");
            assert!(package.get("resolved").is_none(), "{name}");
            counted += 1;
        }
        assert_eq!(counted, 7, "the launcher and six platforms");
    }

    #[test]
    fn every_copy_comes_from_a_locked_package_of_the_pinned_version() {
        let lock = lock();
        for copy in COPIES {
            let (package, _) = copy.from.split_once("/vendor/").expect("a vendored file");
            let version = lock["packages"][package]["version"].as_str();
            let version = version.unwrap_or_else(|| panic!("{package} is not locked"));
            assert!(
                version.starts_with(&format!("{VERSION}-linux-")),
                "{version}"
            );
        }
        assert!(COPIES.iter().any(|copy| copy.to == PROGRAM));
    }

    #[test]
    fn the_manifest_the_check_and_the_version_agree() {
        let recipe = recipe();
        let npm = recipe.npm.expect("comes from npm");
        let manifest: Value = serde_json::from_str(npm.manifest).expect("the manifest is JSON");
        assert_eq!(manifest["dependencies"]["@openai/codex"], VERSION);
        assert_eq!(recipe.check.program, PROGRAM);
        assert!(recipe.check.expect.ends_with(VERSION));
    }
}
