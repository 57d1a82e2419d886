//! A secret store with one fault fails the cases of the clause that it breaks, and no other case.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_conformance::Filter;
use astrabox_conformance::secrets::{self, SecretsFixture};
use astrabox_secrets::{Error, ErrorKind, KeyVersion, Secret, SecretName, SecretStore};
use async_trait::async_trait;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    LosesTheLastByte,
    KeepsTheFirst,
    ForgetsAtTheEnd,
    IgnoresCase,
    IsNotBoundToItsName,
    KeepsItInTheClear,
    DoesNotSeeDamage,
    RemovesOnlyOnce,
    RemovesNothing,
    TellsWhatIsDamaged,
    CountsNoKeys,
    LosesValuesWithTheKey,
    KeepsTheKeyBefore,
    IsLostWhenCutOff,
}

/// What is kept of a value, closed in a way that only a double may.
#[derive(Clone)]
struct Kept {
    bound: SecretName,
    key: u32,
    bytes: Vec<u8>,
    sum: u32,
}

fn sum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(7, |sum: u32, byte| sum.wrapping_mul(31) + u32::from(*byte))
}

fn mask(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 0x55).collect()
}

struct Disk {
    values: BTreeMap<SecretName, Kept>,
    keys: BTreeSet<u32>,
}

#[derive(Clone)]
struct Store {
    fault: Fault,
    disk: Arc<Mutex<Disk>>,
}

fn error(kind: ErrorKind, text: &str) -> Error {
    Error::new(kind, "test", text)
}

impl Store {
    fn new(fault: Fault) -> Self {
        let disk = Disk {
            values: BTreeMap::new(),
            keys: BTreeSet::from([1]),
        };
        Self {
            fault,
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, name: &SecretName) -> SecretName {
        if self.has(Fault::IgnoresCase) {
            return SecretName::new(name.as_str().to_lowercase()).expect("a name");
        }
        name.clone()
    }

    /// A change of the key up to this many steps; whether it was done.
    fn rotate(&self, steps: usize) -> bool {
        let mut disk = self.disk();
        let old = *disk.keys.last().expect("a key");
        let new = old + 1;
        disk.keys.insert(new);
        if self.has(Fault::IsLostWhenCutOff) {
            disk.keys.remove(&old);
        }
        let lost = self.has(Fault::LosesValuesWithTheKey);
        for (step, kept) in disk.values.values_mut().enumerate() {
            if step == steps {
                return false;
            }
            if !lost {
                kept.key = new;
            }
        }
        if !self.has(Fault::KeepsTheKeyBefore) {
            disk.keys = BTreeSet::from([new]);
        }
        true
    }
}

#[async_trait]
impl SecretStore for Store {
    async fn put(&self, name: &SecretName, value: Secret) -> Result<(), Error> {
        let name = self.name(name);
        let mut disk = self.disk();
        if self.has(Fault::KeepsTheFirst) && disk.values.contains_key(&name) {
            return Ok(());
        }
        let mut value = value.expose();
        if self.has(Fault::LosesTheLastByte) && value.len() > 60_000 {
            value = &value[..value.len() - 1];
        }
        let kept = Kept {
            bound: name.clone(),
            key: *disk.keys.last().expect("a key"),
            bytes: mask(value),
            sum: sum(value),
        };
        disk.values.insert(name, kept);
        Ok(())
    }

    async fn get(&self, name: &SecretName) -> Result<Secret, Error> {
        let name = self.name(name);
        let disk = self.disk();
        let kept = disk.values.get(&name);
        let kept = kept.ok_or_else(|| error(ErrorKind::NotFound, "it is not there"))?;
        let value = mask(&kept.bytes);
        let opens = kept.bound == name || self.has(Fault::IsNotBoundToItsName);
        if !opens || !disk.keys.contains(&kept.key) {
            return Err(error(ErrorKind::Damaged, "it does not open"));
        }
        if kept.sum != sum(&value) && !self.has(Fault::DoesNotSeeDamage) {
            if self.has(Fault::TellsWhatIsDamaged) {
                let mut before = value;
                *before.last_mut().expect("a byte") ^= 1;
                let text = String::from_utf8_lossy(&before).into_owned();
                return Err(error(ErrorKind::Damaged, &text));
            }
            return Err(error(ErrorKind::Damaged, "it was changed"));
        }
        Ok(Secret::new(value))
    }

    async fn remove(&self, name: &SecretName) -> Result<(), Error> {
        if self.has(Fault::RemovesNothing) {
            return Ok(());
        }
        match self.disk().values.remove(&self.name(name)) {
            None if self.has(Fault::RemovesOnlyOnce) => {
                Err(error(ErrorKind::NotFound, "it is not there"))
            }
            _ => Ok(()),
        }
    }

