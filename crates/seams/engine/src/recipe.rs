//! How an engine's image is made: data for `core/images`, which runs it.

/// A recipe for a directory tree that holds one agent program at a pinned version.
///
/// The image's name and cache key come from a digest of the whole recipe, so a changed recipe is a new image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecipe {
    /// The program's version.
    pub version: &'static str,
    /// The architectures that it runs on, as `x86_64`.
    pub architectures: &'static [&'static str],
    /// Commands that must be on the building host, as `npm`.
    pub commands: &'static [&'static str],
    /// What the package client installs, with checked hashes.
    pub npm: Option<NpmPackage>,
    /// What pip installs, with checked hashes.
    pub python: Option<PythonPackages>,
    /// What of the installed tree goes into the image; everything else is left out.
    pub copies: &'static [RecipeCopy],
    /// How the finished image is tried.
    pub check: RecipeCheck,
    /// The program's licence, for the operator.
    pub licence: &'static str,
}

/// An npm installation from a lock file: `npm ci` checks every package against its `integrity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NpmPackage {
    /// The text of `package.json`.
    pub manifest: &'static str,
    /// The text of `package-lock.json`, with `integrity` and without `resolved`.
    pub lock: &'static str,
}

/// A pip installation from a lock file, below `python` in the installation: every package is a wheel and has a version
/// and a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PythonPackages {
    /// The text of a requirements file; every package that is needed stands in it.
    pub requirements: &'static str,
    /// Whether the sandbox's `/usr/bin/python3` runs what is installed. The image is then one of this host's Python
    /// version, and holds compiled modules. Otherwise only native programs are taken out of the packages.
    pub runs_in_box: bool,
}

/// One tree or file that goes into the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeCopy {
    /// Where it is below the installation.
    pub from: &'static str,
    /// Where it goes below the image's root.
    pub to: &'static str,
}

/// A command that must succeed in the finished image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeCheck {
    /// The program, below the image's root; or `python3`, where the sandbox runs what pip installed: the sandbox's own,
    /// with the folder of the packages as one more argument.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// A text that its output must contain, as the version.
    pub expect: &'static str,
}
