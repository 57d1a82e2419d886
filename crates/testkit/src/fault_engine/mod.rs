//! A stand-in for a vendor's agent program that speaks its protocol and misbehaves as it is told.
//!
//! It takes the place of the program in an engine's image, so that the engine's real adapter, the real platform and
//! a real sandbox meet the fault. What it does upon a prompt is the prompt itself, a step a line; a line that is no
//! step is said back. When the steps are done the turn ends as completed, unless a step says otherwise.
//!
//! | step | what it does |
//! |---|---|
//! | `SAY: text` | says `text`, in pieces and whole |
//! | `HALF: text` | begins to say `text` and never finishes |
//! | `CALL: name` | begins a tool call |
//! | `RESULT: text` | ends the tool call |
//! | `RUN: command` | runs a shell command for real, as one tool call |
//! | `ASK` | asks for approval of the tool call and says `answer: <choice>` |
//! | `CHILD: text` | has a child run that says `text` |
//! | `STRANGE: word` | tells an event that nobody knows |
//! | `REQUEST: method` | sends a request that nobody knows, and says `reply: <error>` |
//! | `GARBAGE: text` | prints a line that is no message |
//! | `RAW` | prints a line that is not UTF-8 |
//! | `BIG: n` | ends the tool call with a line of more than `n` bytes |
//! | `PIECES: n` | prints the rest of the turn `n` bytes at a time |
//! | `STDERR: text` | prints to standard error |
//! | `LENGTH: text` | says how long its line of the prompt is, and not the line |
//! | `RECALL` | says `you said: [...]`, the earlier prompts of the conversation as a JSON list |
//! | `HOLD` | waits until it is interrupted, and obeys |
//! | `DEAF` | waits for ever and does not hear an interrupt; it ends with its standard input |
//! | `LOITER` | as `DEAF`, and does not end with its standard input either |
//! | `REST: ended` | tells that the conversation rests and, when asked, that the turn has ended |
//! | `REST: open` | the same, but when asked tells a status without an end |
//! | `END` | ends the turn now, and does not tell that it rests; what follows is late |
//! | `IDLE` | tells that the conversation rests |
//! | `OPEN` | leaves the turn without an end, and listens |
//! | `EXIT: code` | exits |
//! | `REFUSE` | first line only: does not take the prompt |

mod acp;
mod claude;
mod codex;
mod image;
mod native;
mod pi;
mod program;
mod script;

pub use image::{FaultImage, ImageCache};
pub use native::{ACP_STATE, Protocol, Quirk, state_file};
pub use program::run;
