//! Named points at which answers wait for the test.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch;

#[derive(Default)]
struct State {
    open: BTreeSet<String>,
    waiting: BTreeMap<String, usize>,
}

/// All gates of one server. A gate that was released once stays open.
pub(crate) struct Gates(watch::Sender<State>);

impl Gates {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(State::default()))
    }

    /// Waits until `name` is released. Dropping the future gives the place up.
    pub(crate) async fn pass(&self, name: &str) {
        let _place = Place::take(self, name);
        let mut state = self.0.subscribe();
        // The sender lives in `self`, so the channel cannot close under us.
        let _ = state.wait_for(|state| state.open.contains(name)).await;
    }

    /// Opens `name` for all who wait there and all who come later.
    pub(crate) fn release(&self, name: &str) {
        self.0.send_modify(|state| {
            state.open.insert(name.to_owned());
        });
    }

    /// Waits until somebody waits at `name`.
    pub(crate) async fn until_held(&self, name: &str) {
        let mut state = self.0.subscribe();
        let _ = state
            .wait_for(|state| state.waiting.contains_key(name))
            .await;
    }

    /// Waits until nobody waits at `name`.
    pub(crate) async fn until_left(&self, name: &str) {
        let mut state = self.0.subscribe();
        let _ = state
            .wait_for(|state| !state.waiting.contains_key(name))
            .await;
    }

    /// The names at which somebody waits now.
    pub(crate) fn held(&self) -> Vec<String> {
        self.0.borrow().waiting.keys().cloned().collect()
    }
}

/// Somebody waits at a gate as long as this lives.
struct Place<'a> {
    gates: &'a Gates,
    name: &'a str,
}

impl<'a> Place<'a> {
    fn take(gates: &'a Gates, name: &'a str) -> Self {
        gates.0.send_modify(|state| {
            *state.waiting.entry(name.to_owned()).or_default() += 1;
        });
        Self { gates, name }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.gates.0.send_modify(|state| {
            if let Some(count) = state.waiting.get_mut(self.name) {
                *count -= 1;
                if *count == 0 {
                    state.waiting.remove(self.name);
                }
            }
        });
    }
}
