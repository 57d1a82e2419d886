//! What a sandbox is, in the seam's words.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use astrabox_runner_protocol as protocol;
use astrabox_sandbox::{Diagnostics, LimitState, Posture, SandboxInfo, SandboxState};

use crate::folder::{Folder, Record};

/// How much of a runner's log diagnostics show, bytes.
const LOG_TAIL: u64 = 16 << 10;

pub(crate) fn info(record: Record, state: SandboxState) -> SandboxInfo {
    SandboxInfo {
        id: record.id,
        claim: record.claim,
        state,
        created_at: record.created_at,
        image: record.image,
        labels: record.labels,
    }
}

/// What is known, from the runner's own word or, when it gives none, from what it left on disk.
pub(crate) fn diagnostics(
    folder: &Folder,
    record: &Record,
    state: SandboxState,
    status: Option<protocol::BoxStatus>,
) -> Diagnostics {
    let mut summary = format!("state: {state:?}\nmade whole: {}\n", record.complete);
    // Writing to a text cannot fail.
    if let Ok(Some(process)) = folder.runner() {
        let alive = process.is_alive().ok();
        let _ = writeln!(summary, "runner: process {}, alive: {alive:?}", process.pid);
    }
    match status {
        Some(status) => {
            for process in status.processes {
                let (name, state, exit) = (process.name, process.state, process.exit);
                let _ = writeln!(summary, "process {name}: {state:?} {exit:?}");
            }
        }
        None => last_words(folder, &mut summary),
    }
    let log = tail(&folder.state().log()).unwrap_or_default();
    Diagnostics {
        summary,
        log: String::from_utf8_lossy(&log).into_owned(),
    }
}

/// The processes of a runner that does not answer, as it wrote them down.
fn last_words(folder: &Folder, summary: &mut String) {
    let state = folder.state();
    for record in state.read_processes().unwrap_or_default() {
        let next = |stream| {
            let range = state.output_range(&record.name, stream);
            range.map_or(0, |range| range.next_offset)
        };
        let _ = writeln!(
            summary,
            "process {}: last known {:?} {:?}, stdout to {}, stderr to {}",
            record.name,
            record.state,
            record.exit,
            next(protocol::OutputStream::Stdout),
            next(protocol::OutputStream::Stderr),
        );
    }
}

fn tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut text = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut text)?;
    Ok(text)
}

pub(crate) fn posture(posture: protocol::Posture) -> Posture {
    let limit = |limit: &protocol::LimitPosture| match limit.enforcement {
        protocol::Enforcement::Hard => LimitState::Hard,
        protocol::Enforcement::Soft => LimitState::Soft,
        protocol::Enforcement::None => LimitState::None,
    };
    let capabilities = if posture.no_capabilities {
        Vec::new()
    } else {
        vec!["unknown".to_owned()]
    };
    Posture {
        technology: "namespaces".to_owned(),
        host_uid: posture.host_uid,
        rootless: posture.rootless,
        permission_level: posture.level,
        seccomp: posture.seccomp,
        no_new_privileges: posture.no_new_privileges,
        capabilities,
        loopback_only: posture.loopback_only,
        memory: limit(&posture.memory),
        pids: limit(&posture.pids),
        cpu: limit(&posture.cpu),
        disk: limit(&posture.disk),
        notes: posture.notes,
    }
}
