//! What an agent of the real Codex brings along: MCP servers, skills, pictures.

astrabox_tests::cases! {
    CODEX, tooling:
    a_tool_of_an_mcp_server_is_asked_for_and_called,
    a_skill_is_known_to_the_program,
    an_mcp_server_at_a_host_that_is_not_allowed_is_refused,
    a_picture_reaches_the_model,
}
