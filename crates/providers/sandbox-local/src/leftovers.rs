//! What could still be there of a sandbox whose folder is gone.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Whether a process of this host was started as the runner of this spec: the second observation of an end,
/// independent of anything that the provider wrote down.
pub(crate) fn runner_lives(spec: &Path) -> io::Result<bool> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // Processes come and go meanwhile.
        let Ok(line) = fs::read(entry.path().join("cmdline")) else {
            continue;
        };
        if line
            .split(|byte| *byte == 0)
            .any(|argument| argument == spec.as_os_str().as_bytes())
        {
            return Ok(true);
        }
    }
    Ok(false)
}
