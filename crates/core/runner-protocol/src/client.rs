//! The caller's side: typed calls, a deadline on each, and the handshake.

mod attach;
mod files;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::convert::Unintelligible;
use crate::wire::runner_service_client::RunnerServiceClient;
use crate::{
    BoxStatus, MAX_DATA_BYTES, MAX_VERSION, MIN_VERSION, OutputStream, Posture, ProcessInfo,
    RunnerError, RunnerErrorKind, RunnerInfo, SignalTarget, SpawnCommand, Stats, StreamInfo,
    from_status, wire,
};

pub use attach::Attachment;
pub use files::FileReader;

/// How a client reaches a runner.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The runner's unix socket.
    pub socket: PathBuf,
    /// What the caller is, for the runner's log: a program and its version.
    pub client: String,
    /// How long each kind of call may take.
    pub deadlines: Deadlines,
}

impl ConnectOptions {
    /// The usual deadlines, for a caller named after this crate.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            client: concat!("astrabox/", env!("CARGO_PKG_VERSION")).to_owned(),
            deadlines: Deadlines::default(),
        }
    }
}

/// How long each kind of call may take. An attachment has none: a process may be silent for hours.
/// A runner that does not answer pings for `call` breaks it.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Connection and handshake.
    pub connect: Duration,
    /// A call that the runner answers at once.
    pub call: Duration,
    /// A start, which waits for the program to be executed.
    pub spawn: Duration,
    /// One message of stdin, which waits for room in the runner's queue.
    pub stdin: Duration,
    /// A whole file call, or the wait for the next part of a streamed one.
    pub file: Duration,
    /// The destruction of the box.
    pub shutdown: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            call: Duration::from_secs(10),
            spawn: Duration::from_secs(30),
            stdin: Duration::from_secs(30),
            file: Duration::from_secs(120),
            shutdown: Duration::from_secs(60),
        }
    }
}

/// A connection to one runner. Cheap to clone; the connection is shared.
///
/// A broken connection is made again by the next call. Every call can be repeated after
/// [`RunnerErrorKind::Unavailable`] or [`RunnerErrorKind::TimedOut`].
#[derive(Debug, Clone)]
pub struct RunnerClient {
    wire: RunnerServiceClient<Channel>,
    info: Arc<RunnerInfo>,
    deadlines: Deadlines,
}

impl RunnerClient {
    /// Connects and shakes hands.
    ///
    /// # Errors
    /// [`RunnerErrorKind::Unavailable`] when nobody listens, which says nothing about the sandbox;
    /// [`RunnerErrorKind::VersionMismatch`] when the runner is too old or too new.
    pub async fn connect(options: ConnectOptions) -> Result<Self, RunnerError> {
        let deadlines = options.deadlines;
        within("hello", deadlines.connect, async {
            let channel = endpoint(&options.socket, &deadlines)?
                .connect()
                .await
                .map_err(|error| unreachable_runner(&error))?;
            let mut wire = RunnerServiceClient::new(channel);
            let request = wire::HelloRequest {
                min_version: MIN_VERSION,
                max_version: MAX_VERSION,
                client: options.client,
            };
            let hello = wire
                .hello(request)
                .await
                .map_err(|status| from_status("hello", &status))?
                .into_inner();
            let info = Arc::new(RunnerInfo::from(hello));
            Ok(Self {
                wire,
                info,
                deadlines,
            })
        })
        .await
    }

    /// Who answered the handshake.
    #[must_use]
    pub fn info(&self) -> &RunnerInfo {
        &self.info
    }

    /// Starts a process. The same command again gives the same process and starts nothing.
    pub async fn spawn(&self, command: SpawnCommand) -> Result<ProcessInfo, RunnerError> {
        let mut wire = self.wire.clone();
        let call = async move { wire.spawn(wire::SpawnRequest::from(command)).await };
        let response = answer("spawn", self.deadlines.spawn, call).await?;
        let process = response.process.ok_or(Unintelligible("process"));
        process
            .and_then(ProcessInfo::try_from)
            .map_err(|error| protocol("spawn", error))
    }

