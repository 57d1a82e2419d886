//! The faults of an engine.

/// One way in which an engine does not keep a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// EN1: a second conversation runs in the first one's box.
    SharesABox,
    /// EN2: capabilities are other ones at each look.
    CapabilitiesChange,
    /// EN2: the default mode is none of the modes.
    DefaultModeIsUnknown,
    /// EN2: a protected key is not one.
    ProtectedKeyIsOdd,
    /// EN2: the sandbox is asked for another wire than the declared one.
    WireDiffers,
    /// EN2: the recipe takes what is latest.
    RecipeTakesTheLatest,
    /// EN2: the recipe's lock has no hash.
    RecipeHasNoHash,
    /// EN3: a failed activation leaves a process.
    LeavesAProcess,
    /// EN3: what stands for the model's key is in the arguments.
    PlaceholderInArguments,
    /// EN3: close does nothing.
    CloseDoesNothing,
    /// EN4: whatever conversation comes up is said to be the expected one.
    AcceptsAnother,
    /// EN4: the deadline of a bind is not kept.
    WaitsTooLong,
    /// EN4: a checkpoint that cannot be read begins a new conversation.
    BeginsAnew,
    /// EN5: a repeated delivery is another input.
    DeliversAgain,
    /// EN6: an input is said to be taken after the first output.
    TakesLate,
    /// EN7: bytes leave before their checkpoint is committed.
    WritesEarly,
    /// EN7: a checkpoint does not hold the bytes that wait.
    ForgetsWhatWaits,
    /// EN8: a part of the state is not in the checkpoint.
    ForgetsState,
    /// EN8: bytes are decoded piece by piece.
    DecodesPieces,
    /// EN9: a turn ends twice.
    EndsTwice,
    /// EN9: a turn ends because nothing comes.
    EndsOnSilence,
    /// EN9: a turn does not end with the program.
    OutlivesItsProgram,
    /// EN10: a lost connection ends the stream.
    EndsWhenDetached,
    /// EN11: what is not known is dropped.
    DropsTheUnknown,
    /// EN12: a child speaks as its parent.
    TakesChildForParent,
    /// EN13: a request that is not known is not answered.
    LeavesRequests,
    /// EN14: answers are taken and go nowhere.
    AnswersNobody,
    /// EN14: it asks people, and has no way to answer.
    HidesInteractions,
}
