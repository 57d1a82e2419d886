//! What goes wrong with images, each with its remedy.

use std::io;
use std::time::Duration;

use crate::Step;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with an image. A failed build has left nothing behind.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not an image's name.
    #[error(
        "`{name}` is not an image's name: it is `<engine>:<version>-<hash>`, as `astrabox image list` shows it"
    )]
    BadName {
        /// The text.
        name: String,
    },
    /// The image is not in the cache.
    #[error("image `{image}` is missing: build it with `astrabox image build {engine}`")]
    Missing {
        /// The image's name.
        image: String,
        /// Its engine's kind.
        engine: String,
    },
    /// The engine's recipe is wrong, or its packages no longer hold what it takes from them.
    #[error("the image recipe of `{engine}` cannot be used: {what}")]
    Recipe {
        /// The engine's kind.
        engine: String,
        /// What is wrong.
        what: String,
    },
    /// The folder cannot become an image.
    #[error("the folder cannot become an image: {what}")]
    Import {
        /// Why, with the remedy.
        what: String,
    },
    /// The program does not run on this host.
    #[error(
        "image `{image}` is for {supported} and this host is {host}: use a host of such an architecture"
    )]
    Architecture {
        /// The image's name.
        image: String,
        /// The architectures of the recipe.
        supported: String,
        /// The architecture of this host.
        host: &'static str,
    },
    /// A command that the build needs is not there.
    #[error("the command `{command}` is not on the PATH: install the package `{package}`")]
    CommandMissing {
        /// The command.
        command: String,
        /// The package of the system's package manager that has it.
        package: String,
    },
    /// A command that the build needs is too old.
    #[error("`{command}` is version {found}, and {needed} or later is needed: install a newer one")]
    CommandTooOld {
        /// The command.
        command: &'static str,
        /// Its version.
        found: String,
        /// The least version.
        needed: u32,
    },
    /// A package is not the one whose hash is in the recipe.
    #[error(
        "a package for image `{image}` has not the hash that the recipe pins, and nothing of it was kept: \
         try again, then look at the registry or mirror that is set (`{settings}`)"
    )]
    HashMismatch {
        /// The command that shows the package client's settings.
        settings: &'static str,
        /// The image's name.
        image: String,
        /// The end of the package client's output.
        output: Vec<String>,
    },
    /// No registry was reached.
    #[error(
        "no package registry was reached for image `{image}` ({code}): look at the network, the proxy \
         variables and `{settings}`"
    )]
    NoNetwork {
        /// The command that shows the package client's settings.
        settings: &'static str,
        /// The image's name.
        image: String,
        /// The package client's error code.
        code: String,
        /// The end of the package client's output.
        output: Vec<String>,
    },
    /// The registry's certificate is not trusted.
    #[error(
        "the package registry for image `{image}` shows a certificate that is not trusted ({code}): set \
         {remedy}"
    )]
    Untrusted {
        /// Which setting of the package client names further authorities.
        remedy: &'static str,
        /// The image's name.
        image: String,
        /// The package client's error code.
        code: String,
        /// The end of the package client's output.
        output: Vec<String>,
    },
    /// The registry does not give the package.
    #[error(
        "the package registry does not give a package of image `{image}` ({code}): look at `{settings}` and at \
         the login that is used"
    )]
    RegistryRefused {
        /// The command that shows the package client's settings.
        settings: &'static str,
        /// The image's name.
        image: String,
        /// The package client's error code.
        code: String,
        /// The end of the package client's output.
        output: Vec<String>,
    },
    /// The disk or the quota is full.
    #[error("no space is left for image `{image}`, and nothing of it was kept: free some space")]
    NoSpace {
        /// The image's name.
        image: String,
    },
    /// The package client failed for another reason.
    #[error(
        "{client} did not install the packages of image `{image}` ({status}): its output says why"
    )]
    InstallFailed {
        /// The package client.
        client: &'static str,
        /// The image's name.
        image: String,
        /// How the package client ended.
        status: String,
        /// The end of the package client's output.
        output: Vec<String>,
    },
    /// A step of the build took too long.
    #[error("{step} of image `{image}` did not end within {} seconds: try again", limit.as_secs())]
    Deadline {
        /// The image's name.
        image: String,
        /// The step.
        step: Step,
        /// How long it was given.
        limit: Duration,
    },
    /// The built program does not do what the recipe expects.
    #[error("`{program}` of image `{image}` failed its check: {what}")]
    CheckFailed {
        /// The image's name.
        image: String,
        /// The program, below the image's root.
        program: String,
        /// What was seen.
        what: String,
        /// The end of the program's output.
        output: Vec<String>,
    },
    /// Files of the image are not what they were when it was built.
    #[error(
        "image `{image}` is damaged ({}): remove it with `astrabox image remove {image}` and build it again",
        summary(problems)
    )]
    Damaged {
        /// The image's name.
        image: String,
        /// What is wrong, by file.
        problems: Vec<String>,
    },
    /// The image cannot be removed or replaced now.
    #[error("image `{image}` is in use: release the sandboxes that run it, or wait for its build")]
    InUse {
        /// The image's name.
        image: String,
    },
    /// The cache folder cannot be used.
    #[error("the image cache cannot be used: {what}")]
    Cache {
        /// Why, with the remedy.
        what: &'static str,
    },
    /// The file system refused.
    #[error("could not {doing}")]
    Io {
        /// What was tried.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
}

impl Error {
    /// The end of the output of the program that failed, for people; it may hold paths of this host.
    #[must_use]
    pub fn output(&self) -> &[String] {
        match self {
            Self::HashMismatch { output, .. }
            | Self::NoNetwork { output, .. }
            | Self::Untrusted { output, .. }
            | Self::RegistryRefused { output, .. }
            | Self::InstallFailed { output, .. }
            | Self::CheckFailed { output, .. } => output,
            _ => &[],
        }
    }
}

/// Turns a file system error into ours; a full disk has its own variant.
pub(crate) fn io_error(image: &str, doing: &str) -> impl FnOnce(io::Error) -> Error + use<> {
    let (image, doing) = (image.to_owned(), doing.to_owned());
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { image },
        _ => Error::Io { doing, source },
    }
}

fn summary(problems: &[String]) -> String {
    match problems {
        [] => "no detail".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first}, and {} more", rest.len()),
    }
}
