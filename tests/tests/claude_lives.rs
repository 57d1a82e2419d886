//! What outlives what with the real Claude Code: the conversation its sandbox, the turn its server.

astrabox_tests::cases! {
    CLAUDE_CODE, lives:
    a_released_session_goes_on_in_a_new_sandbox,
    a_turn_survives_the_death_of_its_server,
    an_approval_is_answered_after_a_restart,
    a_server_that_ends_in_order_leaves_its_turns_running,
    two_sessions_in_the_same_directory_remember_their_own_word,
}
