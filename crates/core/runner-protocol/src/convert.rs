//! Between the typed values and their wire forms. An unknown enum value is refused, never guessed.

mod sandbox;

use crate::model::{
    AttachEvent, BoxState, BoxStatus, Enforcement, ExitInfo, ExitReason, ExitStatus, FileKind,
    OutputStream, ProcessInfo, ProcessState, RunnerInfo, SignalTarget, SpawnCommand, StdinInfo,
    StreamInfo,
};
use crate::{ProcessIdentity, wire};

/// A message that this version of the protocol does not have. Names the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unintelligible(pub(crate) &'static str);

impl std::fmt::Display for Unintelligible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "field {} is missing or has an unknown value", self.0)
    }
}

impl std::error::Error for Unintelligible {}

type Result<T> = std::result::Result<T, Unintelligible>;

/// An enum with one wire form: both directions from one table.
macro_rules! wire_enum {
    ($ours:ident, $wire:ident, $field:literal, [$($variant:ident),+ $(,)?]) => {
        impl From<$ours> for wire::$wire {
            fn from(value: $ours) -> Self {
                match value {
                    $($ours::$variant => Self::$variant,)+
                }
            }
        }

        impl $ours {
            /// From the number on the wire.
            pub(crate) fn from_wire(number: i32) -> Result<Self> {
                match wire::$wire::try_from(number) {
                    $(Ok(wire::$wire::$variant) => Ok(Self::$variant),)+
                    Ok(wire::$wire::Unspecified) | Err(_) => Err(Unintelligible($field)),
                }
            }
        }
    };
}

wire_enum!(
    ProcessState,
    ProcessState,
    "process state",
    [Starting, Running, Ended]
);
wire_enum!(
    OutputStream,
    OutputStream,
    "output stream",
    [Stdout, Stderr]
);
wire_enum!(
    FileKind,
    FileKind,
    "file kind",
    [File, Directory, Symlink, Other]
);
wire_enum!(Enforcement, Enforcement, "enforcement", [None, Soft, Hard]);
wire_enum!(
    ExitReason,
    ExitReason,
    "exit reason",
    [
        Exited,
        MemoryLimit,
        PidsLimit,
        DiskLimit,
        WallTime,
        Killed,
        BoxDied,
        RunnerRestarted,
    ]
);

impl From<RunnerInfo> for wire::HelloResponse {
    fn from(info: RunnerInfo) -> Self {
        Self {
            version: info.version,
            runner_version: info.runner_version,
            sandbox_id: info.sandbox_id,
            root_id: info.root_id,
            boot_id: info.process.boot_id,
            runner_pid: info.process.pid,
            runner_start_time: info.process.start_time,
            generation: info.generation,
        }
    }
}

impl From<wire::HelloResponse> for RunnerInfo {
    fn from(hello: wire::HelloResponse) -> Self {
        Self {
            version: hello.version,
            runner_version: hello.runner_version,
            sandbox_id: hello.sandbox_id,
            root_id: hello.root_id,
            process: ProcessIdentity {
                pid: hello.runner_pid,
                start_time: hello.runner_start_time,
                boot_id: hello.boot_id,
            },
            generation: hello.generation,
        }
    }
}

impl From<SpawnCommand> for wire::SpawnRequest {
    fn from(command: SpawnCommand) -> Self {
        let env = command.env.into_iter();
        Self {
            name: command.name,
            argv: command.argv,
            env: env
                .map(|(name, value)| wire::EnvironmentVariable { name, value })
                .collect(),
            cwd: command.cwd,
            stdin: command.stdin,
            wall_limit_ms: command.wall_limit_ms,
            spool_bytes: command.spool_bytes,
        }
    }
}

impl From<wire::SpawnRequest> for SpawnCommand {
    fn from(request: wire::SpawnRequest) -> Self {
        let env = request.env.into_iter();
        Self {
            name: request.name,
            argv: request.argv,
            env: env
                .map(|variable| (variable.name, variable.value))
                .collect(),
            cwd: request.cwd,
            stdin: request.stdin,
            wall_limit_ms: request.wall_limit_ms,
            spool_bytes: request.spool_bytes,
        }
    }
}

