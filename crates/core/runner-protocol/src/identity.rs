//! Names one process for ever: a process id alone is used again.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// One process of one boot of one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessIdentity {
    /// Its process id.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat` (proc(5)): clock ticks from boot to its start.
    pub start_time: u64,
    /// The kernel's boot id.
    pub boot_id: String,
}

impl ProcessIdentity {
    /// The identity of the process that now has this id; an error of kind `NotFound` if none has.
    pub fn of(pid: u32) -> io::Result<Self> {
        let (_, start_time) = state_and_start(pid)?;
        Ok(Self {
            pid,
            start_time,
            boot_id: boot_id()?,
        })
    }

    /// Whether this very process is there and not a zombie. An error says that one cannot tell.
    pub fn is_alive(&self) -> io::Result<bool> {
        if self.boot_id != boot_id()? {
            return Ok(false);
        }
        match state_and_start(self.pid) {
            Ok((state, start)) => Ok(start == self.start_time && !matches!(state, b'Z' | b'X')),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // The process went away between open and read.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// The id of this boot of the kernel.
pub fn boot_id() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim_end().to_owned())
}

/// When this boot began, to the second, by the host's clock as it is set now (`btime` of `/proc/stat`, proc(5)).
pub(crate) fn boot_time() -> io::Result<SystemTime> {
    let stat = fs::read_to_string("/proc/stat")?;
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let seconds = seconds.and_then(|seconds| seconds.trim().parse().ok());
    let seconds =
        seconds.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "odd /proc/stat"))?;
    Ok(UNIX_EPOCH + Duration::from_secs(seconds))
}

fn state_and_start(pid: u32) -> io::Result<(u8, u64)> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(&stat).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "odd /proc stat"))
}

/// Field 2 is the program's name in parentheses and may itself hold parentheses and spaces, so the
/// fields are counted from the last one.
fn parse_stat(stat: &[u8]) -> Option<(u8, u64)> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 2;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // Field 3 is the state, so field 22 is the 19th after it.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_parentheses_does_not_shift_the_fields() {
        let stat = b"7 (a) R 1 (b)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2 3\n";
        assert_eq!(parse_stat(stat), Some((b'S', 98765)));
        assert_eq!(parse_stat(b"7 (cut"), None);
    }

    #[test]
    fn this_process_is_alive_and_its_namesakes_are_not() {
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        assert!(me.is_alive().unwrap());
        for other in [
            ProcessIdentity {
                start_time: me.start_time + 1,
                ..me.clone()
            },
            ProcessIdentity {
                boot_id: "another".into(),
                ..me.clone()
            },
            ProcessIdentity {
                pid: u32::MAX,
                ..me.clone()
            },
        ] {
            assert!(!other.is_alive().unwrap(), "{other:?}");
        }
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while identity.is_alive().unwrap() {
            assert!(std::time::Instant::now() < until, "`true` did not end");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!identity.is_alive().unwrap());
    }
}
