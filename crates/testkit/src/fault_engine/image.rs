//! Images whose program is the fault engine, in an image cache of a test's own.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use astrabox_engine::sandbox::IMAGE_ROOT;
use serde_json::json;

use super::native::{Protocol, Quirk};

/// Which image.
#[derive(Debug, Clone, Copy)]
pub struct FaultImage {
    /// The program that it stands in for.
    pub protocol: Protocol,
    /// How it is odd.
    pub quirk: Quirk,
    /// Whether the program and what it starts ignore SIGTERM.
    pub ignores_sigterm: bool,
}

impl FaultImage {
    /// The image of a program that does what it is told.
    #[must_use]
    pub fn of(protocol: Protocol) -> Self {
        Self {
            protocol,
            quirk: Quirk::Faithful,
            ignores_sigterm: false,
        }
    }

    fn tag(self) -> String {
        let signal = if self.ignores_sigterm {
            "-ignores-sigterm"
        } else {
            ""
        };
        format!("0.0.0-{}{signal}", self.quirk.name())
    }

    /// Its name, as an environment gives it.
    #[must_use]
    pub fn name(self) -> String {
        format!("{}:{}", self.protocol.kind(), self.tag())
    }

    /// The launcher: a shell that hands its disposition of signals to the program.
    fn launcher(self) -> String {
        let trap = if self.ignores_sigterm {
            "trap '' TERM\n"
        } else {
            ""
        };
        let (program, quirk) = (self.protocol.program(), self.quirk.name());
        if self.protocol == Protocol::Hermes {
            let ignore = if self.ignores_sigterm {
                "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            } else {
                ""
            };
            return format!(
                "import os, signal\n{ignore}\
                 os.execv(\"{IMAGE_ROOT}/bin/fault-engine\", [\"fault-engine\", \"{program}\", \"{quirk}\"])\n"
            );
        }
        format!("#!/bin/sh\n{trap}exec {IMAGE_ROOT}/bin/fault-engine {program} {quirk} \"$@\"\n")
    }
}

/// An image cache that holds fault engines only, to be a server's `images.cache_dir`.
#[derive(Debug)]
pub struct ImageCache {
    folder: PathBuf,
}

impl ImageCache {
    /// Makes a cache in this folder, with the binary `program` in each image.
    ///
    /// # Errors
    /// When the binary cannot be read or the folder cannot be written.
    pub fn create(folder: &Path, program: &Path, images: &[FaultImage]) -> io::Result<Self> {
        let shared = folder.join("fault-engine");
        fs::create_dir_all(folder)?;
        fs::copy(program, &shared)?;
        for image in images {
            let place = folder.join(image.protocol.kind()).join(image.tag());
            let root = place.join("root");
            fs::create_dir_all(root.join("bin"))?;
            fs::hard_link(&shared, root.join("bin/fault-engine"))?;
            launch(&root, *image)?;
            // Nobody verifies a double against its recipe, so no file is listed.
            let manifest = json!({
                "name": image.name(), "engine": image.protocol.kind(), "version": "0.0.0",
                "recipe_digest": "", "architecture": std::env::consts::ARCH,
                "licence": "Apache-2.0", "built_at": "2026-01-01T00:00:00Z", "files": [],
            });
            fs::write(place.join("manifest.json"), manifest.to_string())?;
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Makes the program of `image` be `other`'s from its next start on.
    ///
    /// # Errors
    /// When the image is not there or cannot be written.
    pub fn change(&self, image: FaultImage, other: FaultImage) -> io::Result<()> {
        let place = self.folder.join(image.protocol.kind()).join(image.tag());
        launch(&place.join("root"), other)
    }

    /// The setting that makes a server use it.
    #[must_use]
    pub fn setting(&self) -> String {
        format!("images.cache_dir = {:?}", self.folder.display().to_string())
    }
}

/// Writes the program that an engine starts; whoever runs the one before keeps that.
fn launch(root: &Path, image: FaultImage) -> io::Result<()> {
    let new = root.join("bin/.launcher");
    fs::write(&new, image.launcher())?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o555))?;
    let place = root.join(image.protocol.launcher());
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::rename(new, place)
}
