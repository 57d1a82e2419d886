//! Waiting for work that blocks a thread.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::tree::Control;

/// How often bytes are told.
const TICK: Duration = Duration::from_millis(500);

/// Waits for work on a tree and tells how far it is, done and total; stops it when this is dropped.
pub(crate) async fn follow<T>(
    mut work: JoinHandle<T>,
    control: Arc<Control>,
    tell: &(dyn Fn(u64, u64) + Send + Sync),
) -> T {
    struct Stop(Arc<Control>);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.stop.store(true, Ordering::Relaxed);
        }
    }
    let stop = Stop(control);
    let mut ticks = ticks();
    loop {
        tokio::select! {
            done = joined(&mut work) => return done,
            _ = ticks.tick() => tell(
                stop.0.done.load(Ordering::Relaxed),
                stop.0.total.load(Ordering::Relaxed),
            ),
        }
    }
}

/// When to tell bytes.
pub(crate) fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The result of blocking work; a panic in it goes on here.
pub(crate) async fn joined<T>(work: impl Future<Output = Result<T, JoinError>>) -> T {
    match work.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // Nobody aborts it but a runtime that shuts down, which drops this as well.
            Err(_) => pending().await,
        },
    }
}
