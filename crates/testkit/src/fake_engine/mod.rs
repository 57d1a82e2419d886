//! A fake engine: an adapter of kind `fake` and the program that it drives, which does what the words of a prompt
//! say.
//!
//! The adapter is registered by hand only, with [`registration`]. The program is [`run`] over a [`Host`]: as the
//! binary `fake-engine` it is a real process in a real sandbox ([`StdHost`]); a test that has no sandbox gives a host
//! of its own. Its conversation is a file of JSON lines, `.fake/KEY.jsonl` in the home directory, so a resume is real.
//!
//! # Directives
//!
//! Each line of a prompt is a directive or plain text; they are done in order. A wait ends when the file `NAME` is
//! in the workspace, whoever puts it there.
//!
//! | line | what the program does |
//! |---|---|
//! | plain text | answers `echo: <text>` |
//! | `SAY: text` | answers `text`, in one delta and a message |
//! | `DELTAS: n` | answers `d1 d2 ... dn` in `n` deltas |
//! | `STREAM: n NAME` | the same, and waits for `NAME` after the first half |
//! | `CLOCK: n us` | answers `n` deltas, `us` microseconds apart, each the time of its printing: nanoseconds since 1970 and a line feed |
//! | `THINK: text` | reasons `text` |
//! | `RUN: command` | runs the command with `sh` in the workspace, as a tool call with its output |
//! | `FILE: path text` | writes a file in the workspace and tells of it |
//! | `ASK: approval text`, `ASK: question text`, `ASK: decision text` | asks, waits, and says `answer: <answer>` |
//! | `ASKS: n` | asks for `n` approvals at once, waits for all, and says `answers: <1>, <2>, ...` |
//! | `WITHDRAW: text` | asks for an approval and takes the question back |
//! | `HOLD: NAME` | waits for `NAME` |
//! | `CHILD: text` | a child run says `text` in two deltas and ends |
//! | `BACKGROUND: NAME text` | leaves work in the background: after the turn, and once `NAME` is there, says `text` by itself |
//! | `LINGER: NAME text` | the same, and waits for `NAME-end` between the first half of the text and the second |
//! | `LEAVE: NAME text` | calls a tool and leaves it running after the turn; once `NAME` is there, it ends with the output `text` |
//! | `CHILDASK: NAME text` | leaves a child run in the background; once `NAME` is there, it asks for an approval of `text`, says `answer: <answer>` and ends |
//! | `PRELUDE: text` | speaks a whole turn of its own with `text`, before it takes the input |
//! | `RECALL` | says `you said: [...]`, the earlier prompts of the conversation as a JSON list |
//! | `NOTICE` | says `notice: <the platform's word>`, or `notice: none` |
//! | `MODE` | says `mode: <permission mode>` |
//! | `REQUEST: method` | asks the platform something, waits for its reply, and says `reply: <error>` |
//! | `IDLE` | says that it is idle, though the turn goes on |
//! | `WEATHER` | says something that nobody knows |
//! | `GARBAGE` | prints lines that are no JSON and no UTF-8 |
//! | `SPLIT: text` | answers `text`, printed byte by byte |
//! | `LONG: n` | answers with one line of `n` bytes |
//! | `STDERR: text` | prints to standard error |
//! | `USAGE: in out` | tells these token counts at the turn's end |
//! | `FAIL: reason` | ends the turn as failed |
//! | `TWICE` | ends the turn, twice |
//! | `SILENT` | says nothing more and listens to nothing more; only a signal ends it |
//! | `DEAF` | does not listen to a stop for the rest of this turn |
//! | `EXIT: code` | exits in the middle of the turn |
//! | `NOEND` | exits with 0 where the turn should end |
//!
//! # Protocol
//!
//! One JSON object a line, tagged by `type`. To the program: [`ToProgram`]; from it: [`FromProgram`]. It answers
//! `open` with `ready` or `lost`, `say` with `took` and, when all is done, with exactly one `end`. What it says by
//! itself is between `begin` and an `end` that is `own`.

mod adapter;
mod deeds;
mod directive;
mod host;
mod image;
mod program;
mod protocol;
mod wire;

pub use adapter::{FAKE, FakeEngine, KIND, registration};
pub use host::{Heard, Host, StdHost, ToolEvent, block_on};
pub use image::image;
pub use program::{VERSION, run};
pub use protocol::FakeProtocol;
pub use wire::{AskForm, FromProgram, Outcome, Reply, ToProgram};
