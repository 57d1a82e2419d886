//! What can be known of a recipe before anything runs.

use std::env::consts::ARCH;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use astrabox_engine::ImageRecipe;

use crate::name::{is_engine_kind, is_tag};
use crate::{Error, Result};

/// Refuses a recipe whose paths or names could reach outside the image.
pub(crate) fn validate(engine: &str, recipe: &ImageRecipe) -> Result<()> {
    let refuse = |what: String| {
        Err(Error::Recipe {
            engine: engine.chars().take(100).collect(),
            what,
        })
    };
    if !is_engine_kind(engine) {
        return refuse("the engine's kind is not lowercase letters, digits and `_`".to_owned());
    }
    if !is_tag(recipe.version) {
        return refuse(format!("`{}` is not a version", recipe.version));
    }
    if recipe.npm.is_none() && recipe.python.is_none() {
        return refuse("it installs nothing".to_owned());
    }
    if recipe.copies.is_empty() {
        return refuse("it copies nothing".to_owned());
    }
    let paths = recipe
        .copies
        .iter()
        .flat_map(|copy| [copy.from, copy.to])
        .chain([recipe.check.program]);
    for path in paths {
        if !is_inside(path) {
            return refuse(format!("`{path}` is not a path below a folder"));
        }
    }
    Ok(())
}

/// Refuses a recipe for other architectures.
pub(crate) fn check_architecture(image: &str, recipe: &ImageRecipe) -> Result<()> {
    if recipe.architectures.contains(&ARCH) {
        return Ok(());
    }
    Err(Error::Architecture {
        image: image.to_owned(),
        supported: recipe.architectures.join(" or "),
        host: ARCH,
    })
}

/// Refuses a recipe whose commands are not on this search path.
pub(crate) fn check_commands(recipe: &ImageRecipe, search_path: &OsStr) -> Result<()> {
    for command in recipe.commands {
        find_command(command, search_path)?;
    }
    Ok(())
}

/// Where a command is on this search path.
pub(crate) fn find_command(command: &str, search_path: &OsStr) -> Result<PathBuf> {
    std::env::split_paths(search_path)
        // A relative folder would mean another program in each working directory.
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(command))
        .find(|path| is_program(path))
        .ok_or_else(|| Error::CommandMissing {
            command: command.to_owned(),
            package: package_of(command).to_owned(),
        })
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path)
            .components()
            .all(|component| matches!(component, Component::Normal(_)))
}

/// The package of Debian, Ubuntu, Fedora and Alpine where it is called otherwise than the command.
fn package_of(command: &str) -> &str {
    match command {
        "node" => "nodejs",
        "pip" | "pip3" => "python3-pip",
        "python" => "python3",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::is_inside;

    #[test]
    fn only_plain_relative_paths_are_inside() {
        for good in ["a", "bin/codex", "node_modules/@x/y/..z"] {
            assert!(is_inside(good), "{good}");
        }
        for bad in ["", "/a", "../a", "a/../b", ".", "./a"] {
            assert!(!is_inside(bad), "{bad}");
        }
    }
}
