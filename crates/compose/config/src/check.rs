//! What the types do not say.

use std::path::Path;
use std::time::Duration;

use crate::{Config, ConfigError};

// A socket path has 108 bytes (unix(7)); the egress role and the runners put up to 46 of their own below run_dir.
const MAX_RUN_DIR_BYTES: usize = 60;
const MAX_SOCKET_BYTES: usize = 107;

impl Config {
    /// Checks what the types do not say; all that is wrong is told at once.
    ///
    /// # Errors
    /// [`ConfigError::Refused`] with one line a problem.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::default();
        self.check_paths(&mut problems);
        self.check_server(&mut problems);
        self.check_sessions(&mut problems);
        self.check_limits(&mut problems);
        problems.into_result()
    }

    fn check_paths(&self, problems: &mut Problems) {
        problems.absolute("state_dir", Some(&self.state_dir));
        problems.absolute("run_dir", Some(&self.run_dir));
        problems.absolute("cache_dir", Some(&self.cache_dir));
        problems.absolute("server.socket", self.server.socket.as_deref());
        problems.absolute("store.path", self.store.path.as_deref());
        problems.absolute("egress.program", self.egress.program.as_deref());
        problems.absolute("images.cache_dir", Some(&self.images.cache_dir));
        let too_long = |path: &Path, limit| path.as_os_str().len() > limit;
        if too_long(&self.run_dir, MAX_RUN_DIR_BYTES) {
            problems.add(
                "run_dir",
                format!("must be at most {MAX_RUN_DIR_BYTES} bytes long: it holds sockets"),
            );
        }
        if too_long(&self.socket(), MAX_SOCKET_BYTES) {
            problems.add(
                "server.socket",
                format!("must be at most {MAX_SOCKET_BYTES} bytes long"),
            );
        }
    }

    fn check_server(&self, problems: &mut Problems) {
        if let Some(tcp) = self.server.tcp
            && !tcp.ip().is_loopback()
            && !self.server.allow_plaintext
        {
            problems.add(
                "server.tcp",
                "is not loopback, and nothing encrypts it: listen at loopback behind something that encrypts, or set \
                 server.allow_plaintext",
            );
        }
        let root_id = self.root_id();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if root_id.is_empty() || root_id.len() > 32 || !root_id.bytes().all(plain) {
            problems.add("sandbox.root_id", "must be 1 to 32 of a-z, 0-9 and -");
        }
        if self.log.level.is_empty() {
            problems.add("log.level", "must not be empty");
        }
    }

    fn check_sessions(&self, problems: &mut Problems) {
        let sessions = &self.sessions;
        for (key, duration) in [
            ("server.drain_timeout", self.server.drain_timeout),
            ("sessions.start_timeout", sessions.start_timeout),
            ("sessions.stall_timeout", sessions.stall_timeout),
            ("sessions.interrupt_timeout", sessions.interrupt_timeout),
            ("sessions.idle_timeout", sessions.idle_timeout),
            ("sessions.interaction_timeout", sessions.interaction_timeout),
        ] {
            if duration < Duration::from_millis(1) {
                problems.add(key, "must be at least 1ms");
            }
        }
        if sessions.max_queued_inputs == 0 {
            problems.add("sessions.max_queued_inputs", "must be at least 1");
        }
    }

    fn check_limits(&self, problems: &mut Problems) {
        const MIB: u64 = 1 << 20;
        let limits = &self.limits;
        for (key, value, least) in [
            ("limits.memory_bytes", limits.memory_bytes, 64 * MIB),
            ("limits.disk_bytes", limits.disk_bytes, 64 * MIB),
            ("limits.pids", limits.pids.into(), 16),
            ("limits.cpu_millis", limits.cpu_millis.into(), 50),
        ] {
            if value < least {
                problems.add(key, format!("must be at least {least}"));
            }
        }
    }
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, key: &str, what: impl std::fmt::Display) {
        self.0.push(format!("{key}: {what}"));
    }

    fn absolute(&mut self, key: &str, path: Option<&Path>) {
        if path.is_some_and(|path| !path.is_absolute()) {
            self.add(key, "must be an absolute path");
        }
    }

    fn into_result(self) -> Result<(), ConfigError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(ConfigError::Refused(self.0))
        }
    }
}
