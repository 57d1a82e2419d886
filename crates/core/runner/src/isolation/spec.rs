//! What a box is to be: written by the provider as JSON, read by the runner.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::IsolationError;

/// The user and group id that every process of a box has inside it.
pub const BOX_ID: u32 = 1000;

/// Host uids below this belong to people and services, so no box is ever mapped to one.
const LOWEST_HOST_UID: u32 = 65_536;

/// The smallest limits with which a box can start at all.
const LEAST_MEMORY: u64 = 8 << 20;
const LEAST_PIDS: u32 = 4;
const LEAST_DISK: u64 = 1 << 20;

/// One box, completely: nothing else decides what it can see and use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxSpec {
    /// Names the box within its root: 1 to 64 of `[A-Za-z0-9._-]`, not beginning with a dot.
    pub sandbox_id: String,
    /// Names the sandbox root, in the same alphabet; cgroups are scoped by it.
    pub root_id: String,
    /// An existing directory of this box alone, for its state; absolute.
    pub run_dir: PathBuf,
    /// Where the box's programs come from.
    pub base: Base,
    /// A directory tree with one agent program, read-only at `/opt/astrabox/image`; absolute.
    pub image: Option<PathBuf>,
    /// The one place where the box can keep anything.
    pub volume: Volume,
    /// The host uid and gid behind [`BOX_ID`] when the runner is root; ignored otherwise.
    pub host_uid: u32,
    /// What the box may use.
    pub limits: Limits,
    /// What system calls the box may make.
    pub level: PermissionLevel,
    /// The box's host name: 1 to 64 of `[A-Za-z0-9-]`.
    pub hostname: String,
    /// The port on the box's `127.0.0.1` where its egress listener is bound.
    pub egress_port: u16,
}

/// Where a box's programs come from. It is read-only inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Base {
    /// The host's `/usr` without `/usr/local`, and a made-up `/etc`.
    Host,
    /// A root tree of its own; absolute.
    Dir(PathBuf),
}

/// What holds `/workspace` and `/home/agent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Volume {
    /// An ext4 image made by [`prepare_loop_image`](super::prepare_loop_image): a hard size limit. Root only.
    LoopImage {
        /// The image file; absolute.
        path: PathBuf,
    },
    /// A directory of the host: its size is looked at, not enforced.
    Directory {
        /// The directory, existing; absolute.
        path: PathBuf,
    },
}

/// What a box may use. Every limit is set: there is no unlimited box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory with the private `/tmp` and `/dev/shm`, bytes.
    pub memory_bytes: u64,
    /// Processes and threads at one time.
    pub pids: u32,
    /// CPU time per time, thousandths of one CPU.
    pub cpu_millis: u32,
    /// Size of the volume, bytes.
    pub disk_bytes: u64,
    /// Size of any one file, bytes.
    pub file_bytes: u64,
}

/// What system calls a box may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionLevel {
    /// No namespaces and no mounts inside.
    Default,
    /// Also user namespaces and mounts inside, for programs that sandbox their own children.
    Advanced,
}

impl BoxSpec {
    /// Refuses what cannot be a box, before anything is made.
    ///
    /// # Errors
    /// [`IsolationError::InvalidSpec`] names the first field at fault.
    pub fn validate(&self) -> Result<(), IsolationError> {
        let check = |ok: bool, field, reason| {
            if ok {
                Ok(())
            } else {
                Err(IsolationError::InvalidSpec { field, reason })
            }
        };
        const ID: &str = "must be 1 to 64 of [A-Za-z0-9._-], not beginning with a dot";
        check(is_id(&self.sandbox_id), "sandbox_id", ID)?;
        check(is_id(&self.root_id), "root_id", ID)?;
        check(
            is_hostname(&self.hostname),
            "hostname",
            "must be 1 to 64 of [A-Za-z0-9-]",
        )?;
        const ABSOLUTE: &str = "must be an absolute path";
        check(self.run_dir.is_absolute(), "run_dir", ABSOLUTE)?;
        check(self.volume.path().is_absolute(), "volume", ABSOLUTE)?;
        check(
            self.image.as_ref().is_none_or(|image| image.is_absolute()),
            "image",
            ABSOLUTE,
        )?;
        if let Base::Dir(dir) = &self.base {
            check(dir.is_absolute(), "base", ABSOLUTE)?;
        }
        let host_uid_ok = !am_root() || (LOWEST_HOST_UID..u32::MAX).contains(&self.host_uid);
        check(host_uid_ok, "host_uid", "must be at least 65536")?;
        check(self.egress_port != 0, "egress_port", "must not be 0")?;
        let limits = &self.limits;
        check(
            limits.memory_bytes >= LEAST_MEMORY,
            "limits.memory_bytes",
            "must be at least 8 MiB",
        )?;
        check(
            limits.pids >= LEAST_PIDS,
            "limits.pids",
            "must be at least 4",
        )?;
        check(
            limits.cpu_millis >= 10,
            "limits.cpu_millis",
            "must be at least 10",
        )?;
        check(
            limits.disk_bytes >= LEAST_DISK,
            "limits.disk_bytes",
            "must be at least 1 MiB",
        )?;
        check(limits.file_bytes > 0, "limits.file_bytes", "must not be 0")?;
        let rootless_loop = !am_root() && matches!(self.volume, Volume::LoopImage { .. });
        check(
            !rootless_loop,
            "volume",
            "a loop image needs root; use a directory",
        )
    }

