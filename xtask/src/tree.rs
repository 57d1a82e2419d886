//! The workspace as the checks see it: packages, their dependencies and their files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, TargetKind};
use serde::Deserialize;

/// The folder of the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    // xtask lies right below the root.
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// All packages of the workspace and of the fixtures that its manifest excludes.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) packages: Vec<Package>,
    /// Names in `[workspace.dependencies]`.
    pub(crate) shared_dependencies: BTreeSet<String>,
    /// Folders in `workspace.exclude` that hold no package.
    pub(crate) missing_fixtures: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Folder relative to the root, `/` between segments.
    pub(crate) dir: String,
    /// `src/lib.rs` or, in a package without a library, its first binary; relative to the root.
    pub(crate) crate_root: Option<String>,
    pub(crate) has_build_script: bool,
    /// Whether it lies outside the workspace.
    pub(crate) fixture: bool,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// The name that source code uses.
    pub(crate) ident: String,
    pub(crate) kind: Kind,
    /// Folder relative to the root when it is a path dependency.
    pub(crate) ours: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Dev,
    Build,
}

impl Kind {
    pub(crate) fn section(self) -> &'static str {
        match self {
            Kind::Normal => "dependencies",
            Kind::Dev => "dev-dependencies",
            Kind::Build => "build-dependencies",
        }
    }
}

#[derive(Deserialize)]
struct RootManifest {
    workspace: WorkspaceSection,
}

#[derive(Deserialize)]
struct WorkspaceSection {
    #[serde(default)]
    exclude: Vec<String>,
    #[serde(default)]
    dependencies: toml::Table,
}

impl Tree {
    /// Reads the workspace at `root` with `cargo metadata --no-deps`, which needs no network.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let manifest = fs::read_to_string(root.join("Cargo.toml"))
            .with_context(|| format!("cannot read {}", root.join("Cargo.toml").display()))?;
        let manifest: RootManifest = toml::from_str(&manifest)?;
        let mut packages = packages(root, root, false)?;
        let mut missing_fixtures = Vec::new();
        for fixture in manifest.workspace.exclude {
            if root.join(&fixture).join("Cargo.toml").is_file() {
                packages.extend(self::packages(root, &root.join(&fixture), true)?);
            } else {
                missing_fixtures.push(fixture);
            }
        }
        packages.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(Self {
            root: root.to_path_buf(),
            packages,
            shared_dependencies: manifest.workspace.dependencies.keys().cloned().collect(),
            missing_fixtures,
        })
    }

    pub(crate) fn package(&self, dir: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.dir == dir)
    }

    /// The text of a file given relative to the root.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("cannot read {path}"))
    }

    /// The Rust files of one package, relative to the root, without those of a package inside it.
    pub(crate) fn rust_files(&self, package: &Package) -> Result<Vec<String>> {
        let mut files = Vec::new();
        let mut folders = vec![package.dir.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.root.join(&folder))? {
                let entry = entry?;
                let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
                if entry.file_type()?.is_dir() {
                    let other = entry.path().join("Cargo.toml").is_file();
                    if !other && entry.file_name() != "target" {
                        folders.push(path);
                    }
                } else if path.ends_with(".rs") {
                    files.push(path);
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

fn packages(root: &Path, dir: &Path, fixture: bool) -> Result<Vec<Package>> {
    let metadata = MetadataCommand::new()
        .current_dir(dir)
        .no_deps()
        .exec()
        .with_context(|| format!("cargo metadata fails in {}", dir.display()))?;
    convert(root, &metadata, fixture)
}

fn convert(root: &Path, metadata: &Metadata, fixture: bool) -> Result<Vec<Package>> {
    // Cargo gives canonical paths.
    let root = root.canonicalize()?;
    let relative = |path: &Path| -> String {
        path.strip_prefix(&root).map_or_else(
            |_| path.to_string_lossy().into_owned(),
            |path| path.to_string_lossy().into_owned(),
        )
    };
    let mut packages = Vec::new();
    for package in &metadata.packages {
        let dir = package
            .manifest_path
            .parent()
            .context("a manifest has a folder")?;
        let is = |kind: &TargetKind| {
            let target = package.targets.iter().find(|t| t.kind.contains(kind))?;
            Some(relative(target.src_path.as_std_path()))
        };
        let dependencies = package.dependencies.iter().map(|dependency| Dependency {
            name: dependency.name.clone(),
            ident: dependency
                .rename
                .as_ref()
                .unwrap_or(&dependency.name)
                .replace('-', "_"),
            kind: match dependency.kind {
                DependencyKind::Development => Kind::Dev,
                DependencyKind::Build => Kind::Build,
                _ => Kind::Normal,
            },
            ours: dependency
                .path
                .as_ref()
                .map(|path| relative(path.as_std_path())),
        });
        packages.push(Package {
            name: package.name.to_string(),
            dir: relative(dir.as_std_path()),
            crate_root: is(&TargetKind::Lib).or_else(|| is(&TargetKind::Bin)),
            has_build_script: is(&TargetKind::CustomBuild).is_some(),
            fixture,
            dependencies: dependencies.collect(),
        });
    }
    Ok(packages)
}

/// Every file that is tracked or would be, relative to the root.
pub(crate) fn files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .current_dir(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("cannot start git, which lists the files to check")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let list = String::from_utf8(output.stdout)?;
    let mut files: Vec<String> = list
        .split('\0')
        .filter(|path| !path.is_empty() && root.join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
