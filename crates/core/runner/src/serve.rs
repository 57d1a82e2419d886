//! From a launch spec to a runner that serves, and to its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use astrabox_runner_protocol::launch::{
    Failure, FailureKind, LaunchSpec, MAX_SOCKET_PATH, Report, Started,
};
use astrabox_runner_protocol::state::{RECORD_FORMAT, RunnerRecord, StateDir};
use astrabox_runner_protocol::wire::runner_service_server::RunnerServiceServer;
use astrabox_runner_protocol::{MAX_VERSION, ProcessIdentity, RunnerInfo};
use futures::Stream;
use futures::stream::unfold;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};

use crate::command::{absolute, box_spec, busy, isolation_failure, state, unusable};
use crate::daemon::{self, Launcher};
use crate::egress;
use crate::isolation::IsolatedBox;
use crate::log::Log;
use crate::process::now_ms;
use crate::records::Records;
use crate::runner::{Parts, Runner, watch};
use crate::sandbox::Sandbox;
use crate::service::Service;

/// How long callers may take to read their last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How long to wait when no connection can be accepted: descriptors may be short for a moment.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

type Result<T> = std::result::Result<T, Failure>;

/// Makes the box that the spec asks for and serves it to its end.
pub(crate) fn run(path: &Path) -> ExitCode {
    let launcher = match daemon::detach() {
        Ok(launcher) => launcher,
        // Nobody can be told but by the exit status.
        Err(_) => return ExitCode::FAILURE,
    };
    match prepare(path) {
        Ok(prepared) => serve(prepared, launcher),
        Err(failure) => {
            launcher.tell(&Report::<Started>::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// A runner that is ready, and what its callers connect to.
struct Prepared {
    runner: Arc<Runner>,
    started: Started,
    callers: std::os::unix::net::UnixListener,
    egress: std::os::unix::net::UnixListener,
    listener: OwnedFd,
}

fn prepare(path: &Path) -> Result<Prepared> {
    let spec = LaunchSpec::read(path).map_err(|error| unusable(&error))?;
    absolute(&spec)?;
    let state_dir = StateDir::new(&spec.state_dir);
    let records = Records::take(state_dir.clone()).map_err(|error| state(&error))?;
    let records = records.ok_or_else(busy)?;
    let log = Log::open(&state_dir.log(), spec.log_bytes).map_err(|error| state(&error))?;
    daemon::redirect_stdio(&log).map_err(|error| state(&error))?;
    let restored = records.restore().map_err(|error| state(&error))?;
    let record = write_record(&spec, &records).map_err(|error| state(&error))?;
    let callers = listen(&spec.runner_socket())?;
    let egress = listen(&spec.egress_socket())?;

    let box_spec = box_spec(&spec);
    let mut isolated = IsolatedBox::create(&box_spec).map_err(|error| isolation_failure(&error))?;
    let listener = isolated
        .take_egress_listener()
        .map_err(|error| isolation_failure(&error))?;
    let sandbox = Sandbox::new(isolated, spec.limits.file_bytes).map_err(|error| Failure {
        kind: FailureKind::Internal,
        message: error.to_string(),
    })?;
    log.line(format_args!(
        "runner {} of {}",
        record.generation, record.sandbox_id
    ));
    let started = Started {
        process: record.process.clone(),
        generation: record.generation,
    };
    let info = RunnerInfo {
        version: MAX_VERSION,
        runner_version: env!("CARGO_PKG_VERSION").into(),
        sandbox_id: record.sandbox_id,
        root_id: record.root_id,
        process: record.process,
        generation: record.generation,
    };
    let created_at_ms = record.created_at_ms;
    let parts = Parts {
        info,
        spec,
        box_spec,
        records,
        sandbox,
        log,
        created_at_ms,
        restored,
    };
    let runner = Arc::new(Runner::new(parts));
    Ok(Prepared {
        runner,
        started,
        callers,
        egress,
        listener,
    })
}

fn write_record(spec: &LaunchSpec, records: &Records) -> io::Result<RunnerRecord> {
    let before = records
        .state
        .read_runner()?
        .map_or(0, |record| record.generation);
    let record = RunnerRecord {
        format: RECORD_FORMAT,
        sandbox_id: spec.sandbox_id.clone(),
        root_id: spec.root_id.clone(),
        process: ProcessIdentity::of(std::process::id())?,
        generation: before + 1,
        created_at_ms: now_ms(),
    };
    records.write_runner(&record)?;
    Ok(record)
}

/// A socket that only this user can connect to.
fn listen(path: &Path) -> Result<std::os::unix::net::UnixListener> {
    let failure = |kind, message: String| Failure { kind, message };
    if path.as_os_str().as_bytes().len() > MAX_SOCKET_PATH {
        let message = format!(
            "the run directory's path is too long: a socket in it may have {MAX_SOCKET_PATH} bytes; \
             configure a shorter one"
        );
        return Err(failure(FailureKind::InvalidSpec, message));
    }
    let bound = remove_socket(path).and_then(|()| {
        let listener = std::os::unix::net::UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => FailureKind::NotFound,
            _ => FailureKind::Internal,
        };
        failure(kind, format!("run directory: {error}"))
    })
}

/// Removes a socket that its owner cannot remove any more.
pub(crate) fn remove_socket(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn serve(prepared: Prepared, launcher: Launcher) -> ExitCode {
    let runner = prepared.runner.clone();
    let sockets = [runner.spec().runner_socket(), runner.spec().egress_socket()];
    // One thread for everything: the runner is resident once for each sandbox.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let ended = runtime.and_then(|runtime| {
        let ended = runtime.block_on(serve_until_stopped(prepared, launcher));
        runtime.shutdown_timeout(Duration::ZERO);
        ended
    });
    for socket in sockets {
        if let Err(error) = remove_socket(&socket) {
            runner
                .log
                .line(format_args!("cannot remove a socket: {error}"));
        }
    }
    match ended {
        Ok(()) => {
            runner.log.line("the end");
            ExitCode::SUCCESS
        }
        Err(error) => {
            runner.log.line(format_args!("cannot serve: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn serve_until_stopped(prepared: Prepared, launcher: Launcher) -> io::Result<()> {
    let Prepared {
        runner,
        started,
        callers,
        egress: egress_socket,
        listener,
    } = prepared;
    let callers = UnixListener::from_std(callers)?;
    let egress_socket = UnixListener::from_std(egress_socket)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let Some(init) = runner.sandbox.init_fd()? else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let stop = runner.stop.clone();
    let server = tonic::transport::Server::builder()
        .add_service(RunnerServiceServer::new(Service(runner.clone())))
        .serve_with_incoming_shutdown(connections(callers), stop.clone().cancelled_owned());
    let first_process = watch::first_process(runner.clone(), init);
    let soft_limits = async {
        if runner.sandbox.has_soft_limits() {
            watch::soft_limits(runner.clone()).await;
        }
    };
    let hand_out = async {
        tokio::select! {
            () = egress::hand_out(egress_socket, listener) => {}
            () = stop.cancelled() => {}
        }
    };
    let end_on_signal = async {
        tokio::select! {
            _ = terminate.recv() => {
                if let Err(error) = runner.shut_down().await {
                    runner.log.line(format_args!("after SIGTERM: {error}"));
                }
                stop.cancel();
            }
            () = stop.cancelled() => {}
        }
    };
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    launcher.tell(&Report::Ok(started));
    let all = async { tokio::join!(server, first_process, soft_limits, hand_out, end_on_signal) };
    tokio::select! {
        (served, heard, ..) = all => {
            heard?;
            served.map_err(io::Error::other)
        }
        () = late => Ok(()),
    }
}

fn connections(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    unfold(listener, |listener| async move {
        loop {
            match listener.accept().await {
                Ok((connection, _)) => return Some((Ok(connection), listener)),
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            }
        }
    })
}
