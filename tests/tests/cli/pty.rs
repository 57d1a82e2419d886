//! A program at a pseudo-terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::stage::PATIENCE;

/// A program whose three outputs are one terminal, and the person before it.
pub(crate) struct Pty {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    /// Everything that the terminal was given.
    seen: String,
    /// What of it was looked at.
    looked: usize,
}

impl Pty {
    /// Starts a program in a session of its own, whose controlling terminal it is, so that Ctrl-C is a signal.
    pub(crate) fn start(program: &Path, prepare: impl FnOnce(&mut Command)) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).expect("it is granted");
        unlockpt(&master).expect("it is unlocked");
        let size = Winsize {
            ws_row: 50,
            ws_col: 400,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("it has a size");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave: File = open(name, flags, Mode::empty()).expect("it opens").into();
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program);
        prepare(&mut command);
        command.stdin(slave.try_clone().expect("a handle"));
        command.stdout(slave.try_clone().expect("a handle"));
        command.stderr(slave);
        let child = command.spawn().expect("it starts");
        // The handles of the command would keep the terminal open.
        drop(command);
        let keys: File = master.into();
        let mut screen = keys.try_clone().expect("a handle");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 4096];
            // The read fails when the last program at the terminal is gone.
            while let Ok(read) = screen.read(&mut bytes) {
                if read == 0 || sender.send(bytes[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            keys,
            output,
            seen: String::new(),
            looked: 0,
        }
    }

    /// Types.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .expect("somebody reads");
    }

    /// Waits until this is on the screen, after what was waited for before; gives what was shown up to it.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen[self.looked..].find(wanted) {
                let from = self.looked;
                self.looked += at + wanted.len();
                return self.seen[from..self.looked].to_owned();
            }
            assert!(
                self.more(deadline),
                "`{wanted}` does not come: {:?}",
                self.seen
            );
        }
    }

    fn more(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.output.recv_timeout(left) {
            // Only whole characters are typed and shown in these tests' pieces.
            Ok(bytes) => {
                self.seen.push_str(&String::from_utf8_lossy(&bytes));
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Waits for the program's end; gives its exit code.
    #[track_caller]
    pub(crate) fn end(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        while self.more(deadline) {}
        assert!(
            Instant::now() < deadline,
            "it does not end: {:?}",
            self.seen
        );
        let status = self.child.wait().expect("it has ended");
        status.code().expect("it exits by itself")
    }

    /// Everything that was shown.
    pub(crate) fn seen(&self) -> &str {
        &self.seen
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // After a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
