//! Volumes that are made before anybody asks: making one takes longer than making all the rest of a sandbox, because
//! it has to be on disk.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_sandbox::Result;
use astrabox_types::VolumeId;
use tokio::task::JoinSet;

use crate::error::host;
use crate::folder::{private_dirs, remove_tree};
use crate::launch::RunnerProgram;
use crate::volumes;

/// Whole volumes without an owner, by size, in a folder of this pool alone. What an earlier one left is never used:
/// after a power failure nobody knows whether a sandbox has written to it.
#[derive(Debug)]
pub(crate) struct Pool {
    place: PathBuf,
    cache: PathBuf,
    /// How many of a size are kept ready.
    target: usize,
    state: Arc<Mutex<State>>,
    /// The one task that makes more of them.
    filler: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct State {
    ready: BTreeMap<u64, VecDeque<PathBuf>>,
    /// Sizes that are short, in the order in which they were asked for.
    wanted: VecDeque<u64>,
    made: u64,
    filling: bool,
}

impl Pool {
    /// An empty pool below `folder`. Sizes are not known before the first of them is asked for.
    ///
    /// # Errors
    /// When there can be no folder for it.
    pub(crate) fn new(folder: &Path, cache: PathBuf, target: usize) -> Result<Self> {
        if let Err(error) = remove_tree(folder) {
            tracing::warn!(%error, "unused volumes of an earlier server are left");
        }
        // A server that is just ending may still fill its own.
        let place = folder.join(VolumeId::new().to_string());
        private_dirs(&place)
            .map_err(|error| host("configure", "the folder of fresh volumes", error))?;
        Ok(Self {
            place,
            cache,
            target,
            state: Arc::default(),
            filler: Mutex::default(),
        })
    }

    /// Moves a fresh volume of this size to `folder`, which must not exist; false when there is none. Has more of
    /// them made in any case.
    pub(crate) fn take(&self, program: &RunnerProgram, bytes: u64, folder: &Path) -> bool {
        let taken = {
            let mut state = lock(&self.state);
            let taken = state.ready.get_mut(&bytes).and_then(VecDeque::pop_front);
            if self.target > 0 && !state.wanted.contains(&bytes) {
                state.wanted.push_back(bytes);
            }
            taken
        };
        self.fill(program);
        let Some(fresh) = taken else { return false };
        match fs::rename(&fresh, folder) {
            Ok(()) => true,
            // Somebody else made the volume meanwhile, or emptied the pool's folder: it is made the long way.
            Err(_) => {
                let _ = remove_tree(&fresh);
                false
            }
        }
    }

    /// Sees to it that somebody makes what is wanted.
    fn fill(&self, program: &RunnerProgram) {
        let idle = {
            let mut state = lock(&self.state);
            let idle = !state.filling && !state.wanted.is_empty();
            state.filling |= idle;
            idle
        };
        if !idle {
            return;
        }
        let filler = Filler {
            place: self.place.clone(),
            cache: self.cache.clone(),
            target: self.target,
            state: Arc::clone(&self.state),
            program: program.clone(),
        };
        let mut tasks = lock(&self.filler);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(filler.run());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.filler).abort_all();
        // The next server removes what cannot be removed now.
        let _ = remove_tree(&self.place);
    }
}

struct Filler {
    place: PathBuf,
    cache: PathBuf,
    target: usize,
    state: Arc<Mutex<State>>,
    program: RunnerProgram,
}

impl Filler {
    /// Makes volumes until enough of every size are there.
    async fn run(self) {
        while let Some((bytes, number)) = self.next() {
            let fresh = self.place.join(number.to_string());
            match volumes::make(&self.program, &self.cache, &fresh, bytes).await {
                Ok(_) => {
                    let mut state = lock(&self.state);
                    state.ready.entry(bytes).or_default().push_back(fresh);
                }
                Err(error) => {
                    // Whoever asks gets the reason when his own volume cannot be made either.
                    tracing::warn!(%error, "no volume can be made in advance");
                    let _ = remove_tree(&fresh);
                    lock(&self.state).wanted.retain(|size| *size != bytes);
                }
            }
        }
    }

    /// The next volume to make; ends the filling when there is none.
    fn next(&self) -> Option<(u64, u64)> {
        let mut state = lock(&self.state);
        while let Some(bytes) = state.wanted.front().copied() {
            if state.ready.get(&bytes).map_or(0, VecDeque::len) < self.target {
                state.made += 1;
                return Some((bytes, state.made));
            }
            state.wanted.pop_front();
        }
        state.filling = false;
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A program that makes a volume as the runner does, or, without a place for it, does not.
    fn program(folder: &Path) -> RunnerProgram {
        let path = folder.join("runner");
        let script = "#!/bin/sh\necho volume > \"$3/v\" || exit 1\n\
                      printf '{\"ok\":{\"directory\":{\"path\":\"%s/v\"}}}\\n' \"$3\"\n";
        fs::write(&path, script).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        RunnerProgram::find(Some(path)).expect("it is there")
    }

    async fn until(pool: &Pool, bytes: u64, ready: usize) {
        let end = Instant::now() + PATIENCE;
        while lock(&pool.state).ready.get(&bytes).map_or(0, VecDeque::len) != ready {
            assert!(Instant::now() < end, "there are not {ready}");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_size_that_was_asked_for_once_is_there_the_next_time() {
        let place = tempfile::tempdir().expect("a folder");
        let program = program(place.path());
        let fresh = place.path().join("fresh");
        let cache = place.path().join("cache");
        let pool = Pool::new(&fresh, cache, 2).expect("a folder");
        let folder = |name: &str| place.path().join(name);
        assert!(!pool.take(&program, 7, &folder("a")), "there was none yet");
        until(&pool, 7, 2).await;
        assert!(pool.take(&program, 7, &folder("b")));
        assert!(folder("b").join("volume.json").is_file());
        assert!(folder("b").join("content/v").is_file());
        assert!(!pool.take(&program, 8, &folder("c")), "another size");
        for bytes in [7, 8] {
            until(&pool, bytes, 2).await;
        }
        let own = pool.place.clone();
        drop(pool);
        assert!(!own.exists(), "it leaves nothing");
        fs::create_dir_all(own.join("1")).expect("as a killed server leaves it");
        let pool = Pool::new(&fresh, place.path().join("cache"), 0).expect("a folder");
        assert!(!own.exists(), "what an earlier one left is gone");
        assert!(!pool.take(&program, 7, &folder("d")));
        assert!(lock(&pool.state).wanted.is_empty(), "none are wanted");
    }
}
