//! One task per session owns it: every change goes through its mailbox, every write carries its epoch.

mod commands;
mod credentials;
mod draft;
mod finish;
mod owner;
mod serve;
mod start;
mod step;

use std::future::Future;
use std::sync::Arc;

use astrabox_store::Key;
use astrabox_types::{
    ChildRunId, ChildRunState, ContentPart, ErrorReason, InputId, InteractionAnswer, InteractionId,
    SandboxId, SessionId, TurnId,
};
use tokio::sync::{mpsc, oneshot};

use crate::hub::Hub;
use crate::manager::Manager;
use crate::{Error, Result};

/// Commands that may wait in a mailbox; more make their callers wait.
const MAILBOX: usize = 64;

type Reply<T> = oneshot::Sender<Result<T>>;

/// What a session's owner is asked for.
pub(crate) enum Command {
    SendInput {
        key: Option<Key>,
        content: Vec<ContentPart>,
        reply: Reply<(InputId, u64)>,
    },
    Hub {
        reply: Reply<Arc<Hub>>,
    },
    Interrupt {
        key: Option<Key>,
        reply: Reply<Option<TurnId>>,
    },
    Respond {
        key: Option<Key>,
        actor: String,
        interaction: InteractionId,
        answer: InteractionAnswer,
        reply: Reply<u64>,
    },
    SetMode {
        key: Option<Key>,
        mode: String,
        reply: Reply<Option<String>>,
    },
    StopChild {
        key: Option<Key>,
        run: ChildRunId,
        reply: Reply<ChildRunState>,
    },
    /// The credentials have changed.
    Credentials {
        reply: Reply<()>,
    },
    Release {
        key: Option<Key>,
        reply: Reply<Option<SandboxId>>,
    },
    Recover {
        key: Option<Key>,
        reply: Reply<()>,
    },
    Archive {
        key: Option<Key>,
        reply: Reply<()>,
    },
    Delete {
        key: Option<Key>,
        reply: Reply<()>,
    },
}

/// The way to a session's owner.
#[derive(Clone)]
pub(crate) struct SessionHandle {
    mailbox: mpsc::Sender<Command>,
}

impl SessionHandle {
    pub(crate) fn is_ended(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Sends a command and waits for its answer.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        let gone = || {
            Error::new(
                ErrorReason::Draining,
                "the session's owner let go of it; retry",
            )
        };
        let (reply, answer) = oneshot::channel();
        self.mailbox
            .send(command(reply))
            .await
            .map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// A new owner: the way to it, and its task.
pub(crate) fn begin(
    manager: Arc<Manager>,
    id: SessionId,
) -> (SessionHandle, impl Future<Output = ()> + Send) {
    let (sender, mailbox) = mpsc::channel(MAILBOX);
    (
        SessionHandle { mailbox: sender },
        owner::run(manager, id, mailbox),
    )
}
