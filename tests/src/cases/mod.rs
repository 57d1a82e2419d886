//! What every agent program does alike, as cases that take the program. Each case says what a program must have for it;
//! the suite `live` runs every case over every program that declares that.

use std::pin::Pin;

use astrabox_engine::EngineCapabilities;
use astrabox_types::EngineFeature;

use crate::Program;

pub mod approvals;
pub mod children;
pub mod cores;
pub mod credentials;
pub mod interactions;
pub mod lives;
pub mod tooling;
pub mod tools;
pub mod turns;

/// A running case.
pub type Running = Pin<Box<dyn Future<Output = ()>>>;

/// One case.
#[derive(Clone, Copy)]
pub struct Case {
    /// The module that it stands in.
    pub module: &'static str,
    /// The fact that it shows.
    pub name: &'static str,
    /// What a program must have for it.
    pub needs: &'static [Need],
    /// Runs it; it panics when the fact is none.
    pub run: fn(&'static Program) -> Running,
}

/// One thing that a program must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A feature that its engine declares, and that this program of it has.
    Has(EngineFeature),
    /// It takes pictures.
    Pictures,
    /// It asks the network for nothing but the model, and the model for nothing but the turn.
    Quiet,
    /// Its engine brings it, so that `astrabox run` needs no environment.
    Brought,
    /// Its sub-agents outlive the turn that began them.
    BackgroundChild,
    /// Its commands outlive the turn that began them, where they are told to.
    BackgroundCommand,
}

impl Case {
    /// Whether this program has what the case needs.
    #[must_use]
    pub fn fits(&self, program: &Program, capabilities: &EngineCapabilities) -> bool {
        self.needs.iter().all(|need| match need {
            Need::Has(feature) => capabilities.has(*feature) && !program.lacks.contains(feature),
            Need::Pictures => capabilities.input_content_types.contains(&"image"),
            Need::Quiet => program.is_quiet(),
            Need::Brought => !capabilities.names_program,
            Need::BackgroundChild => !program.background_child.is_empty(),
            Need::BackgroundCommand => !program.background_command.is_empty(),
        })
    }
}

/// A list of cases: `module: name [needs], ...;`. A need is the name of a feature or of another [`Need`].
macro_rules! list {
    ($($module:ident: $($name:ident [$($need:ident)*]),+ $(,)?;)+) => {
        vec![$($(
            Case {
                module: stringify!($module),
                name: stringify!($name),
                needs: &[$(need!($need)),*],
                run: |program| Box::pin($module::$name(program)),
            },
        )+)+]
    };
}

macro_rules! need {
    (Pictures) => {
        Need::Pictures
    };
    (Quiet) => {
        Need::Quiet
    };
    (BackgroundChild) => {
        Need::BackgroundChild
    };
    (BackgroundCommand) => {
        Need::BackgroundCommand
    };
    (Brought) => {
        Need::Brought
    };
    ($feature:ident) => {
        Need::Has(EngineFeature::$feature)
    };
}

/// All cases.
#[must_use]
pub fn all() -> Vec<Case> {
    list! {
        turns:
            an_answer_is_streamed_and_then_whole [],
            reasoning_and_usage_are_told [Reasoning Usage],
            instructions_reach_the_model [SystemPrompt],
            a_shell_call_writes_into_the_workspace [],
            a_written_file_is_told_as_a_change [FileChanges],
            two_queued_inputs_get_a_turn_each_in_order [],
            an_interrupt_stops_a_streaming_answer [],
            an_interrupt_stops_a_running_tool [],
            an_error_of_the_model_fails_the_turn_with_a_reason [],
            a_killed_engine_fails_its_turn_and_the_session_goes_on [],
            a_prompt_of_200_kb_arrives_whole [],
            only_allowed_hosts_are_reached_from_inside [],
            nothing_but_the_model_is_asked_for [Quiet];
        approvals:
            a_second_client_allows_a_command [ToolApproval],
            a_declined_command_does_not_run_and_the_turn_goes_on [ToolApproval],
            an_approval_for_the_session_is_not_asked_again [ApprovalForSession],
            a_cancelled_approval_ends_the_turn [DeclineAndStop],
            a_call_is_made_with_the_input_that_a_person_changed [ChangedInput],
            an_interrupt_closes_an_open_approval [ToolApproval];
        interactions:
            a_question_is_answered_with_one_of_its_options [Question],
            a_plan_is_decided_and_its_approval_leaves_the_mode [Decision],
            a_mode_holds_at_once [ModeChange ToolApproval];
        children:
            a_child_run_is_told_apart_from_its_parent [ChildRuns],
            a_child_run_is_stopped [ChildRunStop],
            a_background_child_outlives_its_turn_and_reports_in_a_turn_of_its_own [BackgroundWork BackgroundChild],
            a_background_command_outlives_its_turn_and_is_told_in_a_turn_of_its_own [BackgroundWork BackgroundCommand];
        tooling:
            a_tool_of_an_mcp_server_is_called [McpStdio],
            an_mcp_server_at_a_host_that_is_not_allowed_is_refused [McpHttp],
            a_skill_is_known_to_the_program [Skills],
            a_plugin_is_known_to_the_program [Plugins],
            a_picture_reaches_the_model [Pictures];
        lives:
            a_released_session_goes_on_in_a_new_sandbox [],
            a_turn_survives_the_death_of_its_server [],
            an_approval_is_answered_after_a_restart [ToolApproval],
            a_server_that_ends_in_order_leaves_its_turns_running [],
            two_sessions_in_the_same_directory_remember_their_own_word [],
            a_program_killed_in_a_tool_resumes_a_conversation_that_the_model_takes [];
        credentials:
            canaries_reach_their_servers_and_nothing_else [McpHttp],
            a_key_beside_a_run_reaches_the_model_and_no_sandbox [Brought];
    }
}
