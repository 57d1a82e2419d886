//! Refreshes that failed: a token endpoint that says no, or nothing, is not asked again at each turn.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use astrabox_store::CredentialRow;
use astrabox_types::{CredentialId, ErrorReason, Timestamp};
use tokio::time::Instant;

use crate::Error;

/// How long the endpoint is left in peace after the first failure; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The last failure of each credential. In memory: a server that starts again asks again.
#[derive(Default)]
pub(super) struct Failures(Mutex<HashMap<CredentialId, Failure>>);

struct Failure {
    of: Mark,
    pause: Duration,
    /// When the endpoint may be asked again.
    over: Instant,
    reason: ErrorReason,
    text: String,
}

/// What a failure is of: a credential that was updated since is another matter.
#[derive(Clone, PartialEq, Eq)]
struct Mark {
    secret_name: Option<String>,
    updated_at: Timestamp,
}

impl Mark {
    fn of(row: &CredentialRow) -> Self {
        Self {
            secret_name: row.secret_name.clone(),
            updated_at: row.credential.updated_at,
        }
    }
}

impl Failures {
    fn all(&self) -> MutexGuard<'_, HashMap<CredentialId, Failure>> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The failure for whose sake the endpoint is not asked now.
    pub(super) fn fresh(&self, row: &CredentialRow, now: Instant) -> Option<Error> {
        let all = self.all();
        let failure = all.get(&row.credential.id)?;
        let counts = failure.of == Mark::of(row) && now < failure.over;
        counts.then(|| Error::new(failure.reason, failure.text.clone()))
    }

    /// Remembers a failure.
    pub(super) fn note(&self, row: &CredentialRow, error: &Error, now: Instant) {
        let of = Mark::of(row);
        let mut all = self.all();
        // Those that nobody has asked for again are forgotten.
        all.retain(|_, failure| now < failure.over + LONGEST_PAUSE);
        let before = all.get(&row.credential.id);
        let pause = match before.filter(|before| before.of == of) {
            Some(before) => (before.pause * 2).min(LONGEST_PAUSE),
            None => FIRST_PAUSE,
        };
        let failure = Failure {
            of,
            pause,
            over: now + pause,
            reason: error.reason(),
            text: error.to_string(),
        };
        all.insert(row.credential.id, failure);
    }

    /// Forgets what failed before: it works now.
    pub(super) fn forget(&self, id: CredentialId) {
        self.all().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use astrabox_types::{CredentialSpec, VaultCredential, VaultId};

    use super::*;

    fn row() -> CredentialRow {
        let now = Timestamp::now();
        CredentialRow {
            credential: VaultCredential {
                id: CredentialId::new(),
                vault_id: VaultId::new(),
                display_name: String::new(),
                spec: CredentialSpec::StaticBearer {
                    mcp_server_url: "https://mcp.example".to_owned(),
                },
                secret_version: 1,
                archived_at: None,
                created_at: now,
                updated_at: now,
            },
            secret_name: Some("one".to_owned()),
        }
    }

    #[test]
    fn each_failure_doubles_the_pause_up_to_ten_minutes() {
        let (failures, row) = (Failures::default(), row());
        let error = Error::new(ErrorReason::VaultCredentialRefreshFailed, "no");
        let mut now = Instant::now();
        for seconds in [30, 60, 120, 240, 480, 600, 600] {
            assert!(failures.fresh(&row, now).is_none(), "{seconds}");
            failures.note(&row, &error, now);
            let pause = Duration::from_secs(seconds);
            let before_the_end = failures.fresh(&row, now + pause - Duration::from_millis(1));
            let told = before_the_end.expect("the pause is not over");
            assert_eq!(told.reason(), ErrorReason::VaultCredentialRefreshFailed);
            assert_eq!(told.to_string(), error.to_string());
            now += pause;
        }
        failures.forget(row.credential.id);
        failures.note(&row, &error, now);
        assert!(failures.fresh(&row, now + FIRST_PAUSE).is_none());
    }

    #[test]
    fn a_credential_that_was_updated_since_is_asked_for_anew() {
        let error = Error::new(ErrorReason::VaultCredentialUnavailable, "nothing");
        let now = Instant::now();
        let changes: [fn(&mut CredentialRow); 2] = [
            |row| row.secret_name = Some("other".to_owned()),
            |row| {
                let later = row.credential.updated_at.as_second() + 1;
                row.credential.updated_at = Timestamp::from_second(later).expect("a time");
            },
        ];
        for change in changes {
            let (failures, mut row) = (Failures::default(), row());
            failures.note(&row, &error, now);
            failures.note(&row, &error, now);
            assert!(failures.fresh(&row, now).is_some());
            change(&mut row);
            assert!(failures.fresh(&row, now).is_none());
            // And its failures are counted anew.
            failures.note(&row, &error, now);
            assert!(failures.fresh(&row, now + FIRST_PAUSE).is_none());
        }
    }
}
