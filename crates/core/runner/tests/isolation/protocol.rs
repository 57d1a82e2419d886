//! What a test says to the driver of its box, one JSON line each way.

use astrabox_runner_core::isolation::Posture;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Runs a program to its end.
    Run {
        argv: Vec<String>,
        env: Vec<(String, String)>,
        cwd: String,
    },
    /// Starts a program and does not wait.
    Start {
        argv: Vec<String>,
    },
    /// Waits for the end of a started program.
    Wait {
        tag: u64,
    },
    Signal {
        pid: u32,
        signal: i32,
        group: bool,
    },
    Freeze,
    Thaw,
    KillAll,
    Stats,
    Posture,
    PollLimits,
    /// Takes one connection on the egress listener and returns what came over it.
    Accept,
    /// Writes a file as the box's owner, by a path in the box.
    Put {
        path: String,
        content: String,
    },
    Destroy,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Created {
        init_pid: i32,
        init_start_time: u64,
        host_owner: (u32, u32),
    },
    Failed(String),
    Started {
        tag: u64,
        pid: u32,
    },
    Ended(Ended),
    Stats(Numbers),
    Posture(Box<Posture>),
    Breach(Option<String>),
    Text(String),
    Done,
}

/// How a program in a box ended, and what it said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) memory_limit: bool,
    /// Set if it never ran: stage and errno.
    pub(crate) spawn_failure: Option<(String, i32)>,
    /// Set if the whole box died.
    pub(crate) box_gone: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Numbers {
    pub(crate) memory: Option<u64>,
    pub(crate) pids: Option<u64>,
    pub(crate) cpu_usec: Option<u64>,
    pub(crate) oom_kills: u64,
    pub(crate) pids_denied: u64,
    pub(crate) disk_used: Option<u64>,
    pub(crate) disk_limit: Option<u64>,
}
