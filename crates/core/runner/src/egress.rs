//! Hands out the box's egress listener.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use astrabox_runner_protocol::egress::LISTENER_TAG;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::net::{UnixListener, UnixStream};

/// How long to wait when no connection can be accepted: descriptors may be short for a moment.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Gives a copy of `listener` to whoever connects, until dropped. The socket's directory lets in only the
/// runner's own user.
pub(crate) async fn hand_out(socket: UnixListener, listener: OwnedFd) {
    loop {
        match socket.accept().await {
            // One byte fits into a fresh socket, so this neither blocks nor waits. Who has gone already does
            // not want it any more.
            Ok((caller, _)) => drop(send(&caller, &listener)),
            Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
        }
    }
}

fn send(caller: &UnixStream, listener: &OwnedFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [LISTENER_TAG];
    sendmsg(
        caller,
        &[IoSlice::new(&byte)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use astrabox_runner_protocol::egress::take_listener;
    use rustix::fs::fstat;

    use super::*;

    #[tokio::test]
    async fn the_listener_is_handed_out_as_often_as_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("egress.sock");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let inode = fstat(&listener).unwrap().st_ino;
        let mut server = tokio::task::JoinSet::new();
        server.spawn(hand_out(
            UnixListener::bind(&path).unwrap(),
            listener.into(),
        ));
        for _ in 0..3 {
            let copy = take_listener(&path, Duration::from_secs(5)).await.unwrap();
            assert_eq!(fstat(&copy).unwrap().st_ino, inode);
        }
    }
}
