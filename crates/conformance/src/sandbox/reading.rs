//! Reading a process's output, with a watch on its offsets.

use std::time::Duration;

use astrabox_sandbox::{ExitStatus, OutputEvent, OutputStream, ProcessName, Workload};
use futures::StreamExt as _;

use crate::case::check;
use crate::{Doing as _, Stop};

/// How long output may take to come.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// An attachment and everything that it told.
pub(super) struct Reading {
    stream: OutputStream,
    /// Where each stream began: standard output, standard error.
    from: [u64; 2],
    /// The bytes of each.
    bytes: [Vec<u8>; 2],
    /// How the process ended, once it did.
    pub(super) exit: Option<ExitStatus>,
}

impl Reading {
    /// Attaches at these offsets.
    pub(super) async fn at(
        workload: &dyn Workload,
        process: &ProcessName,
        stdout: u64,
        stderr: u64,
    ) -> Result<Self, Stop> {
        let stream = workload
            .attach(process, stdout, stderr)
            .await
            .doing(format!("attach at {stdout} and {stderr}"))?;
        Ok(Self {
            stream,
            from: [stdout, stderr],
            bytes: [Vec::new(), Vec::new()],
            exit: None,
        })
    }

    pub(super) fn stdout(&self) -> &[u8] {
        &self.bytes[0]
    }

    pub(super) fn stderr(&self) -> &[u8] {
        &self.bytes[1]
    }

    /// Standard output as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[0]).into_owned()
    }

    /// The offset behind the last byte of standard output that was read.
    pub(super) fn next_stdout(&self) -> u64 {
        self.from[0] + self.bytes[0].len() as u64
    }

    /// The offset behind the last byte of standard error that was read.
    pub(super) fn next_stderr(&self) -> u64 {
        self.from[1] + self.bytes[1].len() as u64
    }

    /// Takes one event; `false` at the end of the stream.
    async fn step(&mut self) -> Result<bool, Stop> {
        let Some(event) = self.stream.next().await else {
            return Ok(false);
        };
        match event.doing("read output")? {
            OutputEvent::Output(output) => {
                let which = usize::from(output.stderr);
                let next = self.from[which] + self.bytes[which].len() as u64;
                check!(
                    output.offset == next,
                    "a piece of {} begins at {}, the one before ended at {next}",
                    ["standard output", "standard error"][which],
                    output.offset
                );
                self.bytes[which].extend_from_slice(&output.bytes);
            }
            OutputEvent::Exited(exit) => {
                check!(self.exit.is_none(), "the exit was told twice");
                self.exit = Some(exit);
            }
        }
        Ok(true)
    }

    /// Reads until `enough` of standard output is there.
    pub(super) async fn until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Result<(), Stop> {
        let reading = async {
            while !enough(&self.bytes[0]) {
                check!(
                    self.step().await?,
                    "the output ended at {:?}",
                    String::from_utf8_lossy(&self.bytes[0])
                );
            }
            Ok(())
        };
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(done) => done,
            Err(_) => Err(Stop::failed(format!(
                "the output did not come within {} s",
                PATIENCE.as_secs()
            ))),
        }
    }

    /// Reads to the end: the exit, and nothing behind it.
    pub(super) async fn until_end(&mut self) -> Result<ExitStatus, Stop> {
        let reading = async {
            while self.step().await? {}
            Ok::<_, Stop>(())
        };
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(done) => done?,
            Err(_) => {
                return Err(Stop::failed(format!(
                    "the process did not end within {} s",
                    PATIENCE.as_secs()
                )));
            }
        }
        self.exit
            .clone()
            .ok_or_else(|| Stop::failed("the output ended without an exit"))
    }

    /// Waits until nothing has come for so long; fails when output does not stop within ten times that.
    pub(super) async fn until_silent(&mut self, silence: Duration) -> Result<(), Stop> {
        let reading = async {
            loop {
                match tokio::time::timeout(silence, self.step()).await {
                    Err(_) => return Ok(()),
                    Ok(more) => check!(more?, "the output ended"),
                }
            }
        };
        match tokio::time::timeout(silence * 10, reading).await {
            Ok(done) => done,
            Err(_) => Err(Stop::failed("the output goes on")),
        }
    }
}
