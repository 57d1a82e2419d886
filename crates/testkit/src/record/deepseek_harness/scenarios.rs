//! The scenarios, as data.

/// One recording.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// What it shows; goes into the README.
    pub(super) shows: &'static str,
    /// The permission mode that it begins with.
    pub(super) mode: &'static str,
    pub(super) acts: &'static [Act],
    /// A second process that goes on with the conversation of the first.
    pub(super) resumed: Option<&'static Scenario>,
}

impl Scenario {
    const fn new(
        name: &'static str,
        shows: &'static str,
        mode: &'static str,
        acts: &'static [Act],
    ) -> Self {
        Self {
            name,
            shows,
            mode,
            acts,
            resumed: None,
        }
    }
}

/// One thing that the host does or waits for.
pub(super) enum Act {
    /// Sends an input.
    Prompt(&'static str),
    /// Changes the permission mode.
    Mode(&'static str),
    /// Waits for a request for permission and allows it once.
    Allow,
    /// Waits for a request for permission and rejects it.
    Reject,
    /// Waits for a question and answers each of its parts with this option.
    Reply(&'static str),
    /// Waits for a question and declines it.
    Decline,
    /// Waits for a request for permission and leaves it open, until the turn is stopped.
    Ask,
    /// Waits for a message that contains this text.
    Told(&'static str),
    /// Waits until the model waits at this name.
    Held(&'static str),
    /// Interrupts the turn.
    Interrupt,
    /// Stops the child run that began last.
    StopChild,
    /// Waits for the end of a turn.
    Ended,
    /// Kills the program.
    Kill,
}

use Act::{
    Allow, Ask, Decline, Ended, Held, Interrupt, Kill, Mode, Prompt, Reject, Reply, StopChild, Told,
};

const UNASKED: &str = "danger-full-access";
pub(super) const ASKING: &str = "ask";

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "plain",
        "a question and its answer",
        UNASKED,
        &[Prompt("hello"), Ended],
    ),
    Scenario::new(
        "deltas",
        "an answer in twelve deltas",
        UNASKED,
        &[Prompt("DELTAS: 12"), Ended],
    ),
    Scenario::new(
        "thinking",
        "thinking before the answer",
        UNASKED,
        &[
            Prompt("THINK: first I think about it\nSAY: then I answer"),
            Ended,
        ],
    ),
    Scenario::new(
        "two_turns",
        "two turns, and token counts of both",
        UNASKED,
        &[
            Prompt("USAGE: 1200 34 1000\none"),
            Ended,
            Prompt("USAGE: 1300 40 1100\nRECALL"),
            Ended,
        ],
    ),
    Scenario::new(
        "shell_allowed",
        "text, a command that is allowed, its output in the answer",
        ASKING,
        &[
            Prompt("SAY: I will run it.\nRUN: echo hello > made.txt && cat made.txt"),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "shell_denied",
        "a rejected command; the turn goes on",
        ASKING,
        &[Prompt("RUN: touch never.txt"), Reject, Ended],
    ),
    Scenario::new(
        "shell_failed",
        "a command that writes to stderr and fails",
        UNASKED,
        &[Prompt("RUN: echo oops >&2; exit 3"), Ended],
    ),
    Scenario::new(
        "files",
        "a new file, an edit of it, and another content, unasked",
        UNASKED,
        &[
            Prompt(
                "WRITE new.txt hello\\nworld\nTOOL: edit {\"file_path\": \"new.txt\", \"old_string\": \"hello\", \"new_string\": \"bye\"}\nWRITE new.txt all new\nSAY: done",
            ),
            Ended,
        ],
    ),
    Scenario::new(
        "workspace_write",
        "the program's own sandbox: the workspace is written, a folder beside it is not, and a wider call is asked for",
        "workspace-write",
        &[
            Prompt("RUN: touch inside.txt && echo in\nRUN: touch ../beside.txt\nSAY: tried"),
            Ended,
            Prompt(
                r#"TOOL: bash {"command": "touch ../beside.txt && echo out", "description": "wider", "sandbox_permissions": "danger-full-access", "justification": "it is beside the workspace"}"#,
            ),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "read_only",
        "the program's own sandbox changes nothing, neither by a command nor by a file tool",
        "read-only",
        &[
            Prompt("RUN: touch never.txt\nWRITE never.txt no\nSAY: tried"),
            Ended,
        ],
    ),
    Scenario::new(
        "mode_changed",
        "a mode that asks, changed to one that does not",
        ASKING,
        &[
            Prompt("RUN: touch a.txt"),
            Allow,
            Ended,
            Mode(UNASKED),
            Prompt("RUN: touch b.txt"),
            Ended,
        ],
    ),
    Scenario::new(
        "question",
        "two questions to the user and their answers, then one that is declined",
        UNASKED,
        &[
            Prompt(
                r#"TOOL: ask_user_question {"questions": [{"id": "colour", "question": "Which colour?", "header": "Colour", "options": [{"label": "Red"}, {"label": "Blue"}]}, {"id": "sizes", "question": "Which sizes?", "multi_select": true, "options": [{"label": "Small"}, {"label": "Blue"}]}]}"#,
            ),
            Reply("Blue"),
            Ended,
            Prompt(
                r#"TOOL: ask_user_question {"questions": [{"id": "name", "question": "Who?"}]}"#,
            ),
            Decline,
            Ended,
        ],
    ),
    Scenario::new(
        "mcp_tool_call",
        "a tool of an MCP server, allowed",
        ASKING,
        &[
            Prompt(r#"TOOL: mcp__echo__say {"text": "hey"}"#),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "interrupt_stream",
        "an interrupt while the model speaks, and the turn after it",
        UNASKED,
        &[
            Prompt("SAY: one two three\nHOLD: here\nSAY: never said"),
            Held("here"),
            Told("agent_message_chunk"),
            Interrupt,
            Ended,
            Prompt("SAY: after"),
            Ended,
        ],
    ),
    Scenario::new(
        "interrupt_tool",
        "an interrupt while a command runs",
        UNASKED,
        &[
            Prompt("RUN: echo started; sleep 60"),
            Told("tool_call"),
            Interrupt,
            Ended,
        ],
    ),
    Scenario::new(
        "interrupt_approval",
        "an interrupt while an approval is open, and the turn after it",
        ASKING,
        &[
            Prompt("RUN: touch never.txt"),
            Ask,
            Interrupt,
            Ended,
            Prompt("SAY: after"),
            Ended,
        ],
    ),
    Scenario::new(
        "error_status",
        "the model endpoint answers 500 once, then 401",
        UNASKED,
        &[
            Prompt("STATUS: 500 1\nSAY: got through"),
            Ended,
            Prompt("STATUS: 401"),
            Ended,
        ],
    ),
    Scenario::new(
        "stream_cut",
        "the model's stream is cut once in the middle of a message; the retry gets through",
        UNASKED,
        &[Prompt("SAY: all of it\nHALF 1"), Ended],
    ),
    Scenario::new(
        "child",
        "a sub-agent that its parent does not wait for, and the parent's reply to its end",
        UNASKED,
        &[
            Prompt("SPAWN: SAY: from the child\\nRUN: echo of the child\nSAY: the parent is done"),
            Ended,
        ],
    ),
    Scenario::new(
        "child_asked",
        "a command of a sub-agent that is allowed",
        ASKING,
        &[
            Prompt("SPAWN: RUN: touch child.txt\nSAY: it begins"),
            Allow,
            Ended,
        ],
    ),
    Scenario::new(
        "child_stopped",
        "a sub-agent that is stopped",
        UNASKED,
        &[
            Prompt("SPAWN: HOLD: child\\nSAY: never\nSAY: it begins"),
            Held("child"),
            StopChild,
            Ended,
        ],
    ),
    Scenario::new(
        "child_continued",
        "a sub-agent that is spoken to again after its end",
        UNASKED,
        &[
            Prompt("SPAWN: SAY: first\nSAY: it begins"),
            Ended,
            Prompt(r#"TOOL: send_message {"agent_id": "{child}", "message": "SAY: second"}"#),
            Ended,
        ],
    ),
    Scenario::new(
        "background_command",
        "a command in the background, and the program's own reply to its end",
        UNASKED,
        &[
            Prompt(
                "TOOL: bash {\"command\": \"sleep 1; echo done\", \"run_in_background\": true, \"description\": \"waits\"}\nSAY: it begins",
            ),
            Ended,
            Told(r#""running":false"#),
        ],
    ),
    Scenario::new(
        "background_command_stopped",
        "a command in the background that is stopped",
        UNASKED,
        &[
            Prompt(
                "TOOL: bash {\"command\": \"sleep 60\", \"run_in_background\": true, \"description\": \"waits\"}\nSAY: it begins",
            ),
            Ended,
            StopChild,
            Told(r#""running":false"#),
        ],
    ),
    Scenario {
        resumed: Some(&RESUMED),
        ..Scenario::new(
            "before_resume",
            "the process whose conversation `resume` goes on with: it is killed in a command",
            UNASKED,
            &[
                Prompt("SAY: apple"),
                Ended,
                Prompt("RUN: sleep 60"),
                Told("tool_call"),
                Kill,
            ],
        )
    },
];

const RESUMED: Scenario = Scenario::new(
    "resume",
    "another process that resumes it in another mode, and the model still sees the history",
    "ask",
    &[Prompt("RECALL"), Ended],
);
