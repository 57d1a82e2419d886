//! The states of a session and the one table of moves between them.

use serde::{Deserialize, Serialize};

/// Where a session stands. `archived` is a flag beside it, not a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SessionState {
    /// Its sandbox and engine are being made.
    Creating,
    /// Its engine waits for input.
    Ready,
    /// A turn runs.
    Busy,
    /// The running turn is being stopped.
    Interrupting,
    /// The engine waits for a person's answer: in a turn, or for a child run after its parent's turn.
    WaitingInput,
    /// No turn runs, but work that the engine left in the background does.
    BackgroundRunning,
    /// Its sandbox is released; the next input makes a new one.
    Hibernated,
    /// It cannot go on by itself; the reason says what is missing.
    RecoveryRequired,
    /// It ended and can only be read, started anew or deleted.
    Terminated,
    /// It is gone.
    Deleted,
}

use SessionState::{
    BackgroundRunning, Busy, Creating, Deleted, Hibernated, Interrupting, Ready, RecoveryRequired,
    Terminated, WaitingInput,
};

/// Every allowed move. Deletion is legal from every state, so that nothing can be stuck.
pub const TRANSITIONS: &[(SessionState, SessionState)] = &[
    (Creating, Ready),
    (Creating, Hibernated),
    (Creating, RecoveryRequired),
    (Creating, Terminated),
    (Creating, Deleted),
    (Ready, Busy),
    (Ready, BackgroundRunning),
    (Ready, WaitingInput),
    (Ready, Hibernated),
    (Ready, RecoveryRequired),
    (Ready, Terminated),
    (Ready, Deleted),
    (Busy, Ready),
    (Busy, WaitingInput),
    (Busy, Interrupting),
    (Busy, BackgroundRunning),
    (Busy, Hibernated),
    (Busy, RecoveryRequired),
    (Busy, Terminated),
    (Busy, Deleted),
    (WaitingInput, Busy),
    (WaitingInput, Ready),
    (WaitingInput, BackgroundRunning),
    (WaitingInput, Interrupting),
    (WaitingInput, Hibernated),
    (WaitingInput, RecoveryRequired),
    (WaitingInput, Terminated),
    (WaitingInput, Deleted),
    (Interrupting, Ready),
    (Interrupting, BackgroundRunning),
    (Interrupting, WaitingInput),
    (Interrupting, Hibernated),
    (Interrupting, RecoveryRequired),
    (Interrupting, Terminated),
    (Interrupting, Deleted),
    (BackgroundRunning, Ready),
    (BackgroundRunning, Busy),
    (BackgroundRunning, WaitingInput),
    (BackgroundRunning, Hibernated),
    (BackgroundRunning, RecoveryRequired),
    (BackgroundRunning, Terminated),
    (BackgroundRunning, Deleted),
    (Hibernated, Creating),
    (Hibernated, RecoveryRequired),
    (Hibernated, Terminated),
    (Hibernated, Deleted),
    (RecoveryRequired, Creating),
    (RecoveryRequired, Terminated),
    (RecoveryRequired, Deleted),
    (Terminated, Creating),
    (Terminated, Deleted),
];

/// Whether the table allows this move.
#[must_use]
pub fn may_go(from: SessionState, to: SessionState) -> bool {
    TRANSITIONS.contains(&(from, to))
}

impl SessionState {
    /// Every state.
    pub const ALL: [Self; 10] = [
        Creating,
        Ready,
        Busy,
        Interrupting,
        WaitingInput,
        BackgroundRunning,
        Hibernated,
        RecoveryRequired,
        Terminated,
        Deleted,
    ];

    /// Whether a turn is open in this state.
    #[must_use]
    pub const fn has_turn(self) -> bool {
        matches!(self, Busy | Interrupting | WaitingInput)
    }

    /// Whether new input is taken in this state.
    #[must_use]
    pub const fn takes_input(self) -> bool {
        !matches!(self, RecoveryRequired | Terminated | Deleted)
    }

    /// Its name on the wire and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Creating => "CREATING",
            Ready => "READY",
            Busy => "BUSY",
            Interrupting => "INTERRUPTING",
            WaitingInput => "WAITING_INPUT",
            BackgroundRunning => "BACKGROUND_RUNNING",
            Hibernated => "HIBERNATED",
            RecoveryRequired => "RECOVERY_REQUIRED",
            Terminated => "TERMINATED",
            Deleted => "DELETED",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn reachable(from: SessionState) -> BTreeSet<SessionState> {
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(state) = open.pop() {
            for &(_, to) in TRANSITIONS.iter().filter(|(from, _)| *from == state) {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    }

    #[test]
    fn every_state_can_reach_ready_or_deleted() {
        for state in SessionState::ALL {
            let reach = reachable(state);
            assert!(reach.contains(&Deleted), "{state:?} is stuck");
            if state != Deleted {
                assert!(reach.contains(&Ready), "{state:?} never works again");
            }
        }
    }

    #[test]
    fn every_state_is_reached_from_creating_and_deleted_is_final() {
        assert_eq!(reachable(Creating).len(), SessionState::ALL.len());
        assert!(TRANSITIONS.iter().all(|(from, _)| *from != Deleted));
    }

    #[test]
    fn the_table_has_no_row_twice_and_no_move_to_itself() {
        let rows: BTreeSet<_> = TRANSITIONS.iter().collect();
        assert_eq!(rows.len(), TRANSITIONS.len());
        assert!(TRANSITIONS.iter().all(|(from, to)| from != to));
    }

    #[test]
    fn a_state_has_one_name() {
        for state in SessionState::ALL {
            let json = serde_json::to_string(&state).expect("a state is JSON");
            assert_eq!(json, format!("\"{}\"", state.as_str()));
        }
    }
}