    /// Queues `data` for the stdin of process `name` at `offset`; gives the next offset.
    ///
    /// Repeating a write that was accepted changes nothing. After an error, ask `status` for the offset
    /// up to which bytes were accepted: a long `data` is sent in pieces.
    pub async fn write_stdin(
        &self,
        name: &str,
        offset: u64,
        mut data: Bytes,
    ) -> Result<u64, RunnerError> {
        let mut next = offset;
        loop {
            let piece = data.split_to(data.len().min(MAX_DATA_BYTES));
            let request = wire::WriteStdinRequest {
                name: name.to_owned(),
                offset: next,
                data: piece.clone(),
            };
            let mut wire = self.wire.clone();
            let call = async move { wire.write_stdin(request).await };
            let accepted = answer("write_stdin", self.deadlines.stdin, call)
                .await?
                .next_offset;
            next += piece.len() as u64;
            if data.is_empty() {
                return Ok(accepted);
            }
        }
    }

    /// Closes stdin of process `name` once everything accepted is delivered. With an offset, only if that is
    /// where it ends, so that a close cannot overtake a write.
    pub async fn close_stdin(&self, name: &str, offset: Option<u64>) -> Result<(), RunnerError> {
        let request = wire::CloseStdinRequest {
            name: name.to_owned(),
            offset,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.close_stdin(request).await };
        answer("close_stdin", self.deadlines.call, call).await?;
        Ok(())
    }

    /// Gives up the output of process `name` below these offsets. Gives the state of stdout and stderr.
    pub async fn ack(
        &self,
        name: &str,
        stdout_offset: u64,
        stderr_offset: u64,
    ) -> Result<(StreamInfo, StreamInfo), RunnerError> {
        let request = wire::AckRequest {
            name: name.to_owned(),
            stdout_offset,
            stderr_offset,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.ack(request).await };
        let response = answer("ack", self.deadlines.call, call).await?;
        match (response.stdout, response.stderr) {
            (Some(stdout), Some(stderr)) => Ok((stdout.into(), stderr.into())),
            _ => Err(protocol("ack", Unintelligible("stdout or stderr"))),
        }
    }

    /// Sends signal `signal` (1 to 31, as numbered by Linux).
    pub async fn signal(&self, target: SignalTarget, signal: i32) -> Result<(), RunnerError> {
        let request = wire::SignalRequest {
            target: Some(target.into()),
            signal,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.signal(request).await };
        answer("signal", self.deadlines.call, call).await?;
        Ok(())
    }

    /// Drops the record and output of the ended process `name`.
    pub async fn forget(&self, name: &str) -> Result<(), RunnerError> {
        let request = wire::ForgetRequest {
            name: name.to_owned(),
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.forget(request).await };
        answer("forget", self.deadlines.call, call).await?;
        Ok(())
    }

    /// The box and all its processes.
    pub async fn status(&self) -> Result<BoxStatus, RunnerError> {
        self.ask_status(None).await
    }

    /// The process of this name, if there is one on record.
    pub async fn process(&self, name: &str) -> Result<Option<ProcessInfo>, RunnerError> {
        let status = self.ask_status(Some(name.to_owned())).await?;
        Ok(status
            .processes
            .into_iter()
            .find(|process| process.name == name))
    }

    async fn ask_status(&self, process: Option<String>) -> Result<BoxStatus, RunnerError> {
        let mut wire = self.wire.clone();
        let call = async move { wire.status(wire::StatusRequest { process }).await };
        let response = answer("status", self.deadlines.call, call).await?;
        BoxStatus::try_from(response).map_err(|error| protocol("status", error))
    }

    /// Stops every process of the box where it stands.
    pub async fn freeze(&self) -> Result<(), RunnerError> {
        let mut wire = self.wire.clone();
        let call = async move { wire.freeze(wire::FreezeRequest {}).await };
        answer("freeze", self.deadlines.call, call).await?;
        Ok(())
    }

