//! How the DeepSeek Harness image is made: the native program, the search tool beside it, and its Landlock launcher.

use astrabox_engine::{ImageRecipe, NpmPackage, PythonPackages, RecipeCheck, RecipeCopy};

/// The version of the program that this adapter is written for, as it tells it itself; the wheel's is 0.2.1rc2.
pub(crate) const VERSION: &str = "0.2.1-rc.2";

/// The program, below the image's root.
pub(crate) const PROGRAM: &str = "bin/dsh";

/// The launcher that confines a command by Landlock, below the image's root.
pub(crate) const LANDLOCK: &str = "bin/landlock-run";

/// The recipe of the DeepSeek Harness image.
///
/// The wheel `deepseek-harness-runtime-bin` holds one native program with node and every package in it, linked against
/// glibc; it looks for ripgrep under its own name with `-rg` behind. Of the packages in it the one for Landlock lacks its
/// launcher, so that comes from the registry where the program's builders publish it.
pub(crate) fn recipe() -> ImageRecipe {
    ImageRecipe {
        version: VERSION,
        architectures: &["x86_64", "aarch64"],
        commands: &["npm"],
        npm: Some(NpmPackage {
            manifest: include_str!("recipe/package.json"),
            lock: include_str!("recipe/package-lock.json"),
        }),
        python: Some(PythonPackages {
            requirements: include_str!("recipe/requirements.lock"),
            runs_in_box: false,
        }),
        copies: COPIES,
        check: RecipeCheck {
            program: PROGRAM,
            arguments: &["--version"],
            expect: VERSION,
        },
        licence: "MIT; the Landlock launcher BSD-3-Clause",
    }
}

#[cfg(not(target_arch = "aarch64"))]
const COPIES: &[RecipeCopy] = &[
    RecipeCopy {
        from: "python/deepseek_harness_runtime/runtime/deepseek-harness-sdk-runtime-linux-x64",
        to: PROGRAM,
    },
    RecipeCopy {
        from: "python/deepseek_harness_runtime/runtime/deepseek-harness-sdk-runtime-linux-x64-rg",
        to: "bin/dsh-rg",
    },
    RecipeCopy {
        from: "node_modules/@deepseek-ai/node-addon-system-linux-x64/bin/landlock-run",
        to: LANDLOCK,
    },
];
#[cfg(target_arch = "aarch64")]
const COPIES: &[RecipeCopy] = &[
    RecipeCopy {
        from: "python/deepseek_harness_runtime/runtime/deepseek-harness-sdk-runtime-linux-arm64",
        to: PROGRAM,
    },
    RecipeCopy {
        from: "python/deepseek_harness_runtime/runtime/deepseek-harness-sdk-runtime-linux-arm64-rg",
        to: "bin/dsh-rg",
    },
    RecipeCopy {
        from: "node_modules/@deepseek-ai/node-addon-system-linux-arm64/bin/landlock-run",
        to: LANDLOCK,
    },
];

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{COPIES, LANDLOCK, PROGRAM, VERSION, recipe};

    #[test]
    fn every_locked_package_has_a_hash_and_no_host() {
        let npm = recipe().npm.expect("the launcher comes from npm");
        let lock: Value = serde_json::from_str(npm.lock).expect("the lock file is JSON");
        let packages = lock["packages"].as_object().expect("has packages");
        let mut counted = 0;
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            let integrity = package["integrity"].as_str().unwrap_or_default();
            assert!(integrity.starts_with("sha512-"), "{name}");
            assert!(package.get("resolved").is_none(), "{name}");
            counted += 1;
        }
        assert!(counted >= 3, "the package and one a platform: {counted}");
        let python = recipe().python.expect("the program comes from pip");
        assert_eq!(python.requirements.matches("--hash=sha256:").count(), 2);
        let wheel = VERSION.replace("-rc.", "rc");
        assert!(python.requirements.contains(&format!("=={wheel} ")));
    }

    #[test]
    fn the_image_has_the_program_and_what_stands_beside_it() {
        for needed in [PROGRAM, "bin/dsh-rg", LANDLOCK] {
            assert!(COPIES.iter().any(|copy| copy.to == needed), "{needed}");
        }
        assert_eq!(COPIES.len(), 3);
        assert_eq!(recipe().check.program, PROGRAM);
    }
}
