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
    en1_conversations_share_a_box: SharesABox => [],
    en2_capabilities_change: CapabilitiesChange => [],
    en2_the_default_mode_is_unknown: DefaultModeIsUnknown => [],
    en2_a_protected_key_is_odd: ProtectedKeyIsOdd => [],
    en2_the_wire_differs: WireDiffers => [],
    en2_the_recipe_takes_the_latest: RecipeTakesTheLatest => [],
    en2_the_recipe_has_no_hash: RecipeHasNoHash => [],
    en3_a_process_is_left: LeavesAProcess => [],
    en3_the_placeholder_is_in_the_arguments: PlaceholderInArguments => [],
    en3_close_does_nothing: CloseDoesNothing => [],
    en4_another_conversation_is_accepted: AcceptsAnother => [],
    en4_a_bind_waits_too_long: WaitsTooLong => [],
    en4_a_new_conversation_is_begun: BeginsAnew => [],
    en5_a_delivery_is_repeated: DeliversAgain => [],
    en6_an_input_is_taken_late: TakesLate => [],
    en7_bytes_leave_early: WritesEarly => [],
    en7_what_waits_is_forgotten: ForgetsWhatWaits => [],
    en8_state_is_forgotten: ForgetsState => [],
    en8_pieces_are_decoded: DecodesPieces => [],
    en9_a_turn_ends_twice: EndsTwice => [],
    en9_a_turn_ends_on_silence: EndsOnSilence => [],
    en9_a_turn_outlives_its_program: OutlivesItsProgram => [],
    en10_a_lost_connection_is_an_end: EndsWhenDetached => [],
    en11_the_unknown_is_dropped: DropsTheUnknown => [],
    en12_a_child_speaks_as_its_parent: TakesChildForParent => [],
    en13_requests_are_left: LeavesRequests => [],
    en14_an_answer_goes_nowhere: AnswersNobody => [],
    en14_interactions_are_hidden: HidesInteractions => [],
}
