//! A fault point that the environment names, for tests that kill real processes at a known step of a turn.
//!
//! `ASTRABOX_FAULT` is `before WORD` or `after WORD`: a write that has this word, as `turn.ended` or `checkpoint`,
//! stops there; `after turn.started checkpoint` is the first checkpoint behind a turn's begin. It counts once the file `ASTRABOX_FAULT_FILE` with the extension `arm` is there. The server then makes the file
//! itself and goes on when that is removed; until then nothing of this session is written. It stops once. Only servers
//! that are built with the feature `fault-points` have this.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use astrabox_store::{Moment, Store, Words};

/// How often a server that stands still looks whether it may go on.
const LOOK_EVERY: Duration = Duration::from_millis(5);

struct Fault {
    moment: Moment,
    /// The words that have to pass, the last of which is where it stops.
    words: Vec<String>,
    passed: AtomicUsize,
    file: PathBuf,
}

/// The store with the fault point that the environment asks for, if it does.
pub(crate) fn of_environment(store: Store) -> Store {
    let Some(fault) = read() else {
        return store;
    };
    let fault = Arc::new(fault);
    store.with_fault_point(Arc::new(move |moment, words| {
        let fault = Arc::clone(&fault);
        Box::pin(async move { fault.pass(moment, &words).await })
    }))
}

fn read() -> Option<Fault> {
    let text = std::env::var("ASTRABOX_FAULT").ok()?;
    let file = std::env::var_os("ASTRABOX_FAULT_FILE")?;
    let (moment, words) = text.split_once(' ')?;
    let moment = match moment {
        "before" => Moment::BeforeWrite,
        "after" => Moment::AfterWrite,
        _ => return None,
    };
    Some(Fault {
        moment,
        words: words.split(' ').map(str::to_owned).collect(),
        passed: AtomicUsize::new(0),
        file: file.into(),
    })
}

impl Fault {
    async fn pass(&self, moment: Moment, words: &Words) {
        let at = self.passed.load(Ordering::SeqCst);
        let passes = moment == self.moment
            && self.file.with_extension("arm").exists()
            && self
                .words
                .get(at)
                .is_some_and(|word| words.iter().any(|one| one == word));
        if !passes {
            return;
        }
        // Two writes at once pass one word once.
        let next = self
            .passed
            .compare_exchange(at, at + 1, Ordering::SeqCst, Ordering::SeqCst);
        if next.is_ok() && at + 1 == self.words.len() {
            tracing::warn!(words = ?self.words, "standing still at a fault point");
            stand_still(&self.file).await;
        }
    }
}

async fn stand_still(file: &Path) {
    if let Err(error) = std::fs::write(file, b"") {
        tracing::error!(%error, "the fault point's file cannot be made");
        return;
    }
    while file.exists() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
