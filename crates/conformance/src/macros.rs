//! The suites as tests of somebody else's crate, one line each.

/// A test that runs the engine suite over an adapter, with or without a fixture of its program.
///
/// ```text
/// astrabox_conformance::engine_conformance!(my_engine::ADAPTER);
/// astrabox_conformance::engine_conformance!(whole_conversations, my_engine::ADAPTER, MyProgram);
/// ```
///
/// The adapter is the name of a constant or static of its type, the fixture a value of
/// [`EngineFixture`](crate::engine::EngineFixture).
#[macro_export]
macro_rules! engine_conformance {
    ($adapter:path) => {
        $crate::engine_conformance!(engine_conformance, $adapter);
    };
    ($name:ident, $adapter:path) => {
        #[test]
        fn $name() {
            $crate::engine::assert_conforms(&$adapter, None);
        }
    };
    ($name:ident, $adapter:path, $fixture:expr) => {
        #[test]
        fn $name() {
            let fixture = ::std::sync::Arc::new($fixture);
            $crate::engine::assert_conforms(&$adapter, Some(fixture));
        }
    };
}

/// A test that runs the sandbox suite over the provider of a
/// [`ProviderFixture`](crate::sandbox::ProviderFixture). Give it a test file of its own: it looks at the whole process.
///
/// ```text
/// astrabox_conformance::provider_conformance!(MyFixture::new());
/// ```
#[macro_export]
macro_rules! provider_conformance {
    ($fixture:expr) => {
        $crate::provider_conformance!(provider_conformance, $fixture);
    };
    ($name:ident, $fixture:expr) => {
        #[test]
        fn $name() {
            $crate::sandbox::assert_conforms(::std::sync::Arc::new($fixture));
        }
    };
}

/// A test that runs the model suite over a [`ModelFixture`](crate::model::ModelFixture).
#[macro_export]
macro_rules! model_conformance {
    ($fixture:expr) => {
        #[test]
        fn model_conformance() {
            $crate::model::assert_conforms(::std::sync::Arc::new($fixture));
        }
    };
}

/// A test that runs the identity suite over an [`IdentityFixture`](crate::identity::IdentityFixture).
#[macro_export]
macro_rules! identity_conformance {
    ($fixture:expr) => {
        #[test]
        fn identity_conformance() {
            $crate::identity::assert_conforms($fixture);
        }
    };
}

/// A test that runs the secrets suite over a [`SecretsFixture`](crate::secrets::SecretsFixture).
#[macro_export]
macro_rules! secrets_conformance {
    ($fixture:expr) => {
        #[test]
        fn secrets_conformance() {
            $crate::secrets::assert_conforms(::std::sync::Arc::new($fixture));
        }
    };
}
