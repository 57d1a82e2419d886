//! Turns of the real Claude Code: streaming, tools, queueing, interrupts, errors.

astrabox_tests::cases! {
    CLAUDE_CODE, turns:
    an_answer_is_streamed_and_then_whole,
    reasoning_and_usage_are_told,
    a_shell_call_writes_into_the_workspace,
    a_written_file_is_told_as_a_change,
    two_queued_inputs_get_a_turn_each_in_order,
    an_interrupt_stops_a_streaming_answer,
    an_interrupt_stops_a_running_tool,
    an_error_of_the_model_fails_the_turn_with_a_reason,
    a_killed_engine_fails_its_turn_and_the_session_goes_on,
    only_allowed_hosts_are_reached_from_inside,
}

astrabox_tests::cases! {
    CLAUDE_CODE, children:
    a_child_run_is_told_apart_from_its_parent,
}
