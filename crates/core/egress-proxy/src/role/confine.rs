//! Gives up what the role does not need. Nothing here can be taken back.

use std::io;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, setsid,
};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::RoleError;
use super::user::Identity;

/// A session of its own, so that signals to the server's terminal do not reach the role.
pub(super) fn own_session() {
    // It fails for the leader of a process group, whom a shell has set apart already.
    let _ = setsid();
}

/// Gives up every right, for good.
pub(super) fn confine(identity: Option<Identity>) -> Result<(), RoleError> {
    let done = |what, result: rustix::io::Result<()>| {
        result.map_err(|error| RoleError::Io {
            what,
            source: error.into(),
        })
    };
    if threads().map_err(RoleError::io("count the threads"))? != 1 {
        return Err(RoleError::Threads);
    }
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    done("forbid core dumps", setrlimit(Resource::Core, none))?;
    let files = getrlimit(Resource::Nofile);
    let files = Rlimit {
        current: files.maximum,
        ..files
    };
    done(
        "raise the limit of descriptors",
        setrlimit(Resource::Nofile, files),
    )?;
    if let Some(identity) = identity {
        let (uid, gid) = (identity.uid, identity.gid);
        done("give up the groups", set_thread_groups(&[]))?;
        done("become the role's group", set_thread_res_gid(gid, gid, gid))?;
        done("become the role's user", set_thread_res_uid(uid, uid, uid))?;
        let root = rustix::fs::Uid::ROOT;
        if set_thread_res_uid(root, root, root).is_ok() {
            return Err(RoleError::Io {
                what: "give up root's rights",
                source: io::ErrorKind::PermissionDenied.into(),
            });
        }
    }
    done("forbid new privileges", set_no_new_privs(true))?;
    // Last: changing the user sets it anew.
    let hidden = DumpableBehavior::NotDumpable;
    done("forbid tracing", set_dumpable_behavior(hidden))
}

/// How many threads the process has: most of what is given up here is each thread's own.
fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}
