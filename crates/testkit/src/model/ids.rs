//! Ids that are the same for the same question, and unique in one conversation.

use sha2::{Digest, Sha256};

use super::conversation::Conversation;

/// A fingerprint of what is asked: the wire, the user's prompts and the results since the last one. A
/// program that retries a cut stream asks with the same fingerprint.
pub(crate) fn question(conversation: &Conversation) -> String {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    };
    let prompts = conversation.prompts();
    part(&format!("{:?}", conversation.wire));
    part(&prompts.len().to_string());
    prompts.iter().for_each(|prompt| part(prompt));
    conversation
        .results()
        .iter()
        .for_each(|result| part(result));
    hex(&hash.finalize())
}

/// Mints the ids of one answer.
#[derive(Debug)]
pub(crate) struct Ids {
    seed: String,
    next: u32,
}

impl Ids {
    /// Ids for the answer to a question that was answered `answers` times before.
    pub(crate) fn new(question: &str, answers: u32) -> Self {
        Self {
            seed: format!("{question}/{answers}"),
            next: 0,
        }
    }

    /// The next id, e.g. `msg_` and 24 hex digits.
    pub(crate) fn mint(&mut self, prefix: &str) -> String {
        self.next += 1;
        let digest = Sha256::digest(format!("{}/{}", self.seed, self.next));
        format!("{prefix}{}", &hex(&digest)[..24])
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