impl From<ExitInfo> for wire::ProcessExit {
    fn from(exit: ExitInfo) -> Self {
        Self {
            reason: wire::ExitReason::from(exit.reason).into(),
            status: exit.status.map(|status| match status {
                ExitStatus::Code(code) => wire::process_exit::Status::Code(code),
                ExitStatus::Signal(signal) => wire::process_exit::Status::Signal(signal),
            }),
            at_ms: exit.at_ms,
            stdout_end: exit.stdout_end,
            stderr_end: exit.stderr_end,
            oom_kills: exit.oom_kills,
            forks_refused: exit.forks_refused,
        }
    }
}

impl TryFrom<wire::ProcessExit> for ExitInfo {
    type Error = Unintelligible;

    fn try_from(exit: wire::ProcessExit) -> Result<Self> {
        Ok(Self {
            reason: ExitReason::from_wire(exit.reason)?,
            status: exit.status.map(|status| match status {
                wire::process_exit::Status::Code(code) => ExitStatus::Code(code),
                wire::process_exit::Status::Signal(signal) => ExitStatus::Signal(signal),
            }),
            at_ms: exit.at_ms,
            stdout_end: exit.stdout_end,
            stderr_end: exit.stderr_end,
            oom_kills: exit.oom_kills,
            forks_refused: exit.forks_refused,
        })
    }
}

impl From<StreamInfo> for wire::StreamStatus {
    fn from(info: StreamInfo) -> Self {
        Self {
            lowest_offset: info.lowest_offset,
            next_offset: info.next_offset,
            full: info.full,
        }
    }
}

impl From<wire::StreamStatus> for StreamInfo {
    fn from(status: wire::StreamStatus) -> Self {
        Self {
            lowest_offset: status.lowest_offset,
            next_offset: status.next_offset,
            full: status.full,
        }
    }
}

impl From<StdinInfo> for wire::StdinStatus {
    fn from(info: StdinInfo) -> Self {
        Self {
            open: info.open,
            accepted: info.accepted,
            delivered: info.delivered,
        }
    }
}

impl From<wire::StdinStatus> for StdinInfo {
    fn from(status: wire::StdinStatus) -> Self {
        Self {
            open: status.open,
            accepted: status.accepted,
            delivered: status.delivered,
        }
    }
}

impl From<ProcessInfo> for wire::ProcessStatus {
    fn from(info: ProcessInfo) -> Self {
        Self {
            name: info.name,
            state: wire::ProcessState::from(info.state).into(),
            started_at_ms: info.started_at_ms,
            pid: info.pid,
            stdin: Some(info.stdin.into()),
            stdout: Some(info.stdout.into()),
            stderr: Some(info.stderr.into()),
            exit: info.exit.map(Into::into),
        }
    }
}

impl TryFrom<wire::ProcessStatus> for ProcessInfo {
    type Error = Unintelligible;

