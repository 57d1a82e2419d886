//! A provider with one fault fails the cases of the clause that it breaks, and no other case.

mod faults;
mod provider;
mod workload;

use std::sync::Arc;

use astrabox_conformance::{Filter, sandbox};

use faults::Fault;
use provider::BrokenFixture;

/// Declares a test for each fault, with the cases that must fail.
macro_rules! faults {
    ($($test:ident: $fault:ident => [$($case:ident),* $(,)?],)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let fixture = Arc::new(BrokenFixture::new(Fault::$fault));
                let report = sandbox::run(fixture, &Filter::all()).await;
                let wanted: &[&str] = &[$(stringify!($case)),*];
                assert_eq!(report.failures(), wanted, "{report}");
            }
        )*
    };
}

faults! {
    sb1_nothing_is_found: FindForgets => [
        a_sandbox_is_found_by_its_assignment,
        a_restarted_server_finds_a_sandbox_by_its_assignment,
        two_sandboxes_of_one_assignment_are_an_error,
        another_root_may_use_the_same_assignment,
    ],
    sb1_one_of_two_is_chosen: FindChooses => [
        two_sandboxes_of_one_assignment_are_an_error,
    ],
    sb2_a_failed_create_stays: FailedCreateStays => [
        a_create_that_fails_leaves_nothing,
    ],
    sb3_what_is_not_there_is_another_error: ConnectMumbles => [
        connecting_to_what_is_not_there_is_not_found,
    ],
    sb4_doubt_is_told_as_proof: ProbeGuesses => [
        doubt_is_not_a_verdict,
    ],
    sb4_proof_is_told_as_doubt: ProbeIsNeverSure => [
        a_destroyed_sandbox_is_not_found_by_a_probe,
    ],
    sb5_an_end_is_believed: ConfirmBelieves => [
        a_living_sandbox_is_not_confirmed_destroyed,
    ],
    sb5_an_end_cannot_be_asked_for_twice: DestroyOnlyOnce => [
        destroying_is_confirmed_and_may_be_repeated,
    ],
    sb6_a_ghost_is_listed: GhostIsListed => [
        a_destroyed_sandbox_is_in_no_answer,
    ],
    sb6_a_ghost_has_a_claim: GhostHasAClaim => [
        a_destroyed_sandbox_is_in_no_answer,
    ],
    sb7_a_volume_forgets: VolumeForgets => [
        a_volume_outlives_its_sandbox,
    ],
    sb7_a_volume_is_swapped: VolumeIsSwapped => [
        a_volume_is_in_one_sandbox_at_a_time,
    ],
    sb7_a_volume_in_use_is_deleted: VolumeInUseIsDeleted => [
        a_volume_in_use_is_not_deleted,
    ],
    sb7_a_volume_is_not_deleted: VolumeIsNotDeleted => [
        a_deleted_volume_is_gone,
    ],
    sb8_a_pause_is_ignored: PauseIsIgnored => [
        a_paused_sandbox_stands_still_and_goes_on,
    ],
    sb8_an_undeclared_pause_works: UndeclaredPauseWorks => [
        a_paused_sandbox_stands_still_and_goes_on,
    ],
    sb8_a_snapshot_is_empty: SnapshotIsEmpty => [
        a_snapshot_seals_the_volume_of_a_running_sandbox,
    ],
    sb8_an_update_is_dropped: UpdateIsDropped => [
        a_changed_egress_policy_reaches_the_gate,
    ],
    sb9_every_root_is_listed: EveryRootIsListed => [
        another_root_does_not_see_a_sandbox,
        another_root_may_use_the_same_assignment,
    ],
    sb9_every_root_destroys: EveryRootDestroys => [
        another_root_cannot_end_a_sandbox,
    ],
    sb10_a_posture_is_guessed: PostureIsGuessed => [
        every_declared_permission_level_can_be_had_and_no_other,
    ],
    sb11_an_offset_is_ignored: OffsetIsIgnored => [
        output_is_read_from_any_offset,
        losing_a_reader_loses_nothing,
        acknowledged_output_is_freed_and_the_rest_kept,
        an_offset_beyond_the_output_is_refused,
    ],
    sb11_output_is_read_once: OutputIsReadOnce => [
        a_restarted_server_reaches_a_running_process,
        output_is_read_from_any_offset,
        reading_again_gives_the_same_bytes,
        two_readers_see_the_same,
        acknowledged_output_is_freed_and_the_rest_kept,
    ],
    sb11_an_acknowledgement_is_ignored: AcknowledgeIsIgnored => [
        acknowledged_output_is_freed_and_the_rest_kept,
    ],
    sb12_a_write_is_repeated: StdinRepeats => [
        a_repeated_write_is_not_written_twice,
        an_overlapping_write_adds_only_what_is_new,
        other_bytes_at_an_accepted_offset_never_arrive,
        a_restarted_server_repeats_a_write_without_harm,
    ],
    sb12_a_gap_is_taken: GapIsTaken => [
        a_gap_is_refused,
    ],
    sb13_a_second_process_is_started: SpawnStartsAgain => [
        the_same_request_gives_the_running_process,
        the_same_request_after_the_end_starts_nothing,
        another_request_under_a_name_is_refused,
        a_restarted_server_repeats_a_spawn_without_harm,
    ],
    sb13_another_request_is_taken: SpawnTakesAnything => [
        another_request_under_a_name_is_refused,
    ],
    sb13_the_environment_leaks: EnvironmentLeaks => [
        a_process_gets_what_it_was_given_and_nothing_of_the_host,
    ],
    sb14_an_end_has_no_reason: ExitHasNoReason => [
        a_reader_learns_of_the_end_of_its_sandbox,
        a_killed_process_says_so,
        a_signal_for_the_sandbox_ends_every_process,
        a_process_that_lived_too_long_says_so,
    ],
    sb15_a_link_leads_out: LinkLeadsOut => [
        a_link_to_a_host_file_reads_nothing_of_it,
    ],
    sb15_removing_follows_a_link: RemoveFollows => [
        removing_a_link_leaves_what_it_points_to,
    ],
    sb15_a_list_is_unsorted: ListIsUnsorted => [
        a_directory_is_listed_in_name_order,
    ],
    sb15_an_exclusive_write_replaces: ExclusiveReplaces => [
        an_exclusive_write_replaces_nothing,
    ],
    sb15_the_base_is_written: BaseIsWritten => [
        the_base_cannot_be_written,
    ],
    sb16_a_policy_is_widened: PolicyIsWidened => [
        a_changed_egress_policy_reaches_the_gate,
        the_gate_is_opened_with_the_policy_given,
        a_restarted_server_opens_the_gate_again,
    ],
    sb16_the_gate_is_not_opened_again: GateIsNotOpenedAgain => [
        a_restarted_server_opens_the_gate_again,
    ],
    sb16_the_gate_is_not_closed: GateIsNotClosed => [
        destroying_closes_the_gate,
    ],
}
