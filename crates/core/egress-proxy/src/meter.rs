//! Counts what passes, and knows for how long nothing has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

/// What one sandbox has done so far. Kept in memory only; the audit log is the record.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    allowed: AtomicU64,
    denied: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    /// Connections that the sandbox has open to the proxy.
    pub(crate) open: AtomicUsize,
}

/// A reading of a sandbox's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Requests that were let through.
    pub allowed: u64,
    /// Requests that were refused.
    pub denied: u64,
    /// Bytes sent to upstreams.
    pub bytes_up: u64,
    /// Bytes of upstreams sent to the sandbox.
    pub bytes_down: u64,
    /// Connections that the sandbox has open to the proxy.
    pub open: usize,
}

impl Counters {
    pub(crate) fn allow(&self) {
        self.allowed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn deny(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        Counts {
            allowed: self.allowed.load(Ordering::Relaxed),
            denied: self.denied.load(Ordering::Relaxed),
            bytes_up: self.bytes_up.load(Ordering::Relaxed),
            bytes_down: self.bytes_down.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
        }
    }
}

/// The bytes of one exchange, and when the last of them passed.
pub(crate) struct Meter {
    counters: Arc<Counters>,
    began: Instant,
    /// Microseconds from `began` to the last byte.
    last: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

impl Meter {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            began: Instant::now(),
            last: AtomicU64::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        }
    }

    /// Something moved, be it only into a buffer.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    pub(crate) fn sent_up(&self, bytes: usize) {
        self.touch();
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
        self.counters
            .bytes_up
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent_down(&self, bytes: usize) {
        self.touch();
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
        self.counters
            .bytes_down
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes up, bytes down, and the time since it began.
    pub(crate) fn totals(&self) -> (u64, u64, Duration) {
        (
            self.up.load(Ordering::Relaxed),
            self.down.load(Ordering::Relaxed),
            self.began.elapsed(),
        )
    }

    /// Returns when nothing has moved for `limit`.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let last = self.began + Duration::from_micros(self.last.load(Ordering::Relaxed));
            let end = last + limit;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_meter_is_idle_only_after_the_last_byte() {
        let limit = Duration::from_secs(10);
        let meter = Meter::new(Arc::default());
        let began = Instant::now();
        tokio::join!(meter.idle(limit), async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            meter.sent_up(3);
            tokio::time::sleep(Duration::from_secs(6)).await;
            meter.sent_down(4);
        });
        assert_eq!(began.elapsed(), Duration::from_secs(22));
        assert_eq!(meter.totals(), (3, 4, Duration::from_secs(22)));
    }
}
