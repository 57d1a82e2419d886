//! Points at which a test can stop a server: before a write, and after it is on disk and before its caller knows.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::SessionCommit;

/// When a fault point is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The write has not begun.
    BeforeWrite,
    /// The write is on disk, or was refused; its caller does not know yet.
    AfterWrite,
}

/// What a write is, in words: the names of the events that it adds, and `checkpoint` when it moves the engine's.
pub type Words = Vec<&'static str>;

/// What a test does there. A future that never ends stops the writer's caller at this point.
pub type FaultPoint = Arc<dyn Fn(Moment, Words) -> BoxFuture<'static, ()> + Send + Sync>;

pub(crate) fn words(commit: &SessionCommit) -> Words {
    let mut words: Words = commit
        .events
        .iter()
        .map(|event| event.payload.name())
        .collect();
    if matches!(commit.runtime.checkpoint, Some(Some(_))) {
        words.push("checkpoint");
    }
    words
}
