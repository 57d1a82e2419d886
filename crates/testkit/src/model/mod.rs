//! A scripted model endpoint: a real HTTP server that stands where a model vendor stands.
//!
//! It speaks Anthropic Messages (`/v1/messages`, `/v1/messages/count_tokens`), OpenAI Responses
//! (`/v1/responses`, `/v1/responses/input_tokens`), OpenAI Chat Completions
//! (`/v1/chat/completions`) and `/v1/models`, streaming and not, in the vendors' event order. Real
//! agent programs can be pointed at it, and what they do is then decided by the words of the
//! prompt, so that a test drives a whole program end to end:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use astrabox_testkit::model::ScriptedModel;
//!
//! let model = ScriptedModel::builder().start().await?;
//! println!("point the program at {}/v1", model.base_url());
//! // prompt it with "SAY: one[[HOLD: here]]", then:
//! model.wait_until_held("here", Duration::from_secs(10)).await?;
//! model.release("here");
//! model.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Directives
//!
//! The last text the user sent is read for directives, each on its own line or inline as
//! `[[...]]` (without `]]` in its argument). A tool call ends a model round; the program brings the
//! result back in its next request, and the directives go on from there. They count per turn, so
//! the answer depends on nothing but the request.
//!
//! | directive | what the model does |
//! |---|---|
//! | plain text | answers `echo: <text>`, unless a directive of the prompt already says or calls something |
//! | `SAY: text` | answers `text`; several in one round are one message, a line each |
//! | `DELTAS: n` | cuts each said text into `n` deltas (as many as it has characters at the most); with nothing to say, says `d1 d2 ... dn` |
//! | `THINK: text` | reasons `text` before what follows |
//! | `RUN: command` | calls the program's shell tool, whatever it is called there |
//! | `WRITE path content` | calls the program's own file tool: a patch tool if there is one, else a write tool, else a patch through the shell |
//! | `TOOL: name {json}` | calls any offered tool; `name` may be `namespace.name`; a free-form tool takes `{"input": "..."}` or a JSON string |
//! | `SPAWN: text` | starts a sub-agent with `text` as its prompt |
//! | `WAIT` | waits for the sub-agents that this turn started, where there is a tool for it |
//! | `RESULT` | says `tool said: <<...>>` with the beginning of the last tool result; a turn that ends on a tool result says it unasked |
//! | `RECALL` | answers `you said: [...]`, a JSON list of the user's earlier prompts found in this request |
//! | `SLOW: ms` | waits so long between two deltas |
//! | `HOLD: name` | waits at this point until [`ScriptedModel::release`] opens the name, for good |
//! | `STALL` | a first delta, then silence until the connection closes or [`ScriptedModel::release_stalls`] |
//! | `STATUS: code [n]` | answers the whole round with this HTTP error in the vendor's shape (the first `n` times it is asked; always without `n`) |
//! | `HALF [n]` | a first delta, half of the next event, then cuts the connection (`n` as above; `HALF: n` too) |
//! | `DROP [n]` | a first delta, then cuts the connection between two events |
//! | `USAGE: in out [cached]` | reports these token counts in every round of the turn |
//!
//! `\n` in `SAY`, `THINK`, `SPAWN` and the content of `WRITE` is a line feed. `DELTAS`, `SLOW` and
//! `USAGE` hold for the whole turn, wherever they stand. A line that is a directive by its keyword
//! but cannot be read is answered with what is wrong with it.
//!
//! "The first `n` times" counts the same question (the user's prompts so far and the results of this
//! turn) in one conversation. A program that does not name its conversation in the request counts
//! together with others that ask the same; give those different words.
//!
//! What a program adds to the user's words (`<environment_context>...`, `<system-reminder>...`, and
//! any text that is one element from end to end) is not taken for a prompt, nor is a system message
//! that a gateway passes on in the user's name. Where a program asks by itself, with nothing but such
//! a text after the model's answer, the model says `noted`.
//!
//! Tests that want more than a prompt can say give a closure ([`Builder::script`]) or queue a
//! [`Reply`] ([`ScriptedModel::enqueue`]); both are asked before the directives.

mod beat;
mod conversation;
mod directive;
mod gate;
mod http;
mod ids;
mod reply;
mod requests;
mod server;
mod tools;
mod turn;
mod wire;

pub use conversation::{Conversation, Entry, ToolKind, ToolOffer, Wire};
pub use reply::{Reply, Step, Usage};
pub use requests::{CredentialHash, Recorded};
pub use server::{Builder, Error, ScriptedModel};
