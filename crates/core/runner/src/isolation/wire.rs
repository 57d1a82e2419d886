//! What the runner and the box's first process say to each other, one message per datagram.
//!
//! The bulk of a spawn request travels in a memory file, see [`Payload`], because a datagram is too small.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::{ffi::OsString, path::PathBuf};

use super::SpawnRequest;

/// The most bytes of working directory, arguments and environment together.
pub(super) const MAX_PAYLOAD: usize = 2 << 20;

/// The most bytes of one message.
pub(super) const MAX_MESSAGE: usize = 1024;

/// To the first process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToInit {
    /// Take the volume's mount and, as root, the user namespace: one or two descriptors.
    Volume,
    /// Set-up is over on both sides.
    Go,
    /// Start a process: payload, stdin, stdout, stderr.
    Spawn { tag: u64 },
    /// Send a signal to a child of the first process or to its group.
    Signal { pid: i32, signal: i32, group: bool },
    /// Send a signal to every process but the first.
    SignalAll { signal: i32 },
}

/// From the first process.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FromInit {
    /// The box stands: listener and root directory, and what the kernel says of its confinement.
    Ready { facts: String },
    /// A step of the set-up failed; the box is gone.
    SetupFailed { errno: i32, step: String },
    /// A process runs.
    Started { tag: u64, pid: i32 },
    /// A process could not be started.
    SpawnFailed {
        tag: u64,
        errno: i32,
        stage: SpawnStage,
    },
    /// A process ended.
    Exited {
        tag: u64,
        pid: i32,
        signaled: bool,
        value: i32,
    },
}

/// How far the start of a process came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnStage {
    /// Reading the request.
    Request,
    /// Making the process.
    Fork,
    /// Entering the working directory.
    Directory,
    /// Replacing it by the program.
    Exec,
}

impl SpawnStage {
    fn code(self) -> i32 {
        self as i32
    }

    pub(super) fn from_code(code: i32) -> Self {
        match code {
            1 => Self::Fork,
            2 => Self::Directory,
            3 => Self::Exec,
            _ => Self::Request,
        }
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8) -> Self {
        Self(vec![kind])
    }
    fn i32(mut self, value: i32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    fn text(mut self, value: &str) -> Vec<u8> {
        let room = MAX_MESSAGE - self.0.len();
        let cut = value.floor_char_boundary(room.min(value.len()));
        self.0.extend_from_slice(&value.as_bytes()[..cut]);
        self.0
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
    fn i32(&mut self) -> Option<i32> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_le_bytes(*head))
    }
    fn u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }
    fn text(self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }
}

impl ToInit {
    pub(super) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Volume => Writer::new(1).0,
            Self::Go => Writer::new(2).0,
            Self::Spawn { tag } => Writer::new(3).u64(tag).0,
            Self::Signal { pid, signal, group } => {
                Writer::new(4).i32(pid).i32(signal).i32(group.into()).0
            }
            Self::SignalAll { signal } => Writer::new(5).i32(signal).0,
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        Some(match r.u8()? {
            1 => Self::Volume,
            2 => Self::Go,
            3 => Self::Spawn { tag: r.u64()? },
            4 => Self::Signal {
                pid: r.i32()?,
                signal: r.i32()?,
                group: r.i32()? != 0,
            },
            5 => Self::SignalAll { signal: r.i32()? },
            _ => return None,
        })
    }
}

impl FromInit {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ready { facts } => Writer::new(1).text(facts),
            Self::SetupFailed { errno, step } => Writer::new(2).i32(*errno).text(step),
            Self::Started { tag, pid } => Writer::new(3).u64(*tag).i32(*pid).0,
            Self::SpawnFailed { tag, errno, stage } => {
                Writer::new(4).u64(*tag).i32(*errno).i32(stage.code()).0
            }
            Self::Exited {
                tag,
                pid,
                signaled,
                value,
            } => {
                Writer::new(5)
                    .u64(*tag)
                    .i32(*pid)
                    .i32((*signaled).into())
                    .i32(*value)
                    .0
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        Some(match r.u8()? {
            1 => Self::Ready { facts: r.text() },
            2 => Self::SetupFailed {
                errno: r.i32()?,
                step: r.text(),
            },
            3 => Self::Started {
                tag: r.u64()?,
                pid: r.i32()?,
            },
            4 => Self::SpawnFailed {
                tag: r.u64()?,
                errno: r.i32()?,
                stage: SpawnStage::from_code(r.i32()?),
            },
            5 => Self::Exited {
                tag: r.u64()?,
                pid: r.i32()?,
                signaled: r.i32()? != 0,
                value: r.i32()?,
            },
            _ => return None,
        })
    }
}

/// Working directory, arguments and environment of a process, as they travel in the memory file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) cwd: PathBuf,
    pub(super) argv: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
}

