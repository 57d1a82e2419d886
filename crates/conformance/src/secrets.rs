//! The suite of a secret store: SE1 to SE5.

use std::sync::Arc;
use std::time::Duration;

use astrabox_secrets::{ErrorKind, Secret, SecretName, SecretStore};
use async_trait::async_trait;

use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Bench, Case, Checked, Clock, Doing as _, Filter, Stop, Suite};

/// How long one case may take.
const CASE: Duration = Duration::from_secs(60);
/// A value that must show up nowhere.
const TREASURE: &[u8] = b"treasure-of-the-conformance-suite";

/// What a store's author gives to the suite.
#[async_trait]
pub trait SecretsFixture: Send + Sync + 'static {
    /// The store's name, for reports.
    fn name(&self) -> String;

    /// A store with what an earlier call's store kept.
    async fn open(&self) -> Result<Arc<dyn SecretStore>, astrabox_secrets::Error>;

    /// Everything that is kept at rest, as bytes; `None` when it cannot be looked at.
    fn at_rest(&self) -> Option<Vec<u8>> {
        None
    }

    /// Changes one byte of what is kept of this secret. `false` when there is no way.
    async fn damage(&self, _name: &SecretName) -> bool {
        false
    }

    /// Puts what is kept of one secret in the place of another. `false` when there is no way.
    async fn swap(&self, _from: &SecretName, _to: &SecretName) -> bool {
        false
    }
}

/// What the cases work on.
#[derive(Clone)]
pub struct SecretsBench(Arc<dyn SecretsFixture>);

impl Bench for SecretsBench {}

/// The whole suite over one store.
#[must_use]
pub fn suite(fixture: Arc<dyn SecretsFixture>) -> Suite<SecretsBench> {
    let name = format!("secret store {}", fixture.name());
    Suite::new(name, SecretsBench(fixture), cases(), Clock::Real, CASE)
}

/// Runs the suite over one store and panics with the report when it found a fault; for plain tests.
///
/// # Panics
/// When a case failed.
pub fn assert_conforms(fixture: Arc<dyn SecretsFixture>) {
    suite(fixture).run_blocking(&Filter::all()).assert_passed();
}

fn cases() -> Vec<Case<SecretsBench>> {
    cases![
        a_value_is_read_back_bit_for_bit[SE1],
        a_later_value_replaces_an_earlier_one[SE1],
        a_value_is_read_back_after_a_restart[SE1],
        a_value_is_not_read_under_another_name[SE2],
        a_stored_value_in_another_place_is_damaged[SE2],
        nothing_at_rest_shows_a_value[SE3],
        a_changed_byte_is_an_error[SE3],
        removing_is_final_and_may_be_repeated[SE4],
        no_error_tells_a_value[SE5],
    ]
}

fn name(text: &str) -> Result<SecretName, Stop> {
    SecretName::new(text).doing("a name")
}

impl SecretsBench {
    async fn open(&self) -> Result<Arc<dyn SecretStore>, Stop> {
        self.0.open().await.doing("open the store")
    }
}

async fn put(store: &dyn SecretStore, name: &SecretName, value: &[u8]) -> Checked {
    store
        .put(name, Secret::new(value.to_vec()))
        .await
        .doing("put")
}

async fn holds(store: &dyn SecretStore, name: &SecretName, wanted: &[u8]) -> Checked {
    let value = store.get(name).await.doing("get")?;
    check!(
        value.expose() == wanted,
        "`{}` is read back as {} other bytes",
        name.as_str(),
        value.expose().len()
    );
    Ok(())
}

async fn a_value_is_read_back_bit_for_bit(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    let all: Vec<u8> = (0..=255).collect();
    let large = all.repeat(256);
    for (label, value) in [
        ("empty", &[][..]),
        ("nul", &[0]),
        ("all", &all),
        ("large", &large),
    ] {
        let name = name(&format!("read/{label}"))?;
        put(&*store, &name, value).await?;
        holds(&*store, &name, value).await?;
    }
    Ok(())
}

