//! How the Claude Code image is made: the native program alone.

use astrabox_engine::{ImageRecipe, NpmPackage, RecipeCheck, RecipeCopy};

/// The version of the program that this adapter is written for.
pub(crate) const VERSION: &str = "2.1.328";

/// The program, below the image's root.
pub(crate) const PROGRAM: &str = "bin/claude";

/// The recipe of the Claude Code image.
///
/// `@anthropic-ai/claude-code` 2.1.328 is a launcher and, per platform, a package that holds one native program
/// with everything in it, linked against glibc. Only that program is taken, so the image needs no node.
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
            expect: "2.1.328 (Claude Code)",
        },
        licence: "proprietary; Anthropic's Commercial Terms of Service (LICENSE.md of the package)",
    }
}

#[cfg(not(target_arch = "aarch64"))]
const NATIVE: &str = "node_modules/@anthropic-ai/claude-code-linux-x64/claude";
#[cfg(target_arch = "aarch64")]
const NATIVE: &str = "node_modules/@anthropic-ai/claude-code-linux-arm64/claude";

const COPIES: &[RecipeCopy] = &[RecipeCopy {
    from: NATIVE,
    to: PROGRAM,
}];

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
        assert_eq!(counted, 9, "the launcher and eight platforms");
    }

    #[test]
    fn every_copy_comes_from_a_locked_package_of_the_pinned_version() {
        let lock = lock();
        for copy in COPIES {
            let (package, _) = copy.from.rsplit_once('/').expect("a file of a package");
            let version = lock["packages"][package]["version"].as_str();
            assert_eq!(version, Some(VERSION), "{package}");
        }
        assert!(COPIES.iter().any(|copy| copy.to == PROGRAM));
    }

    #[test]
    fn the_manifest_the_check_and_the_version_agree() {
        let recipe = recipe();
        let npm = recipe.npm.expect("comes from npm");
        let manifest: Value = serde_json::from_str(npm.manifest).expect("the manifest is JSON");
        assert_eq!(
            manifest["dependencies"]["@anthropic-ai/claude-code"],
            VERSION
        );
        assert_eq!(recipe.check.program, PROGRAM);
        assert!(recipe.check.expect.starts_with(VERSION));
    }
}
