//! A program that is an asynchronous closure.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use astrabox_sandbox::BoxPath;
use bytes::Bytes;
use futures::future::BoxFuture;

use super::MemoryFiles;
use super::process::Process;

/// A program: what it is given to, what it exits with. It is dropped when its process is killed.
pub type Program = Arc<dyn Fn(ProgramIo) -> BoxFuture<'static, i32> + Send + Sync>;

/// Makes a program of an asynchronous function.
pub fn program<F, E>(body: F) -> Program
where
    F: Fn(ProgramIo) -> E + Send + Sync + 'static,
    E: Future<Output = i32> + Send + 'static,
{
    Arc::new(move |io| Box::pin(body(io)))
}

/// What a program sees of its box.
pub struct ProgramIo {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub cwd: BoxPath,
    /// The files of the box.
    pub files: MemoryFiles,
    /// Where the egress gate answers, if this box has a way out.
    pub egress: Option<SocketAddr>,
    /// How much of standard input was read.
    pub(super) taken: usize,
    pub(super) process: Arc<Process>,
}

impl ProgramIo {
    /// The next bytes of standard input; `None` at its end.
    pub async fn read(&mut self) -> Option<Bytes> {
        let bytes = self.process.read_stdin(self.taken).await?;
        self.taken += bytes.len();
        Some(bytes)
    }

    /// The next line of standard input, without its line feed; `None` at its end. An unfinished last line is a line.
    pub async fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            let Some(bytes) = self.process.read_stdin(self.taken).await else {
                return (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned());
            };
            let end = bytes.iter().position(|byte| *byte == b'\n');
            self.taken += end.map_or(bytes.len(), |at| at + 1);
            line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            if end.is_some() {
                return Some(String::from_utf8_lossy(&line).into_owned());
            }
        }
    }

    /// Writes to standard output.
    pub fn print(&self, bytes: impl AsRef<[u8]>) {
        self.process.write(false, bytes.as_ref());
    }

    /// Writes to standard error.
    pub fn eprint(&self, bytes: impl AsRef<[u8]>) {
        self.process.write(true, bytes.as_ref());
    }
}
