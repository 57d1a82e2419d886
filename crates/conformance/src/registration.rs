//! What every registration must be, whatever its seam: named, summed up, and strict about its settings.

use std::sync::Arc;
use std::time::Duration;

use astrabox_registry::Registration;
use astrabox_sandbox::ProviderContext;
use astrabox_types::{SeamError, SeamErrorKind};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::case::{check, check_eq};
use crate::doubles::RecordingGate;
use crate::suite::cases;
use crate::{Bench, Case, Checked, Clock, Stop, Suite};

/// How long one case may take.
const CASE: Duration = Duration::from_secs(30);
/// A setting that nothing has.
const UNKNOWN: &str = "no_such_setting_of_the_conformance_suite";

/// Tries to build a provider from a block: how its error reads and whether it is `Invalid`, or nothing when it was
/// built.
type Try = Arc<dyn Fn(Value) -> BoxFuture<'static, Option<(String, bool)>> + Send + Sync>;

/// One registration.
#[derive(Clone)]
pub(crate) struct RegistrationBench {
    seam: &'static str,
    name: &'static str,
    summary: &'static str,
    origin: &'static str,
    build: Option<Try>,
}

impl Bench for RegistrationBench {}

impl RegistrationBench {
    /// A registration that is built from nothing.
    pub(crate) fn without_settings<R: Registration>(registration: &R) -> Self {
        Self {
            seam: R::SEAM,
            name: registration.name(),
            summary: registration.summary(),
            origin: registration.origin(),
            build: None,
        }
    }

    fn with<R: Registration>(registration: &R, build: Try) -> Self {
        Self {
            build: Some(build),
            ..Self::without_settings(registration)
        }
    }
}

/// How a try went.
fn told<T, K: SeamErrorKind>(
    result: Result<T, SeamError<K>>,
    invalid: K,
) -> Option<(String, bool)> {
    let error = result.err()?;
    Some((error.to_string(), error.kind() == invalid))
}

pub(crate) fn of_sandbox(registration: &astrabox_sandbox::Registration) -> RegistrationBench {
    let provider = *registration;
    let build: Try = Arc::new(move |block| {
        async move {
            let directory = match tempfile::tempdir() {
                Ok(directory) => directory,
                Err(error) => return Some((error.to_string(), false)),
            };
            let context = ProviderContext {
                state_dir: directory.path().to_owned(),
                run_dir: directory.path().to_owned(),
                cache_dir: directory.path().to_owned(),
                root_id: "conf-settings".to_owned(),
                gate: Arc::new(RecordingGate::new()),
            };
            let built = provider.build(block, context).await;
            told(built, astrabox_sandbox::ErrorKind::Invalid)
        }
        .boxed()
    });
    RegistrationBench::with(registration, build)
}

pub(crate) fn of_secrets(registration: &astrabox_secrets::Registration) -> RegistrationBench {
    let store = *registration;
    let build: Try = Arc::new(move |block| {
        async move {
            let directory = match tempfile::tempdir() {
                Ok(directory) => directory,
                Err(error) => return Some((error.to_string(), false)),
            };
            let context = astrabox_secrets::StoreContext {
                state_dir: directory.path().to_owned(),
            };
            let built = store.build(block, context).await;
            told(built, astrabox_secrets::ErrorKind::Invalid)
        }
        .boxed()
    });
    RegistrationBench::with(registration, build)
}

/// The bench of a registration that is built from its block alone.
macro_rules! of_block {
    ($name:ident, $seam:ident) => {
        pub(crate) fn $name(registration: &$seam::Registration) -> RegistrationBench {
            let provider = *registration;
            let build: Try = Arc::new(move |block| {
                async move { told(provider.build(block).await, $seam::ErrorKind::Invalid) }.boxed()
            });
            RegistrationBench::with(registration, build)
        }
    };
}

of_block!(of_model, astrabox_model);
of_block!(of_identity, astrabox_identity);

/// The cases of one registration.
pub(crate) fn suite(bench: RegistrationBench) -> Suite<RegistrationBench> {
    let name = format!("registration, {} {}", bench.seam, bench.name);
    let mut cases: Vec<Case<RegistrationBench>> = cases![it_is_named_and_summed_up_for_people []];
    if bench.build.is_some() {
        cases.extend(cases![an_unknown_setting_is_refused_by_name []]);
    }
    Suite::new(name, bench, cases, Clock::Real, CASE)
}

async fn it_is_named_and_summed_up_for_people(bench: &RegistrationBench) -> Checked {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    check!(
        !bench.name.is_empty() && bench.name.bytes().all(plain),
        "the name {:?} is not of a-z, 0-9, _ and -",
        bench.name
    );
    check!(
        !bench.summary.trim().is_empty() && bench.summary.lines().count() == 1,
        "the summary {:?} is not one line",
        bench.summary
    );
    check!(!bench.origin.is_empty(), "it names no crate");
    Ok(())
}

async fn an_unknown_setting_is_refused_by_name(bench: &RegistrationBench) -> Checked {
    let Some(build) = &bench.build else {
        return Err(Stop::skipped("it has no settings"));
    };
    let Some((text, invalid)) = build(json!({ UNKNOWN: 1 })).await else {
        return Err(Stop::failed("an unknown setting was taken"));
    };
    check_eq!(invalid, true, "whether the error is `Invalid` ({text})");
    check!(
        text.contains(UNKNOWN),
        "the error does not name the setting: {text}"
    );
    Ok(())
}
