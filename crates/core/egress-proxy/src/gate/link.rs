//! One connection to a role.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use astrabox_sandbox::{Error, ErrorKind};
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::control::{MAX_VERSION, MIN_VERSION, RefusalKind, Reply, Request, RoleInfo, frame};

/// The instance of those who only look: no sandbox ever belongs to it.
pub(super) const OBSERVER: &str = "observer";

/// Why a role was not reached, or did not do as asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// Nobody listens.
    #[error("no egress role runs for this directory")]
    Absent,
    /// The socket is somebody else's.
    #[error("the control socket belongs to another user")]
    Impostor,
    /// It does not do it.
    #[error("{message}")]
    Refused { kind: RefusalKind, message: String },
    /// It cannot be started.
    #[error("the egress role cannot be started: {0}")]
    Start(String),
    /// The connection broke.
    #[error("the connection to the egress role broke")]
    Broken(#[source] io::Error),
    /// The message cannot be said in the protocol.
    #[error("{0}")]
    Invalid(String),
    /// It takes too long.
    #[error("the egress role does not answer")]
    Deadline,
}

impl LinkError {
    /// Whether another attempt, on a new connection, may go better.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Absent)
    }

    pub(super) fn into_sandbox_error(self, operation: &'static str) -> Error {
        let kind = match &self {
            Self::Absent | Self::Broken(_) => ErrorKind::Detached,
            Self::Deadline => ErrorKind::DeadlineExceeded,
            Self::Invalid(_) => ErrorKind::Invalid,
            Self::Impostor => ErrorKind::Refused,
            Self::Start(_) => ErrorKind::Internal,
            Self::Refused { kind, .. } => match kind {
                RefusalKind::NotOpen => ErrorKind::NotFound,
                RefusalKind::Invalid => ErrorKind::Invalid,
                RefusalKind::Version => ErrorKind::Refused,
            },
        };
        Error::new(kind, operation, self.to_string()).with_source(self)
    }
}

/// A connection that has shaken hands.
pub(super) struct Link {
    stream: UnixStream,
    pub(super) info: RoleInfo,
}

impl Link {
    pub(super) async fn connect(socket: &Path, instance: &str) -> Result<Self, LinkError> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => LinkError::Absent,
                _ => LinkError::Broken(error),
            })?;
        // Whoever gets our listeners must be the role: the user that started it made its socket.
        let peer = stream.peer_cred().map_err(LinkError::Broken)?.uid();
        if peer != 0 && peer != rustix::process::geteuid().as_raw() {
            return Err(LinkError::Impostor);
        }
        let hello = Request::Hello {
            min_version: MIN_VERSION,
            max_version: MAX_VERSION,
            client: concat!("astrabox/", env!("CARGO_PKG_VERSION")).to_owned(),
            instance: instance.to_owned(),
        };
        match exchange(&stream, &hello, None).await? {
            Reply::Hello { version, role } if (MIN_VERSION..=MAX_VERSION).contains(&version) => {
                Ok(Self { stream, info: role })
            }
            reply => Err(unexpected(reply)),
        }
    }

    /// Asks and waits for the answer, which is no refusal.
    pub(super) async fn call(
        &mut self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Reply, LinkError> {
        match exchange(&self.stream, request, descriptor).await? {
            refused @ Reply::Refused { .. } => Err(unexpected(refused)),
            reply => Ok(reply),
        }
    }

    /// Returns when the role has ended the connection: it says nothing by itself.
    pub(super) async fn lost(&self) {
        let peek = || {
            let mut byte = [MaybeUninit::<u8>::uninit()];
            recv(self.stream.as_fd(), &mut byte, RecvFlags::PEEK)?;
            Ok(())
        };
        // An end, an error, or words that nobody asked for: of no use any more in each case.
        let _ = self.stream.async_io(Interest::READABLE, peek).await;
    }
}

async fn exchange(
    stream: &UnixStream,
    request: &Request,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<Reply, LinkError> {
    frame::send(stream, request, descriptor)
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => LinkError::Invalid(error.to_string()),
            _ => LinkError::Broken(error),
        })?;
    match frame::receive::<Reply>(stream).await {
        Ok(Some((reply, _))) => Ok(reply),
        Ok(None) => Err(LinkError::Broken(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(LinkError::Broken(error)),
    }
}

pub(super) fn unexpected(reply: Reply) -> LinkError {
    match reply {
        Reply::Refused { kind, message } => LinkError::Refused { kind, message },
        _ => LinkError::Broken(io::ErrorKind::InvalidData.into()),
    }
}
