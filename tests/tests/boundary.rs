//! The boundary as programs inside meet it, once, with the real Claude Code to start them.

use astrabox_tests::{CLAUDE_CODE, cases};

#[tokio::test]
async fn usual_tools_reach_a_host_with_a_credential() {
    cases::tools::usual_tools_reach_a_host_with_a_credential(&CLAUDE_CODE).await;
}

#[tokio::test]
async fn a_crash_leaves_no_core_file() {
    cases::cores::a_crash_leaves_no_core_file(&CLAUDE_CODE).await;
}
