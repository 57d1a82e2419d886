//! EN2: the image recipe is pinned, to versions and to hashes.

use std::collections::BTreeMap;

use astrabox_engine::{ImageRecipe, NpmPackage};
use astrabox_sandbox::BoxPath;
use serde_json::Value;

use super::EngineBench;
use crate::case::{check, check_eq};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<EngineBench>> {
    cases![
        the_recipe_has_one_pinned_version[EN2],
        the_recipe_puts_something_where_it_belongs[EN2],
        every_package_of_the_recipe_has_its_version_and_hash[EN2],
    ]
}

/// Whether a text is one version and not a range, a tag or a place.
fn is_exact(version: &str) -> bool {
    let mut parts = version.splitn(3, '.');
    let number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let rest = |part: Option<&str>| {
        part.is_some_and(|part| {
            part.starts_with(|c: char| c.is_ascii_digit())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+'))
        })
    };
    number(parts.next()) && number(parts.next()) && rest(parts.next())
}

async fn the_recipe_has_one_pinned_version(bench: &EngineBench) -> Checked {
    let recipe = bench.adapter().image_recipe();
    let declared = bench.adapter().capabilities();
    check!(
        is_exact(recipe.version),
        "{:?} is not one version",
        recipe.version
    );
    check_eq!(
        declared.program_version,
        recipe.version,
        "the declared version"
    );
    // Where the environment names the program, the image's check is of what runs it.
    check!(
        declared.names_program || recipe.check.expect.contains(recipe.version),
        "the check of the image expects {:?}, which does not tell the version {}",
        recipe.check.expect,
        recipe.version
    );
    check!(
        !recipe.licence.trim().is_empty(),
        "the licence is not named"
    );
    Ok(())
}

fn relative(path: &str, what: &str) -> Checked {
    BoxPath::new(format!("/{path}")).doing(format!("{what} {path:?}"))?;
    Ok(())
}

async fn the_recipe_puts_something_where_it_belongs(bench: &EngineBench) -> Checked {
    let recipe = bench.adapter().image_recipe();
    check!(!recipe.architectures.is_empty(), "it runs on no machine");
    for name in recipe.architectures {
        check!(
            ["x86_64", "aarch64"].contains(name),
            "{name:?} is not a machine's name"
        );
    }
    for command in recipe.commands {
        check!(
            !command.is_empty() && !command.contains(['/', ' ']),
            "{command:?} is not the name of a command"
        );
    }
    check!(
        recipe.npm.is_none() || recipe.commands.contains(&"npm"),
        "npm is used and not named among the commands"
    );
    check!(
        recipe.npm.is_none() || !recipe.copies.is_empty(),
        "nothing of what is installed goes into the image"
    );
    for copy in recipe.copies {
        relative(copy.from, "the place of a copy")?;
        relative(copy.to, "the target of a copy")?;
    }
    relative(recipe.check.program, "the checked program")?;
    let covered = |program: &str| {
        recipe.copies.iter().any(|copy| {
            program
                .strip_prefix(copy.to)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    // The sandbox's own Python runs modules that are in the image.
    let by_python =
        recipe.python.is_some_and(|python| python.runs_in_box) && recipe.check.program == "python3";
    check!(
        recipe.copies.is_empty() || by_python || covered(recipe.check.program),
        "the checked program {:?} is not among what goes into the image",
        recipe.check.program
    );
    Ok(())
}

async fn every_package_of_the_recipe_has_its_version_and_hash(bench: &EngineBench) -> Checked {
    let recipe: ImageRecipe = bench.adapter().image_recipe();
    match &recipe.npm {
        Some(npm) => check_npm(npm),
        None => Ok(()),
    }
}

fn check_npm(npm: &NpmPackage) -> Checked {
    let manifest: Value = serde_json::from_str(npm.manifest).doing("read the manifest")?;
    let wanted = versions(&manifest["dependencies"]);
    check!(!wanted.is_empty(), "the manifest wants no package");
    // Those of which each platform has its own, and npm takes the one that fits.
    let optional = versions(&manifest["optionalDependencies"]);
    for (name, version) in wanted.iter().chain(&optional) {
        check!(
            is_exact(version),
            "{name} is wanted as {version:?}, not as one version"
        );
    }
    for key in ["devDependencies", "peerDependencies", "scripts"] {
        check!(manifest.get(key).is_none(), "the manifest has {key}");
    }
    let lock: Value = serde_json::from_str(npm.lock).doing("read the lock")?;
    check!(
        matches!(lock["lockfileVersion"].as_u64(), Some(2 | 3)),
        "the lock is not of version 2 or 3"
    );
    let packages = lock["packages"]
        .as_object()
        .ok_or_else(|| Stop::failed("the lock has no packages"))?;
    let root = packages.get("").unwrap_or(&Value::Null);
    check_eq!(
        versions(&root["dependencies"]),
        wanted,
        "what the lock was made for"
    );
    check_eq!(
        versions(&root["optionalDependencies"]),
        optional,
        "what the lock was made for"
    );
    for (place, package) in packages.iter().filter(|(place, _)| !place.is_empty()) {
        check_package(place, package)?;
    }
    for (name, version) in wanted.into_iter().chain(optional) {
        let locked = packages.get(&format!("node_modules/{name}"));
        let locked = locked.and_then(|package| package["version"].as_str());
        check_eq!(
            locked,
            Some(version.as_str()),
            "the locked version of {name}"
        );
    }
    Ok(())
}

fn versions(dependencies: &Value) -> BTreeMap<String, String> {
    let entries = dependencies.as_object().into_iter().flatten();
    entries
        .map(|(name, version)| {
            let version = version.as_str().unwrap_or_default();
            (name.clone(), version.to_owned())
        })
        .collect()
}

fn check_package(place: &str, package: &Value) -> Checked {
    let version = package["version"].as_str().unwrap_or_default();
    check!(is_exact(version), "{place} is locked at {version:?}");
    let integrity = package["integrity"].as_str().unwrap_or_default();
    let digest = integrity.strip_prefix("sha512-").unwrap_or_default();
    // 64 bytes as base64.
    check!(
        digest.len() == 88 && digest.ends_with("=="),
        "{place} has no sha512 hash"
    );
    check!(
        package.get("resolved").is_none(),
        "{place} names the host that it comes from; that is for the package client to know"
    );
    check!(package.get("link").is_none(), "{place} is a link");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_exact;

    #[test]
    fn a_range_or_a_tag_is_not_a_version() {
        for good in [
            "0.169.0",
            "2.1.328",
            "1.0.0-rc.1+5",
            "0.169.0-linux-x64",
            "0.2.1rc2",
        ] {
            assert!(is_exact(good), "{good}");
        }
        for bad in [
            "latest",
            "^1.0.0",
            "~1.0.0",
            "1.x.0",
            "1.0",
            "*",
            "",
            ">=1.0.0",
            "1.0.0 || 2.0.0",
            "npm:x@1.0.0",
        ] {
            assert!(!is_exact(bad), "{bad}");
        }
    }
}
