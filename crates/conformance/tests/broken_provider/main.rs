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
    sb1_nothing_is_found: FindForgets => [],
    sb1_one_of_two_is_chosen: FindChooses => [],
    sb2_a_failed_create_stays: FailedCreateStays => [],
    sb3_what_is_not_there_is_another_error: ConnectMumbles => [],
    sb4_doubt_is_told_as_proof: ProbeGuesses => [],
    sb4_proof_is_told_as_doubt: ProbeIsNeverSure => [],
    sb5_an_end_is_believed: ConfirmBelieves => [],
    sb5_an_end_cannot_be_asked_for_twice: DestroyOnlyOnce => [],
    sb6_a_ghost_is_listed: GhostIsListed => [],
    sb6_a_ghost_has_a_claim: GhostHasAClaim => [],
    sb7_a_volume_forgets: VolumeForgets => [],
    sb7_a_volume_is_swapped: VolumeIsSwapped => [],
    sb7_a_volume_in_use_is_deleted: VolumeInUseIsDeleted => [],
    sb7_a_volume_is_not_deleted: VolumeIsNotDeleted => [],
    sb8_a_pause_is_ignored: PauseIsIgnored => [],
    sb8_an_undeclared_pause_works: UndeclaredPauseWorks => [],
    sb8_a_snapshot_is_empty: SnapshotIsEmpty => [],
    sb8_an_update_is_dropped: UpdateIsDropped => [],
    sb9_every_root_is_listed: EveryRootIsListed => [],
    sb9_every_root_destroys: EveryRootDestroys => [],
    sb10_a_posture_is_guessed: PostureIsGuessed => [],
    sb11_an_offset_is_ignored: OffsetIsIgnored => [],
    sb11_output_is_read_once: OutputIsReadOnce => [],
    sb11_an_acknowledgement_is_ignored: AcknowledgeIsIgnored => [],
    sb12_a_write_is_repeated: StdinRepeats => [],
    sb12_a_gap_is_taken: GapIsTaken => [],
    sb13_a_second_process_is_started: SpawnStartsAgain => [],
    sb13_another_request_is_taken: SpawnTakesAnything => [],
    sb13_the_environment_leaks: EnvironmentLeaks => [],
    sb14_an_end_has_no_reason: ExitHasNoReason => [],
    sb15_a_link_leads_out: LinkLeadsOut => [],
    sb15_removing_follows_a_link: RemoveFollows => [],
    sb15_a_list_is_unsorted: ListIsUnsorted => [],
    sb15_an_exclusive_write_replaces: ExclusiveReplaces => [],
    sb15_the_base_is_written: BaseIsWritten => [],
    sb16_a_policy_is_widened: PolicyIsWidened => [],
    sb16_the_gate_is_not_opened_again: GateIsNotOpenedAgain => [],
    sb16_the_gate_is_not_closed: GateIsNotClosed => [],
}
