//! `astrabox session children` and `stop-child`.

use astrabox_client::{Client, v1};
use serde_json::json;

use crate::out::{Column, Out};

const COLUMNS: &[Column] = &[
    ("ID", "/child_run_id"),
    ("STATE", "/state"),
    ("TITLE", "/title"),
];

/// Each as it stands, in the order in which they began.
pub(crate) async fn list(client: &Client, out: &Out, session_id: String) -> anyhow::Result<()> {
    let request = v1::ListChildRunsRequest { session_id };
    let runs = client.list_child_runs(request).await?.child_runs;
    let rows = runs.iter().map(|run| out.message("ChildRunChanged", run));
    out.table("child_runs", rows.collect(), COLUMNS)
}

/// Asks the engine; the journal tells when it has stopped.
pub(crate) async fn stop(
    client: &Client,
    out: &Out,
    session_id: String,
    child_run: String,
) -> anyhow::Result<()> {
    let request = v1::StopChildRunRequest {
        session_id,
        child_run_id: child_run.clone(),
        ..Default::default()
    };
    let state = client.stop_child_run(request).await?.state();
    let text = match state {
        v1::ChildRunState::Running => format!("{child_run} is asked to stop"),
        _ => format!("{child_run} has ended already"),
    };
    out.done(&json!({ "child_run_id": child_run }), &text)
}