async fn a_later_value_replaces_an_earlier_one(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    let name = name("replaced")?;
    for value in [&b"a first and longer value"[..], b"a second", b""] {
        put(&*store, &name, value).await?;
        holds(&*store, &name, value).await?;
    }
    Ok(())
}

async fn a_value_is_read_back_after_a_restart(bench: &SecretsBench) -> Checked {
    let name = name("restarted")?;
    put(&*bench.open().await?, &name, TREASURE).await?;
    holds(&*bench.open().await?, &name, TREASURE).await
}

async fn a_value_is_not_read_under_another_name(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    put(&*store, &name("one/name")?, TREASURE).await?;
    for other in ["one/nam", "one/name2", "one.name", "ONE/NAME", "one"] {
        let got = store.get(&name(other)?).await;
        refused(got, &[ErrorKind::NotFound], &format!("reading `{other}`"))?;
    }
    Ok(())
}

async fn a_stored_value_in_another_place_is_damaged(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    let (from, to) = (name("swap/from")?, name("swap/to")?);
    put(&*store, &from, TREASURE).await?;
    put(&*store, &to, b"other").await?;
    if !bench.0.swap(&from, &to).await {
        return Err(Stop::skipped("the fixture cannot move what is at rest"));
    }
    let got = bench.open().await?.get(&to).await;
    refused(
        got,
        &[ErrorKind::Damaged],
        "reading what belongs to another name",
    )?;
    Ok(())
}

async fn nothing_at_rest_shows_a_value(bench: &SecretsBench) -> Checked {
    put(&*bench.open().await?, &name("at/rest")?, TREASURE).await?;
    let Some(kept) = bench.0.at_rest() else {
        return Err(Stop::skipped("the fixture cannot look at what is at rest"));
    };
    check!(!kept.is_empty(), "nothing is kept");
    check!(
        !kept.windows(TREASURE.len()).any(|part| part == TREASURE),
        "a value is readable at rest"
    );
    Ok(())
}

async fn a_changed_byte_is_an_error(bench: &SecretsBench) -> Checked {
    let name = name("damaged")?;
    put(&*bench.open().await?, &name, TREASURE).await?;
    if !bench.0.damage(&name).await {
        return Err(Stop::skipped("the fixture cannot change what is at rest"));
    }
    let got = bench.open().await?.get(&name).await;
    let error = refused(got, &[ErrorKind::Damaged], "reading a damaged value")?;
    check!(
        !error.is_retryable(),
        "a damaged value is worth another try"
    );
    Ok(())
}

async fn removing_is_final_and_may_be_repeated(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    let name = name("removed")?;
    put(&*store, &name, TREASURE).await?;
    for time in ["remove", "remove again"] {
        store.remove(&name).await.doing(time)?;
        refused(store.get(&name).await, &[ErrorKind::NotFound], "reading it")?;
    }
    let again = bench.open().await?.get(&name).await;
    refused(again, &[ErrorKind::NotFound], "reading it after a restart")?;
    Ok(())
}

async fn no_error_tells_a_value(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    let here = name("told")?;
    put(&*store, &here, TREASURE).await?;
    let mut errors = Vec::new();
    errors.extend(store.get(&name("told/not")?).await.err());
    if bench.0.damage(&here).await {
        errors.extend(bench.open().await?.get(&here).await.err());
    }
    store.remove(&here).await.doing("remove")?;
    errors.extend(store.get(&here).await.err());
    check_eq!(
        errors.len() >= 2,
        true,
        "whether reading nothing is an error"
    );
    let treasure = String::from_utf8_lossy(TREASURE);
    for error in errors {
        let text = format!("{error} {error:?}");
        check!(!text.contains(&*treasure), "an error tells a value: {text}");
    }
    Ok(())
}
