//! The one shape of a seam's error.

use std::error::Error as StdError;
use std::fmt;

/// What a seam's kind enum must tell about itself.
pub trait SeamErrorKind: Copy + Eq + fmt::Debug + Send + Sync + 'static {
    /// The seam's name, as `sandbox`.
    const SEAM: &'static str;

    /// The kind as a lowercase phrase, as `not found`.
    fn phrase(self) -> &'static str;

    /// Whether the same call may succeed later without a change by the caller.
    fn retryable(self) -> bool;
}

/// What went wrong at a seam: a kind to branch on, the operation, and a text for people.
///
/// The text never holds a secret or a host path. The source is for logs; it is not repeated in the text.
#[derive(Debug)]
pub struct SeamError<K> {
    kind: K,
    retryable: bool,
    operation: &'static str,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl<K: SeamErrorKind> SeamError<K> {
    /// An error of `kind` in `operation`; `context` names the thing and the remedy.
    #[must_use]
    pub fn new(kind: K, operation: &'static str, context: impl Into<String>) -> Self {
        Self {
            kind,
            retryable: kind.retryable(),
            operation,
            context: context.into(),
            source: None,
        }
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Overrules the kind's own answer to whether a retry may help.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> K {
        self.kind
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// The operation that failed.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The text for people, without kind and operation.
    #[must_use]
    pub fn context(&self) -> &str {
        &self.context
    }
}

impl<K: SeamErrorKind> fmt::Display for SeamError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", K::SEAM, self.operation, self.kind.phrase())?;
        if !self.context.is_empty() {
            write!(f, ": {}", self.context)?;
        }
        Ok(())
    }
}

impl<K: SeamErrorKind> StdError for SeamError<K> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source
            .as_ref()
            .map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}
