//! A registry of named constructors, filled at link time or by hand.
//!
//! Invariant: holds names and constructors only; it never runs a constructor and keeps no instance.

use std::collections::BTreeMap;

/// Collects registrations at link time; re-exported so that adapters need no dependency of their own.
pub use inventory;

/// What one adapter contributes: a name and, in the seam's own type, its constructor.
pub trait Registration: Copy + 'static {
    /// The seam, as `engine` or `sandbox provider`; used in messages.
    const SEAM: &'static str;

    /// The name that configuration and requests use.
    fn name(&self) -> &'static str;

    /// One line for people.
    fn summary(&self) -> &'static str;

    /// The crate that registers it.
    fn origin(&self) -> &'static str;
}

/// Two adapters claim one name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "two {seam} registrations are called `{name}` (crates {first} and {second}): remove or rename one"
)]
pub struct DuplicateName {
    seam: &'static str,
    name: &'static str,
    first: &'static str,
    second: &'static str,
}

/// The adapters of one seam, by name, in name order.
#[derive(Debug, Clone)]
pub struct Registry<R> {
    entries: BTreeMap<&'static str, R>,
}

impl<R: Registration> Registry<R> {
    /// A registry with nothing in it: the explicit path, for embedders and tests.
    #[must_use]
    pub const fn empty() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }

    /// Everything that is linked into this program.
    ///
    /// # Errors
    /// When two registrations have the same name.
    pub fn linked() -> Result<Self, DuplicateName>
    where
        R: inventory::Collect,
    {
        inventory::iter::<R>
            .into_iter()
            .try_fold(Self::empty(), |registry, entry| registry.with(*entry))
    }

    /// Adds one registration.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn with(mut self, entry: R) -> Result<Self, DuplicateName> {
        if let Some(first) = self.entries.insert(entry.name(), entry) {
            return Err(DuplicateName {
                seam: R::SEAM,
                name: entry.name(),
                first: first.origin(),
                second: entry.origin(),
            });
        }
        Ok(self)
    }

    /// The registration of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&R> {
        self.entries.get(name)
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.entries.keys().copied()
    }

    /// All registrations, in name order.
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.entries.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Defines a seam's `Registration` of providers that are built from a configuration block, and collects it.
///
/// The factory trait has `NAME`, `SUMMARY` and an async `build` with these arguments and this result.
#[macro_export]
macro_rules! provider_registration {
    (
        seam: $seam:literal,
        factory: $factory:ident,
        build: ($($argument:ident: $type:ty),+) -> $result:ty,
    ) => {
        /// One linked provider of this seam.
        #[derive(Clone, Copy)]
        pub struct Registration {
            name: &'static str,
            summary: &'static str,
            origin: &'static str,
            #[expect(clippy::type_complexity, reason = "it stands here once")]
            build: fn($($type),+) -> ::std::pin::Pin<
                ::std::boxed::Box<dyn ::std::future::Future<Output = $result> + ::std::marker::Send>,
            >,
        }

        impl Registration {
            /// Registers a factory; `origin` is `env!("CARGO_PKG_NAME")`.
            #[must_use]
            pub const fn new<F: $factory + 'static>(origin: &'static str) -> Self {
                Self { name: F::NAME, summary: F::SUMMARY, origin, build: |$($argument),+| F::build($($argument),+) }
            }

            /// Builds the provider.
            ///
            /// # Errors
            /// When the configuration is wrong or the host cannot carry the provider.
            pub async fn build(&self, $($argument: $type),+) -> $result {
                (self.build)($($argument),+).await
            }
        }

        impl $crate::Registration for Registration {
            const SEAM: &'static str = $seam;
            fn name(&self) -> &'static str {
                self.name
            }
            fn summary(&self) -> &'static str {
                self.summary
            }
            fn origin(&self) -> &'static str {
                self.origin
            }
        }

        impl ::std::fmt::Debug for Registration {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct("Registration").field("name", &self.name).field("origin", &self.origin).finish()
            }
        }

        $crate::inventory::collect!(Registration);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy)]
    struct Entry(&'static str, &'static str);

    impl Registration for Entry {
        const SEAM: &'static str = "test";
        fn name(&self) -> &'static str {
            self.0
        }
        fn summary(&self) -> &'static str {
            "an entry"
        }
        fn origin(&self) -> &'static str {
            self.1
        }
    }

    inventory::collect!(Entry);
    inventory::submit!(Entry("zulu", "one"));
    inventory::submit!(Entry("alpha", "two"));

    #[test]
    fn linked_entries_come_in_name_order() {
        let registry = Registry::<Entry>::linked().expect("names are unique");
        assert_eq!(registry.names().collect::<Vec<_>>(), ["alpha", "zulu"]);
        assert_eq!(registry.get("zulu").map(|entry| entry.1), Some("one"));
        assert!(registry.get("yankee").is_none());
    }

    #[test]
    fn a_name_taken_twice_is_refused_with_both_crates() {
        let error = Registry::empty()
            .with(Entry("a", "one"))
            .and_then(|registry| registry.with(Entry("a", "two")))
            .expect_err("the name is taken");
        assert_eq!(
            error.to_string(),
            "two test registrations are called `a` (crates one and two): remove or rename one"
        );
    }
}
