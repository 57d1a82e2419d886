//! Credentials that the real Claude Code uses and never holds.

astrabox_tests::cases! {
    CLAUDE_CODE, credentials:
    canaries_reach_their_servers_and_nothing_else,
    a_key_beside_a_run_reaches_the_model_and_no_sandbox,
}

astrabox_tests::cases! {
    CLAUDE_CODE, tools:
    usual_tools_reach_a_host_with_a_credential,
}

astrabox_tests::cases! {
    CLAUDE_CODE, cores:
    a_crash_leaves_no_core_file,
}