    /// Lets the processes of the box go on.
    pub async fn thaw(&self) -> Result<(), RunnerError> {
        let mut wire = self.wire.clone();
        let call = async move { wire.thaw(wire::ThawRequest {}).await };
        answer("thaw", self.deadlines.call, call).await?;
        Ok(())
    }

    /// What the box uses.
    pub async fn stats(&self) -> Result<Stats, RunnerError> {
        let mut wire = self.wire.clone();
        let call = async move { wire.stats(wire::StatsRequest {}).await };
        let response = answer("stats", self.deadlines.call, call).await?;
        Ok(response.into())
    }

    /// What confines the box.
    pub async fn posture(&self) -> Result<Posture, RunnerError> {
        let mut wire = self.wire.clone();
        let call = async move { wire.posture(wire::PostureRequest {}).await };
        let response = answer("posture", self.deadlines.call, call).await?;
        Posture::try_from(response).map_err(|error| protocol("posture", error))
    }

    /// Destroys the box and ends the runner.
    pub async fn shutdown(&self) -> Result<(), RunnerError> {
        let mut wire = self.wire.clone();
        let call = async move { wire.shutdown(wire::ShutdownRequest {}).await };
        answer("shutdown", self.deadlines.shutdown, call).await?;
        Ok(())
    }

    /// Streams the output of process `name` from these offsets on, then its end.
    pub async fn attach(
        &self,
        name: &str,
        stdout_offset: u64,
        stderr_offset: u64,
    ) -> Result<Attachment, RunnerError> {
        let request = wire::AttachRequest {
            name: name.to_owned(),
            stdout_offset,
            stderr_offset,
        };
        let mut wire = self.wire.clone();
        let call = async move { wire.attach(request).await };
        let stream = answer("attach", self.deadlines.call, call).await?;
        let offsets = [
            (OutputStream::Stdout, stdout_offset),
            (OutputStream::Stderr, stderr_offset),
        ];
        Ok(Attachment::new(stream, offsets))
    }
}

fn endpoint(socket: &Path, deadlines: &Deadlines) -> Result<Endpoint, RunnerError> {
    let invalid = |what: &'static str| {
        let kind = RunnerErrorKind::InvalidArgument;
        RunnerError::new(kind, "hello", what)
    };
    let path = socket
        .to_str()
        .ok_or_else(|| invalid("the socket's path is not UTF-8"))?;
    let endpoint = Endpoint::try_from(format!("unix:{path}"))
        .map_err(|error| invalid("the socket's path is unusable").with_source(error))?;
    // Pings only while calls are open, so an idle runner sleeps. They notice a runner that hangs; one
    // that dies closes the socket.
    Ok(endpoint
        .connect_timeout(deadlines.connect)
        .http2_keep_alive_interval(deadlines.call)
        .keep_alive_timeout(deadlines.call)
        .keep_alive_while_idle(false))
}

fn unreachable_runner(error: &tonic::transport::Error) -> RunnerError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    RunnerError::new(
        RunnerErrorKind::Unavailable,
        "hello",
        format!("cannot connect to the runner: {cause}"),
    )
}

/// Waits for one answer, at most `deadline`.
async fn answer<T>(
    operation: &'static str,
    deadline: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, RunnerError> {
    within(operation, deadline, async {
        let response = call
            .await
            .map_err(|status| from_status(operation, &status))?;
        Ok(response.into_inner())
    })
    .await
}

async fn within<T>(
    operation: &'static str,
    deadline: Duration,
    work: impl Future<Output = Result<T, RunnerError>>,
) -> Result<T, RunnerError> {
    match tokio::time::timeout(deadline, work).await {
        Ok(result) => result,
        Err(_) => Err(RunnerError::new(
            RunnerErrorKind::TimedOut,
            operation,
            format!("no answer within {} ms", deadline.as_millis()),
        )),
    }
}

fn protocol(operation: &'static str, error: Unintelligible) -> RunnerError {
    RunnerError::new(RunnerErrorKind::Protocol, operation, error.to_string())
}
