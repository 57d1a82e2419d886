//! Credentials that the real Codex uses and never holds.

astrabox_tests::cases! {
    CODEX, credentials:
    canaries_reach_their_servers_and_nothing_else,
    a_key_beside_a_run_reaches_the_model_and_no_sandbox,
    a_repository_is_cloned_once_and_what_is_there_stays,
}
