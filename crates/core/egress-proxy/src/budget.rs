//! How much of request bodies may be held back at once, for one sandbox: a sandbox must not fill the role's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most that is held for one sandbox, in bytes. What comes beyond it is not held, but goes on as it is looked
/// through.
const MOST: usize = 32 * 1024 * 1024;

/// What a piece costs besides its bytes, however few those are.
const PIECE: usize = 64;

/// What one sandbox has left.
pub(crate) struct Budget(AtomicUsize);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicUsize::new(MOST))
    }
}

/// What one request has taken. It gives that back when it is dropped.
pub(crate) struct Share {
    budget: Arc<Budget>,
    taken: usize,
}

impl Share {
    pub(crate) fn of(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            taken: 0,
        }
    }

    /// Takes what a piece costs; whether there is room for another one.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let cost = bytes + PIECE;
        self.taken += cost;
        let left = &self.budget.0;
        // A piece that was read is there, so it counts even where it is too much: below zero is far above the most.
        left.fetch_sub(cost, Ordering::Relaxed).wrapping_sub(cost) <= MOST
    }

    /// What was taken, the cost of the pieces included.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_by_bytes_and_by_pieces_and_given_back() {
        let budget = Arc::new(Budget::default());
        let mut one = Share::of(&budget);
        assert!(one.take(MOST - 2 * PIECE));
        let mut other = Share::of(&budget);
        assert!(other.take(0));
        assert!(!other.take(0));
        assert!(!one.take(MOST));
        drop(one);
        assert!(other.take(0));
        let mut many = Share::of(&budget);
        let pieces = (0..).take_while(|_| many.take(1)).count();
        assert!(pieces <= MOST / PIECE, "{pieces}");
        drop((other, many));
        assert_eq!(budget.0.load(Ordering::Relaxed), MOST);
    }
}
