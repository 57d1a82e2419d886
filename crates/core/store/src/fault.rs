//! Points at which a test can stop a server: before a write, and after it is on disk and before its caller knows.

use std::sync::Arc;

use futures::future::BoxFuture;

/// When a fault point is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The write has not begun.
    BeforeWrite,
    /// The write is on disk, or was refused; its caller does not know yet.
    AfterWrite,
}

/// What a test does there. A future that never ends stops the writer's caller at this point.
pub type FaultPoint = Arc<dyn Fn(Moment) -> BoxFuture<'static, ()> + Send + Sync>;