impl Payload {
    /// The bytes of a request, or what is wrong with it.
    pub(super) fn encode(request: &SpawnRequest) -> Result<Vec<u8>, &'static str> {
        let has_nul = |text: &std::ffi::OsStr| text.as_bytes().contains(&0);
        if request
            .argv
            .first()
            .is_none_or(|program| program.is_empty())
        {
            return Err("argv must name a program");
        }
        if !request.cwd.is_absolute() {
            return Err("cwd must be an absolute path");
        }
        let nul = has_nul(request.cwd.as_os_str())
            || request.argv.iter().any(|arg| has_nul(arg))
            || request
                .env
                .iter()
                .any(|(name, value)| has_nul(name) || has_nul(value));
        if nul {
            return Err("argv, env and cwd must not contain NUL");
        }
        if request
            .env
            .iter()
            .any(|(name, _)| name.is_empty() || name.as_bytes().contains(&b'='))
        {
            return Err("names in env must not be empty and must not contain '='");
        }
        let (argc, envc) = (request.argv.len(), request.env.len());
        let mut out = Vec::new();
        out.extend_from_slice(
            &u32::try_from(argc)
                .map_err(|_| "argv is too long")?
                .to_le_bytes(),
        );
        out.extend_from_slice(
            &u32::try_from(envc)
                .map_err(|_| "env is too long")?
                .to_le_bytes(),
        );
        let mut push = |parts: &[&[u8]]| {
            for part in parts {
                out.extend_from_slice(part);
            }
            out.push(0);
        };
        push(&[request.cwd.as_os_str().as_bytes()]);
        request.argv.iter().for_each(|arg| push(&[arg.as_bytes()]));
        request
            .env
            .iter()
            .for_each(|(name, value)| push(&[name.as_bytes(), b"=", value.as_bytes()]));
        if out.len() > MAX_PAYLOAD {
            return Err("cwd, argv and env together must not exceed 2 MiB");
        }
        Ok(out)
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (argc, rest) = bytes.split_first_chunk()?;
        let (envc, rest) = rest.split_first_chunk()?;
        let mut strings = rest.split(|byte| *byte == 0);
        let mut next = || Some(OsString::from_vec(strings.next()?.to_vec()));
        let cwd = PathBuf::from(next()?);
        let argv = (0..u32::from_le_bytes(*argc))
            .map(|_| next())
            .collect::<Option<_>>()?;
        let pair = |text: OsString| {
            let mut parts = text.as_bytes().splitn(2, |byte| *byte == b'=');
            let mut part = || Some(OsString::from_vec(parts.next()?.to_vec()));
            Some((part()?, part()?))
        };
        let env = (0..u32::from_le_bytes(*envc))
            .map(|_| pair(next()?))
            .collect::<Option<Vec<_>>>()?;
        Some(Self { cwd, argv, env })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn messages_survive_their_encoding() {
        let to = [
            ToInit::Volume,
            ToInit::Go,
            ToInit::Spawn { tag: u64::MAX },
            ToInit::Signal {
                pid: 7,
                signal: 15,
                group: true,
            },
            ToInit::SignalAll { signal: 9 },
        ];
        for message in to {
            assert_eq!(ToInit::decode(&message.encode()), Some(message));
        }
        let from = [
            FromInit::Ready {
                facts: "a:1".into(),
            },
            FromInit::SetupFailed {
                errno: 1,
                step: "mount /proc".into(),
            },
            FromInit::Started { tag: 1, pid: 2 },
            FromInit::SpawnFailed {
                tag: 1,
                errno: 2,
                stage: SpawnStage::Exec,
            },
            FromInit::Exited {
                tag: 9,
                pid: 3,
                signaled: true,
                value: 9,
            },
        ];
        for message in from {
            assert_eq!(FromInit::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn a_cut_message_is_no_message() {
        let whole = FromInit::Exited {
            tag: 9,
            pid: 3,
            signaled: true,
            value: 9,
        }
        .encode();
        for length in 0..whole.len() {
            assert_eq!(FromInit::decode(&whole[..length]), None, "{length}");
        }
        assert_eq!(ToInit::decode(&[99]), None);
    }

    #[test]
    fn a_long_step_is_cut_at_a_character() {
        let long = FromInit::SetupFailed {
            errno: 1,
            step: "ä".repeat(MAX_MESSAGE),
        }
        .encode();
        assert!(long.len() <= MAX_MESSAGE);
        assert!(
            matches!(FromInit::decode(&long), Some(FromInit::SetupFailed { step, .. }) if !step.contains('\u{fffd}'))
        );
    }

    fn request(argv: &[&str], env: &[(&str, &str)], cwd: &str) -> SpawnRequest {
        let null = || File::open("/dev/null").expect("opens").into();
        SpawnRequest {
            tag: 1,
            argv: argv.iter().map(Into::into).collect(),
            env: env
                .iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: cwd.into(),
            stdin: null(),
            stdout: null(),
            stderr: null(),
        }
    }

    #[test]
    fn a_payload_survives_its_encoding() {
        let request = request(
            &["sh", "", "a\nb"],
            &[("A", "x=y"), ("EMPTY", "")],
            "/workspace",
        );
        let bytes = Payload::encode(&request).expect("encodes");
        let back = Payload::decode(&bytes).expect("decodes");
        assert_eq!(
            (back.argv, back.env, back.cwd),
            (request.argv, request.env, request.cwd)
        );
    }

    #[test]
    fn impossible_requests_are_refused_here() {
        let huge = "x".repeat(MAX_PAYLOAD);
        let cases = [
            request(&[], &[], "/"),
            request(&[""], &[], "/"),
            request(&["sh"], &[], "workspace"),
            request(&["sh\0"], &[], "/"),
            request(&["sh"], &[("", "x")], "/"),
            request(&["sh"], &[("A=B", "x")], "/"),
            request(&["sh"], &[("A", "x\0")], "/"),
            request(&["sh", &huge], &[], "/"),
        ];
        for (index, case) in cases.iter().enumerate() {
            assert!(Payload::encode(case).is_err(), "case {index}");
        }
    }
}
