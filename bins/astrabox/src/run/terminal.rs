//! Lines that a person types.

use std::io::{BufRead as _, IsTerminal as _};

use anyhow::Context as _;
use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::mpsc::{Receiver, channel};

/// Lines that may be typed ahead.
const AHEAD: usize = 64;

/// The person's terminal. A thread of its own reads it, because a read of a terminal cannot be cancelled: the thread
/// ends with the terminal or with the process.
pub(super) struct Terminal(Receiver<String>);

impl Terminal {
    /// Standard input, when it is a terminal.
    pub(super) fn open() -> anyhow::Result<Option<Self>> {
        if !std::io::stdin().is_terminal() {
            return Ok(None);
        }
        let (sender, lines) = channel(AHEAD);
        std::thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || {
                let mut input = std::io::stdin().lock();
                let mut line = Vec::new();
                while input
                    .read_until(b'\n', &mut line)
                    .is_ok_and(|read| read > 0)
                {
                    let text = String::from_utf8_lossy(&line);
                    let text = text.trim_end_matches(['\n', '\r']).to_owned();
                    line.clear();
                    if sender.blocking_send(text).is_err() {
                        return;
                    }
                }
            })
            .context("the terminal cannot be read")?;
        Ok(Some(Self(lines)))
    }

    /// The next line; `None` at the end. Cancel-safe.
    pub(super) async fn line(&mut self) -> Option<String> {
        self.0.recv().await
    }

    /// Throws away what was typed before now: it was not meant as the answer to what is asked now. Gives the whole
    /// lines of it.
    pub(super) fn forget(&mut self) -> Vec<String> {
        // What cannot be thrown away comes as a line, and is asked for again when it makes no sense.
        let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
        std::iter::from_fn(|| self.0.try_recv().ok())
            .filter(|line| !line.trim().is_empty())
            .collect()
    }
}
