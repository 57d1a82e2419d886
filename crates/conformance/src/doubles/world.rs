//! What a restart of the server survives, for providers in memory: sandboxes and volumes, by root.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{
    Claim, CreateSpec, EgressWorkload, Error, ErrorKind, Result, SandboxInfo, SandboxState,
};
use astrabox_types::{PermissionLevel, ResourceLimits, SandboxId, Timestamp, VolumeId};

use super::{MemoryFiles, MemoryWorkload, Programs};

/// The host of providers in memory. A clone is the same host.
#[derive(Clone, Default)]
pub struct MemoryWorld(Arc<Mutex<BTreeMap<String, Root>>>);

/// What one sandbox root owns.
#[derive(Default)]
pub(super) struct Root {
    pub(super) boxes: BTreeMap<SandboxId, MemoryBox>,
    volumes: BTreeMap<VolumeId, Volume>,
}

#[derive(Default)]
struct Volume {
    files: MemoryFiles,
    used_by: Option<SandboxId>,
}

/// One sandbox.
pub(super) struct MemoryBox {
    pub(super) claim: Claim,
    pub(super) info: SandboxInfo,
    pub(super) workload: MemoryWorkload,
    pub(super) policy: EgressPolicy,
    pub(super) limits: ResourceLimits,
    pub(super) level: PermissionLevel,
    listener: OwnedFd,
    /// It does not answer, though it runs.
    obscured: bool,
}

impl MemoryWorld {
    /// A host with nothing on it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a sandbox stop or start answering. It runs on either way.
    pub fn obscure(&self, root: &str, id: SandboxId, obscured: bool) {
        let mut roots = self.roots();
        let found = roots.get_mut(root).and_then(|root| root.boxes.get_mut(&id));
        if let Some(one) = found {
            one.obscured = obscured;
        }
    }

    fn roots(&self) -> MutexGuard<'_, BTreeMap<String, Root>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a root, or changes it.
    pub(super) fn with<T>(&self, root: &str, look: impl FnOnce(&mut Root) -> T) -> T {
        look(self.roots().entry(root.to_owned()).or_default())
    }
}

impl Root {
    pub(super) fn get(&mut self, operation: &'static str, id: SandboxId) -> Result<&mut MemoryBox> {
        let one = self
            .boxes
            .get_mut(&id)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, operation, "no sandbox has this id"))?;
        if one.obscured {
            let text = "the sandbox does not answer";
            return Err(Error::new(ErrorKind::Detached, operation, text));
        }
        Ok(one)
    }

    /// Makes a box; nothing is changed when it cannot be made.
    pub(super) fn make(&mut self, spec: CreateSpec, programs: Programs) -> Result<&mut MemoryBox> {
        let error = |kind, text: &str| Err(Error::new(kind, "create sandbox", text));
        if self.boxes.contains_key(&spec.sandbox_id) {
            return error(ErrorKind::AlreadyExists, "a sandbox has this id");
        }
        if spec
            .image
            .as_ref()
            .is_some_and(|image| !image.root.is_dir())
        {
            return error(ErrorKind::ImageMissing, "the image is not there");
        }
        let used = self.volumes.get(&spec.volume_id).and_then(|v| v.used_by);
        if used.is_some() {
            return error(ErrorKind::WrongState, "another sandbox has the volume");
        }
        let (listener, address) = listen()?;
        let volume = self.volumes.entry(spec.volume_id).or_default();
        volume.used_by = Some(spec.sandbox_id);
        let workload = MemoryWorkload::with_files(programs, volume.files.clone());
        workload.set_egress(address);
        let claim = Claim {
            session_id: spec.session_id,
            assignment_id: spec.assignment_id,
            volume_id: spec.volume_id,
        };
        let info = SandboxInfo {
            id: spec.sandbox_id,
            claim: claim.clone(),
            state: SandboxState::Running,
            created_at: Timestamp::now(),
            image: spec.image.map(|image| image.name),
            labels: spec.labels,
        };
        let made = MemoryBox {
            claim,
            info,
            workload,
            policy: spec.egress,
            limits: spec.limits,
            level: spec.permission_level,
            listener,
            obscured: false,
        };
        Ok(self.boxes.entry(spec.sandbox_id).or_insert(made))
    }

    /// Ends a box and gives its volume back.
    pub(super) fn end(&mut self, id: SandboxId) {
        let Some(one) = self.boxes.remove(&id) else {
            return;
        };
        one.workload.end();
        if let Some(volume) = self.volumes.get_mut(&one.claim.volume_id) {
            volume.files = one.workload.files().of_volume();
            volume.used_by = None;
        }
    }

    pub(super) fn delete_volume(&mut self, volume: VolumeId) -> Result<()> {
        if self
            .volumes
            .get(&volume)
            .is_some_and(|v| v.used_by.is_some())
        {
            let text = "a sandbox has the volume";
            return Err(Error::new(ErrorKind::WrongState, "delete volume", text));
        }
        self.volumes.remove(&volume);
        Ok(())
    }
}

impl MemoryBox {
    /// The listener and who speaks through it, for the gate.
    pub(super) fn way_out(&self) -> Result<(EgressWorkload, EgressPolicy, OwnedFd)> {
        let workload = EgressWorkload {
            sandbox_id: self.info.id,
            session_id: self.claim.session_id,
        };
        let listener = self.listener.try_clone().map_err(no_socket)?;
        Ok((workload, self.policy.clone(), listener))
    }
}

/// A listener on the loopback of this host: a box in memory has none of its own.
fn listen() -> Result<(OwnedFd, std::net::SocketAddr)> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).map_err(no_socket)?;
    let address = listener.local_addr().map_err(no_socket)?;
    Ok((listener.into(), address))
}

fn no_socket(error: std::io::Error) -> Error {
    Error::new(ErrorKind::NoCapacity, "listen", "no socket").with_source(error)
}
