//! An engine with one fault fails the cases of the clause that it breaks, and no other case.

mod adapter;
mod client;
mod faults;
mod protocol;
mod workload;

use std::sync::Arc;

use astrabox_conformance::doubles::TalkFixture;
use astrabox_conformance::{Filter, engine};

use adapter::Broken;
use faults::Fault;

/// Declares a test for each fault, with the cases that must fail.
macro_rules! faults {
    ($($test:ident: $fault:ident => [$($case:ident),* $(,)?],)*) => {
        $(
            #[test]
            fn $test() {
                let adapter = &Broken::<{ Fault::$fault as usize }>;
                let suite = engine::suite(adapter, Some(Arc::new(TalkFixture)));
                let report = suite.run_blocking(&Filter::all());
                let wanted: &[&str] = &[$(stringify!($case)),*];
                assert_eq!(report.failures(), wanted, "{report}");
            }
        )*
    };
}

faults! {
    en1_conversations_share_a_box: SharesABox => [
        two_conversations_know_nothing_of_each_other,
    ],
    en2_capabilities_change: CapabilitiesChange => [
        what_is_declared_is_the_same_at_every_look,
    ],
    en2_the_default_mode_is_unknown: DefaultModeIsUnknown => [
        the_default_mode_is_one_of_the_modes,
    ],
    en2_a_protected_key_is_odd: ProtectedKeyIsOdd => [
        protected_options_are_refused_in_every_form,
    ],
    en2_the_wire_differs: WireDiffers => [
        a_sandbox_can_be_asked_for_at_every_level,
    ],
    en2_the_recipe_takes_the_latest: RecipeTakesTheLatest => [
        every_package_of_the_recipe_has_its_version_and_hash,
    ],
    en2_the_recipe_has_no_hash: RecipeHasNoHash => [
        every_package_of_the_recipe_has_its_version_and_hash,
    ],
    en3_a_process_is_left: LeavesAProcess => [
        a_connection_lost_at_the_start_leaves_no_process,
        a_checkpoint_of_somebody_else_is_refused,
    ],
    en3_the_placeholder_is_in_the_arguments: PlaceholderInArguments => [
        the_program_is_started_as_the_sandbox_wants_it,
    ],
    en3_close_does_nothing: CloseDoesNothing => [
        an_unbound_program_can_be_closed,
        closing_ends_the_program_and_the_stream,
    ],
    en4_another_conversation_is_accepted: AcceptsAnother => [
        another_conversation_than_the_stored_one_is_refused,
    ],
    en4_a_bind_waits_too_long: WaitsTooLong => [
        a_program_that_talks_nonsense_is_not_a_conversation,
        a_program_that_floods_nonsense_is_not_a_conversation,
        a_silent_program_is_not_waited_for_forever,
    ],
    en4_a_new_conversation_is_begun: BeginsAnew => [
        a_checkpoint_of_somebody_else_is_refused,
    ],
    en5_a_delivery_is_repeated: DeliversAgain => [
        a_repeated_delivery_is_said_once,
    ],
    en6_an_input_is_taken_late: TakesLate => [
        an_answer_comes_whole_and_ends_its_turn_once,
    ],
    en7_bytes_leave_early: WritesEarly => [
        bytes_leave_only_after_their_checkpoint_is_committed,
    ],
    en7_what_waits_is_forgotten: ForgetsWhatWaits => [
        a_crash_before_the_write_loses_nothing,
    ],
    en8_state_is_forgotten: ForgetsState => [
        a_client_that_is_lost_at_every_step_tells_the_same,
    ],
    en8_pieces_are_decoded: DecodesPieces => [
        the_same_bytes_in_any_pieces_tell_the_same,
    ],
    en9_a_turn_ends_twice: EndsTwice => [
        an_answer_comes_whole_and_ends_its_turn_once,
    ],
    en9_a_turn_ends_on_silence: EndsOnSilence => [
        a_turn_does_not_end_on_silence,
    ],
    en9_a_turn_outlives_its_program: OutlivesItsProgram => [
        a_program_that_dies_in_a_turn_ends_it_as_failed,
        a_program_that_is_killed_in_a_turn_ends_it_as_failed,
    ],
    en10_a_lost_connection_is_an_end: EndsWhenDetached => [
        a_lost_connection_is_no_end,
    ],
    en11_the_unknown_is_dropped: DropsTheUnknown => [
        what_is_not_known_is_kept,
    ],
    en12_a_child_speaks_as_its_parent: TakesChildForParent => [
        a_child_is_not_taken_for_its_parent,
    ],
    en13_requests_are_left: LeavesRequests => [
        a_request_that_is_not_known_is_answered,
        a_client_that_is_lost_at_every_step_tells_the_same,
        the_same_bytes_in_any_pieces_tell_the_same,
    ],
    en14_an_answer_goes_nowhere: AnswersNobody => [
        a_person_is_asked_and_the_answer_goes_on,
        an_interrupt_closes_what_is_asked,
        an_answer_to_what_is_not_asked_is_refused,
    ],
    en14_interactions_are_hidden: HidesInteractions => [
        powers_are_the_same_at_every_look,
        a_person_is_asked_and_the_answer_goes_on,
        an_interrupt_closes_what_is_asked,
    ],
}
