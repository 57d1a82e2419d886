//! The faults, each with the cases that must fail for it and no other.

/// One way in which a provider does not keep a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SB1: no sandbox is found by its assignment.
    FindForgets,
    /// SB1: one of two is chosen.
    FindChooses,
    /// SB2: a create that failed is listed.
    FailedCreateStays,
    /// SB3: a sandbox that is not there is some other error.
    ConnectMumbles,
    /// SB4: doubt is told as proof.
    ProbeGuesses,
    /// SB4: proof is told as doubt.
    ProbeIsNeverSure,
    /// SB5: an end is confirmed that nobody saw.
    ConfirmBelieves,
    /// SB5: a second request to destroy is an error.
    DestroyOnlyOnce,
    /// SB6: a destroyed sandbox is listed.
    GhostIsListed,
    /// SB6: the claim of a destroyed sandbox stays.
    GhostHasAClaim,
    /// SB7: a volume is emptied for the next sandbox.
    VolumeForgets,
    /// SB7: a second sandbox with a volume gets another one.
    VolumeIsSwapped,
    /// SB7: a volume in use is deleted, as it is said.
    VolumeInUseIsDeleted,
    /// SB7: a deleted volume is kept.
    VolumeIsNotDeleted,
    /// SB8: a declared pause does nothing.
    PauseIsIgnored,
    /// SB8: an undeclared pause is said to work.
    UndeclaredPauseWorks,
    /// SB8: a declared snapshot is empty.
    SnapshotIsEmpty,
    /// SB8: a changed policy reaches nobody.
    UpdateIsDropped,
    /// SB9: the sandboxes of every root are listed.
    EveryRootIsListed,
    /// SB9: any root destroys any sandbox.
    EveryRootDestroys,
    /// SB10: the posture tells what is usual.
    PostureIsGuessed,
    /// SB11: an attachment begins at 0 whatever was asked for.
    OffsetIsIgnored,
    /// SB11: output that was read once is gone.
    OutputIsReadOnce,
    /// SB11: acknowledged output is kept for ever.
    AcknowledgeIsIgnored,
    /// SB12: a repeated write is written again.
    StdinRepeats,
    /// SB12: a gap is closed up.
    GapIsTaken,
    /// SB13: the same request starts a second process.
    SpawnStartsAgain,
    /// SB13: another request is taken for the same.
    SpawnTakesAnything,
    /// SB13: something of the host's environment comes along.
    EnvironmentLeaks,
    /// SB14: every end is one by itself.
    ExitHasNoReason,
    /// SB15: a link of the sandbox is followed on the host.
    LinkLeadsOut,
    /// SB15: removing a link removes what it points to.
    RemoveFollows,
    /// SB15: files are listed in no order.
    ListIsUnsorted,
    /// SB15: an exclusive write replaces a file.
    ExclusiveReplaces,
    /// SB15: a write to the base is said to work.
    BaseIsWritten,
    /// SB16: the gate gets a wider policy.
    PolicyIsWidened,
    /// SB16: a restarted server does not open the gate again.
    GateIsNotOpenedAgain,
    /// SB16: the gate of a destroyed sandbox stays open.
    GateIsNotClosed,
}
