//! Approvals of the real Codex, answered by whoever is there.

astrabox_tests::cases! {
    CODEX, approvals:
    a_second_client_allows_a_command,
    a_declined_command_does_not_run_and_the_turn_goes_on,
    an_approval_for_the_session_is_not_asked_again_and_a_cancel_ends_the_turn,
    an_interrupt_closes_an_open_approval,
}
