//! Credentials that the real Claude Code uses and never holds.

astrabox_tests::cases! {
    CLAUDE_CODE, credentials:
    canaries_reach_their_servers_and_nothing_else,
}
