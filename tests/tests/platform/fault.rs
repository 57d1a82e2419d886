//! Points at which a server can be stopped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_store::{FaultPoint, Moment};
use tokio::sync::watch;

/// Stops one server at one of its points. A clone is the same.
#[derive(Clone)]
pub(crate) struct Faults(Arc<Inner>);

struct Inner {
    state: Mutex<Points>,
    reached: watch::Sender<Option<String>>,
}

#[derive(Default)]
struct Points {
    passed: Vec<String>,
    stop_at: Option<usize>,
}

impl Faults {
    /// Points that count and never stop.
    pub(crate) fn none() -> Self {
        Self::at(None)
    }

    /// Stops at the point with this number, from 0.
    pub(crate) fn at(stop_at: impl Into<Option<usize>>) -> Self {
        let points = Points {
            passed: Vec::new(),
            stop_at: stop_at.into(),
        };
        Self(Arc::new(Inner {
            state: Mutex::new(points),
            reached: watch::Sender::new(None),
        }))
    }

    /// The points that were passed, in order.
    pub(crate) fn passed(&self) -> Vec<String> {
        self.points().passed.clone()
    }

    /// Waits until the server stands still and tells where.
    pub(crate) async fn reached(&self) -> String {
        let mut reached = self.0.reached.subscribe();
        let place = reached.wait_for(Option::is_some).await;
        place
            .expect("the sender is ours")
            .clone()
            .unwrap_or_default()
    }

    fn points(&self) -> MutexGuard<'_, Points> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A point. Once one has stopped, all do: the server stands still as a whole.
    pub(crate) async fn pass(&self, label: &str) {
        let stop = {
            let mut points = self.points();
            points.passed.push(label.to_owned());
            points.stop_at.is_some_and(|at| points.passed.len() > at)
        };
        if stop {
            self.0.reached.send_if_modified(|place| {
                let first = place.is_none();
                if first {
                    *place = Some(label.to_owned());
                }
                first
            });
            std::future::pending().await
        }
    }

    /// The points of a store.
    pub(crate) fn of_store(&self) -> FaultPoint {
        let faults = self.clone();
        Arc::new(move |moment, _| {
            let faults = faults.clone();
            Box::pin(async move {
                let label = match moment {
                    Moment::BeforeWrite => "before write",
                    Moment::AfterWrite => "after write",
                };
                faults.pass(label).await;
            })
        })
    }
}
