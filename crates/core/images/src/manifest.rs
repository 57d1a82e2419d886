//! The manifest beside an image's tree.

use std::path::Path;
use std::{fs, io};

use astrabox_types::Timestamp;
use serde::{Deserialize, Serialize};

/// The manifest's file name, and the largest size that is read, bytes.
pub(crate) const FILE: &str = "manifest.json";
const MAX_BYTES: u64 = 64 << 20;

/// What an image is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The image's name.
    pub(crate) name: String,
    /// The engine's kind.
    pub(crate) engine: String,
    /// The program's version.
    pub(crate) version: String,
    /// The digest of the whole recipe, hex.
    pub(crate) recipe_digest: String,
    /// The architecture that it was built on.
    pub(crate) architecture: String,
    /// The program's licence.
    pub(crate) licence: String,
    /// When it was built.
    pub(crate) built_at: Timestamp,
    /// Its files, in path order.
    pub(crate) files: Vec<FileEntry>,
}

/// One file of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileEntry {
    /// Below the image's root.
    pub(crate) path: String,
    /// Its size.
    pub(crate) bytes: u64,
    /// Whether it can be executed.
    pub(crate) executable: bool,
    /// Its hash, hex.
    pub(crate) sha256: String,
}

impl FileEntry {
    /// The permissions that it has in an image: nobody writes, everybody reads.
    pub(crate) fn mode(&self) -> u32 {
        if self.executable { 0o555 } else { 0o444 }
    }
}

impl Manifest {
    /// The size of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Reads the manifest of an image's folder; `None` when there is no such folder.
    ///
    /// # Errors
    /// What is wrong with it, in words without a host path.
    pub(crate) fn read(image: &Path) -> Result<Option<Self>, String> {
        let path = image.join(FILE);
        let size = match fs::metadata(&path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match image.try_exists() {
                    Ok(false) => Ok(None),
                    _ => Err(format!("{FILE}: missing")),
                };
            }
            Err(error) => return Err(format!("{FILE}: {error}")),
        };
        if size > MAX_BYTES {
            return Err(format!("{FILE}: larger than any that a build writes"));
        }
        let text = fs::read(&path).map_err(|error| format!("{FILE}: {error}"))?;
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| format!("{FILE}: {error}"))
    }
}