    fn try_from(status: wire::ProcessStatus) -> Result<Self> {
        Ok(Self {
            name: status.name,
            state: ProcessState::from_wire(status.state)?,
            started_at_ms: status.started_at_ms,
            pid: status.pid,
            stdin: status.stdin.ok_or(Unintelligible("stdin"))?.into(),
            stdout: status.stdout.ok_or(Unintelligible("stdout"))?.into(),
            stderr: status.stderr.ok_or(Unintelligible("stderr"))?.into(),
            exit: status.exit.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<AttachEvent> for wire::AttachResponse {
    fn from(event: AttachEvent) -> Self {
        use wire::attach_response::Event;
        let event = match event {
            AttachEvent::Output {
                stream,
                offset,
                data,
            } => Event::Output(wire::OutputChunk {
                stream: wire::OutputStream::from(stream).into(),
                offset,
                data,
            }),
            AttachEvent::Exited(exit) => Event::Exit(exit.into()),
        };
        Self { event: Some(event) }
    }
}

impl TryFrom<wire::AttachResponse> for AttachEvent {
    type Error = Unintelligible;

    fn try_from(response: wire::AttachResponse) -> Result<Self> {
        use wire::attach_response::Event;
        match response.event {
            Some(Event::Output(chunk)) => Ok(Self::Output {
                stream: OutputStream::from_wire(chunk.stream)?,
                offset: chunk.offset,
                data: chunk.data,
            }),
            Some(Event::Exit(exit)) => Ok(Self::Exited(exit.try_into()?)),
            None => Err(Unintelligible("event")),
        }
    }
}

impl From<SignalTarget> for wire::signal_request::Target {
    fn from(target: SignalTarget) -> Self {
        match target {
            SignalTarget::Process(name) => Self::Process(name),
            SignalTarget::Group(name) => Self::Group(name),
            SignalTarget::Box => Self::Box(true),
        }
    }
}

impl TryFrom<Option<wire::signal_request::Target>> for SignalTarget {
    type Error = Unintelligible;

    fn try_from(target: Option<wire::signal_request::Target>) -> Result<Self> {
        use wire::signal_request::Target;
        match target {
            Some(Target::Process(name)) => Ok(Self::Process(name)),
            Some(Target::Group(name)) => Ok(Self::Group(name)),
            Some(Target::Box(true)) => Ok(Self::Box),
            Some(Target::Box(false)) | None => Err(Unintelligible("target")),
        }
    }
}

impl From<BoxStatus> for wire::StatusResponse {
    fn from(status: BoxStatus) -> Self {
        let (state, gone_reason) = match status.state {
            BoxState::Running => (wire::BoxState::Running, wire::ExitReason::Unspecified),
            BoxState::Frozen => (wire::BoxState::Frozen, wire::ExitReason::Unspecified),
            BoxState::Gone(reason) => (wire::BoxState::Gone, reason.into()),
        };
        Self {
            state: state.into(),
            created_at_ms: status.created_at_ms,
            processes: status.processes.into_iter().map(Into::into).collect(),
            gone_reason: gone_reason.into(),
        }
    }
}

impl TryFrom<wire::StatusResponse> for BoxStatus {
    type Error = Unintelligible;

    fn try_from(response: wire::StatusResponse) -> Result<Self> {
        let state = match wire::BoxState::try_from(response.state) {
            Ok(wire::BoxState::Running) => BoxState::Running,
            Ok(wire::BoxState::Frozen) => BoxState::Frozen,
            Ok(wire::BoxState::Gone) => {
                BoxState::Gone(ExitReason::from_wire(response.gone_reason)?)
            }
            Ok(wire::BoxState::Unspecified) | Err(_) => return Err(Unintelligible("box state")),
        };
        let processes = response.processes.into_iter();
        Ok(Self {
            state,
            created_at_ms: response.created_at_ms,
            processes: processes.map(TryInto::try_into).collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_enum_values_are_refused() {
        for number in [0, 99, -1] {
            assert!(ExitReason::from_wire(number).is_err());
            assert!(OutputStream::from_wire(number).is_err());
            assert!(FileKind::from_wire(number).is_err());
            assert!(Enforcement::from_wire(number).is_err());
            assert!(ProcessState::from_wire(number).is_err());
            let status = wire::StatusResponse {
                state: number,
                ..Default::default()
            };
            assert!(BoxStatus::try_from(status).is_err());
        }
    }

    #[test]
    fn a_gone_box_needs_a_reason() {
        let mut status = wire::StatusResponse {
            state: wire::BoxState::Gone.into(),
            ..Default::default()
        };
        assert!(BoxStatus::try_from(status.clone()).is_err());
        status.gone_reason = wire::ExitReason::MemoryLimit.into();
        let status = BoxStatus::try_from(status).unwrap();
        assert_eq!(status.state, BoxState::Gone(ExitReason::MemoryLimit));
    }

    #[test]
    fn the_box_is_a_target_only_when_said_so() {
        use wire::signal_request::Target;
        assert!(SignalTarget::try_from(None).is_err());
        assert!(SignalTarget::try_from(Some(Target::Box(false))).is_err());
        for target in [
            SignalTarget::Box,
            SignalTarget::Process("a".into()),
            SignalTarget::Group("b".into()),
        ] {
            let back = SignalTarget::try_from(Some(Target::from(target.clone())));
            assert_eq!(back, Ok(target));
        }
    }
}
