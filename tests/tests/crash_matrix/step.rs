//! The steps of a turn at which processes are killed.

/// A step of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    BeforeAccepted,
    AfterAccepted,
    BeforeTurn,
    AfterTurn,
    AfterCheckpoint,
    FirstByte,
    MidDelta,
    MidTool,
    Asked,
    BeforeAnswer,
    AfterAnswer,
    BeforeEnd,
    AfterEnd,
}

/// How a step is reached.
pub(crate) enum Reach {
    /// The server stands still at this write.
    Fault(&'static str),
    /// The model holds its answer.
    Held,
    /// The program runs a tool.
    Tool,
    /// The program asks.
    Asked,
    /// The program asks, and the server stands still at a write that the answer makes.
    Answer(&'static str),
}

impl Step {
    pub(crate) const ALL: [Self; 13] = [
        Self::BeforeAccepted,
        Self::AfterAccepted,
        Self::BeforeTurn,
        Self::AfterTurn,
        Self::AfterCheckpoint,
        Self::FirstByte,
        Self::MidDelta,
        Self::MidTool,
        Self::Asked,
        Self::BeforeAnswer,
        Self::AfterAnswer,
        Self::BeforeEnd,
        Self::AfterEnd,
    ];

    pub(crate) const fn slug(self) -> &'static str {
        match self {
            Self::BeforeAccepted => "before_input_commit",
            Self::AfterAccepted => "after_input_commit",
            Self::BeforeTurn => "before_turn_commit",
            Self::AfterTurn => "after_turn_commit",
            Self::AfterCheckpoint => "input_on_its_way",
            Self::FirstByte => "before_first_byte",
            Self::MidDelta => "in_a_message",
            Self::MidTool => "in_a_tool",
            Self::Asked => "approval_open",
            Self::BeforeAnswer => "before_answer_commit",
            Self::AfterAnswer => "after_answer_commit",
            Self::BeforeEnd => "before_end_commit",
            Self::AfterEnd => "after_end_commit",
        }
    }

    /// The step in words, for the table.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::BeforeAccepted => "the input is not stored yet",
            Self::AfterAccepted => "the input is stored, its caller does not know",
            Self::BeforeTurn => "the turn's begin is not stored yet",
            Self::AfterTurn => "the turn's begin is stored, nothing was told to the program",
            Self::AfterCheckpoint => "the bytes for the program are stored and not sent",
            Self::FirstByte => "the program asks the model, no byte came",
            Self::MidDelta => "in the middle of a message",
            Self::MidTool => "in the middle of a tool call",
            Self::Asked => "an approval is open",
            Self::BeforeAnswer => "the answer is not stored yet",
            Self::AfterAnswer => "the answer is stored and not sent",
            Self::BeforeEnd => "the turn's end is not stored yet",
            Self::AfterEnd => "the turn's end is stored, nobody was told",
        }
    }

    pub(crate) const fn reach(self) -> Reach {
        match self {
            Self::BeforeAccepted => Reach::Fault("before input.accepted"),
            Self::AfterAccepted => Reach::Fault("after input.accepted"),
            Self::BeforeTurn => Reach::Fault("before turn.started"),
            Self::AfterTurn => Reach::Fault("after turn.started"),
            Self::AfterCheckpoint => Reach::Fault("after turn.started checkpoint"),
            Self::BeforeEnd => Reach::Fault("before turn.ended"),
            Self::AfterEnd => Reach::Fault("after turn.ended"),
            Self::FirstByte | Self::MidDelta => Reach::Held,
            Self::MidTool => Reach::Tool,
            Self::Asked => Reach::Asked,
            Self::BeforeAnswer => Reach::Answer("before interaction.resolved"),
            Self::AfterAnswer => Reach::Answer("after interaction.resolved"),
        }
    }

    /// The write at which the server stands still.
    pub(crate) const fn fault(self) -> Option<&'static str> {
        match self.reach() {
            Reach::Fault(write) | Reach::Answer(write) => Some(write),
            _ => None,
        }
    }

    pub(crate) const fn prompt(self) -> &'static str {
        match self {
            Self::FirstByte => "HOLD: gate\nSAY: omega",
            Self::MidDelta => "SAY: alpha beta gamma\nHOLD: gate\nSAY: omega",
            Self::MidTool => "RUN: sleep 2; echo done > /workspace/done",
            Self::Asked | Self::BeforeAnswer | Self::AfterAnswer => "RUN: touch /workspace/asked",
            _ => "SAY: alpha beta gamma",
        }
    }

    pub(crate) const fn asks(self) -> bool {
        matches!(self, Self::Asked | Self::BeforeAnswer | Self::AfterAnswer)
    }

    /// Whether most is under way, so that pairs of processes are killed, too.
    pub(crate) const fn is_under_way(self) -> bool {
        matches!(
            self,
            Self::AfterTurn | Self::MidDelta | Self::MidTool | Self::Asked
        )
    }
}
