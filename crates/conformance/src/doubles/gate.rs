//! An egress gate that writes down what it is asked and answers every connection with the sandbox's id.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use astrabox_egress::EgressPolicy;
use astrabox_sandbox::{EgressGate, EgressListener, EgressWorkload, Error, ErrorKind, Result};
use astrabox_types::SandboxId;
use async_trait::async_trait;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// One call of the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateCall {
    /// A workload was opened.
    Open(EgressWorkload, EgressPolicy),
    /// A policy was changed.
    Update(SandboxId, EgressPolicy),
    /// A workload was closed.
    Close(SandboxId),
}

/// An egress gate that answers each connection with one line, `gate ID`, and closes it. A clone is the same gate.
#[derive(Clone, Default)]
pub struct RecordingGate(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    calls: Vec<GateCall>,
    /// One task for each open workload; dropping the set ends its task and closes its listener.
    open: BTreeMap<SandboxId, JoinSet<()>>,
}

impl RecordingGate {
    /// A gate that was asked nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What it was asked about this sandbox, in order.
    #[must_use]
    pub fn calls(&self, id: SandboxId) -> Vec<GateCall> {
        let of_id = |call: &&GateCall| match call {
            GateCall::Open(workload, _) => workload.sandbox_id == id,
            GateCall::Update(other, _) | GateCall::Close(other) => *other == id,
        };
        self.state().calls.iter().filter(of_id).cloned().collect()
    }

    /// The line with which it answers the connections of this sandbox.
    #[must_use]
    pub fn answer(id: SandboxId) -> String {
        format!("gate {id}")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn listener_error(error: std::io::Error) -> Error {
    let text = "the descriptor given is not a listening socket";
    Error::new(ErrorKind::Invalid, "open egress", text).with_source(error)
}

#[async_trait]
impl EgressGate for RecordingGate {
    async fn open(
        &self,
        workload: EgressWorkload,
        policy: EgressPolicy,
        listener: EgressListener,
    ) -> Result<()> {
        let listener = std::net::TcpListener::from(listener);
        listener.set_nonblocking(true).map_err(listener_error)?;
        let listener = TcpListener::from_std(listener).map_err(listener_error)?;
        let id = workload.sandbox_id;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let answer = format!("{}\n", Self::answer(id));
            // A listener that fails ends; the case sees that nobody answers.
            while let Ok((mut stream, _)) = listener.accept().await {
                // The other end may have gone; that is its own affair.
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        let mut state = self.state();
        state.calls.push(GateCall::Open(workload, policy));
        state.open.insert(id, tasks);
        Ok(())
    }

    async fn update(&self, sandbox_id: SandboxId, policy: EgressPolicy) -> Result<()> {
        let mut state = self.state();
        if !state.open.contains_key(&sandbox_id) {
            let text = "the workload is not open";
            return Err(Error::new(ErrorKind::NotFound, "update egress", text));
        }
        state.calls.push(GateCall::Update(sandbox_id, policy));
        Ok(())
    }

    async fn close(&self, sandbox_id: SandboxId) -> Result<()> {
        let mut state = self.state();
        state.calls.push(GateCall::Close(sandbox_id));
        state.open.remove(&sandbox_id);
        Ok(())
    }
}
