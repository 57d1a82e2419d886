//! Files, what a box uses, and what confines it.

use astrabox_types::PermissionLevel;

use super::{Result, Unintelligible};
use crate::model::{
    Enforcement, FileInfo, FileKind, LimitPosture, Posture, Stats, WriteFileOptions,
};
use crate::wire;

impl From<FileInfo> for wire::FileInfo {
    fn from(info: FileInfo) -> Self {
        Self {
            name: info.name,
            kind: wire::FileKind::from(info.kind).into(),
            size: info.size,
            mode: info.mode,
            modified_ms: info.modified_ms,
            link_target: info.link_target.unwrap_or_default(),
        }
    }
}

impl TryFrom<wire::FileInfo> for FileInfo {
    type Error = Unintelligible;

    fn try_from(info: wire::FileInfo) -> Result<Self> {
        let kind = FileKind::from_wire(info.kind)?;
        Ok(Self {
            name: info.name,
            kind,
            size: info.size,
            mode: info.mode,
            modified_ms: info.modified_ms,
            link_target: (kind == FileKind::Symlink).then_some(info.link_target),
        })
    }
}

impl WriteFileOptions {
    /// The header of a write to `path`.
    #[must_use]
    pub fn header(self, path: impl Into<String>) -> wire::WriteFileHeader {
        wire::WriteFileHeader {
            path: path.into(),
            mode: self.mode,
            exclusive: self.exclusive,
            sync: self.sync,
            create_parents: self.create_parents,
        }
    }
}

impl From<&wire::WriteFileHeader> for WriteFileOptions {
    fn from(header: &wire::WriteFileHeader) -> Self {
        Self {
            mode: header.mode,
            exclusive: header.exclusive,
            sync: header.sync,
            create_parents: header.create_parents,
        }
    }
}

impl From<Stats> for wire::StatsResponse {
    fn from(stats: Stats) -> Self {
        Self {
            memory_bytes: stats.memory_bytes,
            memory_peak_bytes: stats.memory_peak_bytes,
            processes: stats.processes,
            cpu_us: stats.cpu_us,
            disk_used_bytes: stats.disk_used_bytes,
            disk_total_bytes: stats.disk_total_bytes,
            oom_kills: stats.oom_kills,
            forks_refused: stats.forks_refused,
        }
    }
}

impl From<wire::StatsResponse> for Stats {
    fn from(stats: wire::StatsResponse) -> Self {
        Self {
            memory_bytes: stats.memory_bytes,
            memory_peak_bytes: stats.memory_peak_bytes,
            processes: stats.processes,
            cpu_us: stats.cpu_us,
            disk_used_bytes: stats.disk_used_bytes,
            disk_total_bytes: stats.disk_total_bytes,
            oom_kills: stats.oom_kills,
            forks_refused: stats.forks_refused,
        }
    }
}

impl From<LimitPosture> for wire::LimitPosture {
    fn from(posture: LimitPosture) -> Self {
        Self {
            enforcement: wire::Enforcement::from(posture.enforcement).into(),
            how: posture.how,
        }
    }
}

fn limit(posture: Option<wire::LimitPosture>, field: &'static str) -> Result<LimitPosture> {
    let posture = posture.ok_or(Unintelligible(field))?;
    Ok(LimitPosture {
        enforcement: Enforcement::from_wire(posture.enforcement)?,
        how: posture.how,
    })
}

const LEVELS: [(PermissionLevel, &str); 2] = [
    (PermissionLevel::Default, "default"),
    (PermissionLevel::Advanced, "advanced"),
];

impl From<Posture> for wire::PostureResponse {
    fn from(posture: Posture) -> Self {
        let level = LEVELS.iter().find(|(level, _)| *level == posture.level);
        Self {
            permission_level: level.map_or("", |(_, name)| name).to_owned(),
            rootless: posture.rootless,
            host_uid: posture.host_uid,
            box_uid: posture.box_uid,
            namespaces: posture.namespaces,
            no_new_privileges: posture.no_new_privileges,
            no_capabilities: posture.no_capabilities,
            seccomp: posture.seccomp,
            loopback_only: posture.loopback_only,
            base: posture.base,
            host_paths_hidden: posture.host_paths_hidden,
            cgroup_version: posture.cgroup_version,
            memory: Some(posture.memory.into()),
            pids: Some(posture.pids.into()),
            cpu: Some(posture.cpu.into()),
            disk: Some(posture.disk.into()),
            file_size: Some(posture.file_size.into()),
            freeze: Some(posture.freeze.into()),
            notes: posture.notes,
        }
    }
}

impl TryFrom<wire::PostureResponse> for Posture {
    type Error = Unintelligible;

    fn try_from(response: wire::PostureResponse) -> Result<Self> {
        let name = response.permission_level;
        let level = LEVELS.iter().find(|(_, candidate)| *candidate == name);
        Ok(Self {
            level: level.ok_or(Unintelligible("permission level"))?.0,
            rootless: response.rootless,
            host_uid: response.host_uid,
            box_uid: response.box_uid,
            namespaces: response.namespaces,
            no_new_privileges: response.no_new_privileges,
            no_capabilities: response.no_capabilities,
            seccomp: response.seccomp,
            loopback_only: response.loopback_only,
            base: response.base,
            host_paths_hidden: response.host_paths_hidden,
            cgroup_version: response.cgroup_version,
            memory: limit(response.memory, "memory")?,
            pids: limit(response.pids, "pids")?,
            cpu: limit(response.cpu, "cpu")?,
            disk: limit(response.disk, "disk")?,
            file_size: limit(response.file_size, "file size")?,
            freeze: limit(response.freeze, "freeze")?,
            notes: response.notes,
        })
    }
}
