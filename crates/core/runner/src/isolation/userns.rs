//! User namespaces that map the box's one user to its one user on the host, and nobody else.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use super::error::{SetupError, SetupStep};
use super::spec::BOX_ID;
use super::sys::Stub;

/// Makes a namespace that maps [`BOX_ID`] to a host id, as root, and returns it without entering.
///
/// The box enters it last, after its mounts were made outside; the volume's mount uses the same map.
pub(super) fn create(host_id: u32) -> io::Result<OwnedFd> {
    let stub = Stub::start()?;
    let proc = format!("/proc/{}", stub.pid);
    let map = format!("{BOX_ID} {host_id} 1\n");
    fs::write(format!("{proc}/setgroups"), "deny")?;
    fs::write(format!("{proc}/uid_map"), &map)?;
    fs::write(format!("{proc}/gid_map"), &map)?;
    Ok(fs::File::open(format!("{proc}/ns/user"))?.into())
}

/// Maps the ids of whoever started the runner, from inside a namespace just made without privilege.
pub(super) fn map_own(uid: u32, gid: u32) -> Result<(), SetupError> {
    let write = |file: &str, content: String| {
        fs::write(format!("/proc/self/{file}"), content).setup("map the box's user")
    };
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{BOX_ID} {uid} 1\n"))?;
    write("gid_map", format!("{BOX_ID} {gid} 1\n"))
}
