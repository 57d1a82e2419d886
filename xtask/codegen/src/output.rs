//! The generated folder on disk: written as a whole, compared as a whole.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::generate::Files;

/// Makes `dir` hold exactly `files`; returns how many files were written or removed.
pub(crate) fn write(dir: &Path, files: &Files) -> Result<usize> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut changed = 0;
    for (name, content) in files {
        let path = dir.join(name);
        // An unchanged file keeps its time stamp, so nothing is rebuilt for it.
        if fs::read(&path).ok().as_ref() != Some(content) {
            fs::write(&path, content)?;
            changed += 1;
        }
    }
    for stale in names(dir)?.iter().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(dir.join(stale))?;
        changed += 1;
    }
    Ok(changed)
}

/// Says in what `dir` differs from `files`: one phrase for each file that does.
pub(crate) fn differences(dir: &Path, files: &Files) -> Result<Vec<String>> {
    let present = if dir.is_dir() {
        names(dir)?
    } else {
        BTreeSet::new()
    };
    let mut differences = Vec::new();
    for (name, content) in files {
        if !present.contains(name) {
            differences.push(format!("{name} is missing"));
        } else if &fs::read(dir.join(name))? != content {
            differences.push(format!("{name} differs from what is generated"));
        }
    }
    for name in present.iter().filter(|name| !files.contains_key(*name)) {
        differences.push(format!("{name} is not generated"));
    }
    Ok(differences)
}

fn names(dir: &Path) -> Result<BTreeSet<String>> {
    fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}
