//! The suite of a secret store: SE1 to SE6.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use astrabox_secrets::{ErrorKind, KeyVersion, Secret, SecretName, SecretStore};
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

    /// Everything that is at rest, put aside for [`SecretsFixture::restore_values`]; `None` when there is no way.
    fn keep_values(&self) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Puts the values of an earlier time in the place of today's, without the keys of that time.
    fn restore_values(&self, _kept: Box<dyn Any + Send>) {}

    /// Begins a change of the key and cuts it off after this many steps, as the end of the process does. `false` when
    /// it was done before that; `None` when there is no way.
    async fn cut_off_rotation(&self, _steps: u32) -> Option<bool> {
        None
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
        a_change_of_the_key_keeps_every_value[SE6],
        after_a_change_the_key_before_opens_nothing[SE6],
        a_change_of_the_key_that_is_cut_off_keeps_every_value[SE6],
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

/// Changes the key; a store that cannot is left out.
async fn rotate(store: &dyn SecretStore) -> Result<KeyVersion, Stop> {
    match store.rotate_key().await {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Stop::skipped("the store does not keep its key itself"))
        }
        result => result.doing("rotate_key"),
    }
}

const BESIDE: [(&str, &[u8]); 3] = [
    ("rotated/one", TREASURE),
    ("rotated/empty", b""),
    ("rotated/other", b"another value"),
];

async fn a_change_of_the_key_keeps_every_value(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    for (label, value) in BESIDE {
        put(&*store, &name(label)?, value).await?;
    }
    let first = rotate(&*store).await?;
    let second = rotate(&*store).await?;
    check!(second > first, "the second new key is not a later one");
    for store in [store, bench.open().await?] {
        for (label, value) in BESIDE {
            holds(&*store, &name(label)?, value).await?;
        }
    }
    // It takes values as before.
    let store = bench.open().await?;
    put(&*store, &name("rotated/one")?, b"later").await?;
    holds(&*store, &name("rotated/one")?, b"later").await
}

async fn after_a_change_the_key_before_opens_nothing(bench: &SecretsBench) -> Checked {
    let store = bench.open().await?;
    let name = name("rotated/away")?;
    put(&*store, &name, TREASURE).await?;
    let Some(kept) = bench.0.keep_values() else {
        return Err(Stop::skipped("the fixture cannot put values aside"));
    };
    rotate(&*store).await?;
    holds(&*store, &name, TREASURE).await?;
    bench.0.restore_values(kept);
    let got = bench.open().await?.get(&name).await;
    refused(
        got,
        &[ErrorKind::Damaged],
        "reading what the key before has closed",
    )?;
    Ok(())
}

async fn a_change_of_the_key_that_is_cut_off_keeps_every_value(bench: &SecretsBench) -> Checked {
    for steps in 0..64 {
        let store = bench.open().await?;
        for (label, value) in BESIDE {
            put(&*store, &name(label)?, value).await?;
        }
        let Some(cut) = bench.0.cut_off_rotation(steps).await else {
            return Err(Stop::skipped("the fixture cannot cut a change off"));
        };
        let store = bench.open().await?;
        for (label, value) in BESIDE {
            holds(&*store, &name(label)?, value).await?;
        }
        rotate(&*store).await?;
        for (label, value) in BESIDE {
            holds(&*store, &name(label)?, value).await?;
        }
        if !cut {
            check!(steps > 0, "a change of the key has no step");
            return Ok(());
        }
    }
    Err(Stop::failed("a change of the key has no end"))
}