    async fn rotate_key(&self) -> Result<KeyVersion, Error> {
        self.rotate(usize::MAX);
        let newest = *self.disk().keys.last().expect("a key");
        Ok(KeyVersion(if self.has(Fault::CountsNoKeys) {
            1
        } else {
            newest
        }))
    }
}

struct Fixture(Store);

#[async_trait]
impl SecretsFixture for Fixture {
    fn name(&self) -> String {
        format!("{:?}", self.0.fault)
    }

    async fn open(&self) -> Result<Arc<dyn SecretStore>, Error> {
        if self.0.has(Fault::ForgetsAtTheEnd) {
            return Ok(Arc::new(Store::new(self.0.fault)));
        }
        Ok(Arc::new(self.0.clone()))
    }

    fn at_rest(&self) -> Option<Vec<u8>> {
        let disk = self.0.disk();
        let clear = self.0.has(Fault::KeepsItInTheClear);
        let values = disk.values.values();
        let bytes = values.flat_map(|kept| {
            if clear {
                mask(&kept.bytes)
            } else {
                kept.bytes.clone()
            }
        });
        Some(bytes.chain([0]).collect())
    }

    async fn damage(&self, name: &SecretName) -> bool {
        match self.0.disk().values.get_mut(name) {
            Some(kept) => kept.bytes.last_mut().map(|byte| *byte ^= 1).is_some(),
            None => false,
        }
    }

    async fn swap(&self, from: &SecretName, to: &SecretName) -> bool {
        let mut disk = self.0.disk();
        let Some(kept) = disk.values.get(from).cloned() else {
            return false;
        };
        disk.values.insert(to.clone(), kept);
        true
    }

    fn keep_values(&self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(self.0.disk().values.clone()))
    }

    fn restore_values(&self, kept: Box<dyn Any + Send>) {
        let kept = kept.downcast::<BTreeMap<SecretName, Kept>>();
        self.0.disk().values = *kept.expect("what keep_values gave");
    }

    async fn cut_off_rotation(&self, steps: u32) -> Option<bool> {
        Some(!self.0.rotate(steps as usize))
    }
}

#[test]
fn each_fault_fails_its_own_cases_and_no_others() {
    let faults: &[(Fault, &[&str])] = &[
        (Fault::None, &[]),
        (
            Fault::LosesTheLastByte,
            &["a_value_is_read_back_bit_for_bit"],
        ),
        (
            Fault::KeepsTheFirst,
            &[
                "a_later_value_replaces_an_earlier_one",
                "a_change_of_the_key_keeps_every_value",
                "a_change_of_the_key_that_is_cut_off_keeps_every_value",
            ],
        ),
        (
            Fault::ForgetsAtTheEnd,
            &[
                "a_value_is_read_back_after_a_restart",
                "a_change_of_the_key_keeps_every_value",
                "after_a_change_the_key_before_opens_nothing",
                "a_change_of_the_key_that_is_cut_off_keeps_every_value",
            ],
        ),
        (
            Fault::IgnoresCase,
            &["a_value_is_not_read_under_another_name"],
        ),
        (
            Fault::IsNotBoundToItsName,
            &["a_stored_value_in_another_place_is_damaged"],
        ),
        (Fault::KeepsItInTheClear, &["nothing_at_rest_shows_a_value"]),
        (Fault::DoesNotSeeDamage, &["a_changed_byte_is_an_error"]),
        (
            Fault::RemovesOnlyOnce,
            &["removing_is_final_and_may_be_repeated"],
        ),
        (
            Fault::RemovesNothing,
            &["removing_is_final_and_may_be_repeated"],
        ),
        (Fault::TellsWhatIsDamaged, &["no_error_tells_a_value"]),
        (
            Fault::CountsNoKeys,
            &["a_change_of_the_key_keeps_every_value"],
        ),
        (
            Fault::LosesValuesWithTheKey,
            &[
                "a_change_of_the_key_keeps_every_value",
                "after_a_change_the_key_before_opens_nothing",
                "a_change_of_the_key_that_is_cut_off_keeps_every_value",
            ],
        ),
        (
            Fault::KeepsTheKeyBefore,
            &["after_a_change_the_key_before_opens_nothing"],
        ),
        (
            Fault::IsLostWhenCutOff,
            &["a_change_of_the_key_that_is_cut_off_keeps_every_value"],
        ),
    ];
    let mut wrong = Vec::new();
    for (fault, wanted) in faults {
        let fixture = Arc::new(Fixture(Store::new(*fault)));
        let report = secrets::suite(fixture).run_blocking(&Filter::all());
        let failed: BTreeSet<_> = report.failures().into_iter().collect();
        let wanted: BTreeSet<_> = wanted.iter().copied().collect();
        if failed != wanted {
            wrong.push(report.to_string());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