    /// The box's own part of every cgroup path.
    pub(super) fn cgroup_suffix(&self) -> PathBuf {
        Path::new(&format!("astrabox-{}", self.root_id)).join(&self.sandbox_id)
    }
}

impl Volume {
    /// The file or directory on the host.
    pub fn path(&self) -> &Path {
        match self {
            Self::LoopImage { path } | Self::Directory { path } => path,
        }
    }
}

pub(super) fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_id(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=64).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}

fn is_hostname(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=64).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> BoxSpec {
        BoxSpec {
            sandbox_id: "sbx_1".into(),
            root_id: "r-1".into(),
            run_dir: "/r".into(),
            base: Base::Host,
            image: None,
            volume: Volume::Directory { path: "/v".into() },
            host_uid: 1_900_000_000,
            limits: Limits {
                memory_bytes: 1 << 30,
                pids: 64,
                cpu_millis: 1000,
                disk_bytes: 1 << 30,
                file_bytes: 1 << 30,
            },
            level: PermissionLevel::Default,
            hostname: "box".into(),
            egress_port: 3128,
        }
    }

    #[test]
    fn a_spec_survives_json_and_refuses_what_it_does_not_know() {
        let json = serde_json::to_string(&spec()).expect("serialises");
        assert_eq!(
            serde_json::from_str::<BoxSpec>(&json).expect("reads back"),
            spec()
        );
        assert!(
            json.contains(r#""base":"host""#)
                && json.contains(r#""volume":{"directory":{"path":"/v"}}"#)
        );
        let extra = json.replacen('{', r#"{"privileged":true,"#, 1);
        assert!(serde_json::from_str::<BoxSpec>(&extra).is_err());
    }

    #[test]
    fn each_impossible_field_is_named() {
        type Break = fn(&mut BoxSpec);
        let cases: &[(&str, Break)] = &[
            ("sandbox_id", |s| s.sandbox_id = "../x".into()),
            ("sandbox_id", |s| s.sandbox_id = ".x".into()),
            ("root_id", |s| s.root_id = String::new()),
            ("hostname", |s| s.hostname = "a b".into()),
            ("run_dir", |s| s.run_dir = "r".into()),
            ("volume", |s| {
                s.volume = Volume::Directory { path: "v".into() }
            }),
            ("image", |s| s.image = Some("i".into())),
            ("base", |s| s.base = Base::Dir("b".into())),
            ("egress_port", |s| s.egress_port = 0),
            ("limits.memory_bytes", |s| s.limits.memory_bytes = 1),
            ("limits.pids", |s| s.limits.pids = 0),
            ("limits.cpu_millis", |s| s.limits.cpu_millis = 0),
            ("limits.disk_bytes", |s| s.limits.disk_bytes = 0),
            ("limits.file_bytes", |s| s.limits.file_bytes = 0),
        ];
        assert!(spec().validate().is_ok());
        for (field, breaks) in cases {
            let mut broken = spec();
            breaks(&mut broken);
            match broken.validate() {
                Err(IsolationError::InvalidSpec { field: named, .. }) => assert_eq!(named, *field),
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
