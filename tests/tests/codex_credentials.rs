//! Credentials that the real Codex uses and never holds.

astrabox_tests::cases! {
    CODEX, credentials:
    canaries_reach_their_servers_and_nothing_else,
}
