//! The box's network: a loopback, and on it the one listener that leads out.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use super::error::{SetupError, SetupStep};
use super::sys;

const BACKLOG: i32 = 512;

/// Brings the loopback up and binds the egress listener, inside the new network namespace.
///
/// Whoever accepts on it knows which box is calling: nothing else can reach it.
pub(super) fn open(port: u16) -> Result<OwnedFd, SetupError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
        .setup("make the egress listener")?;
    sys::loopback_up(listener.as_fd()).setup("bring the loopback up")?;
    sockopt::set_socket_reuseaddr(&listener, true).setup("set up the egress listener")?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    bind(&listener, &address).setup("bind the egress listener")?;
    listen(&listener, BACKLOG).setup("listen for egress")?;
    Ok(listener)
}
