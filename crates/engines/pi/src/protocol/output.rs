//! A tool's output while it runs. Pi 1.6.0 tells all of it again each time, or the end of it when it is long.

use serde::{Deserialize, Serialize};

use super::wire::Fields;

/// How much of a growing text was told: its length, and a sum by which it is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    length: u64,
    sum: u64,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            length: 0,
            sum: OFFSET,
        }
    }
}

/// The numbers of FNV-1a, 64 bits.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

fn sum(from: u64, text: &str) -> u64 {
    text.bytes().fold(from, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

impl Told {
    /// What is new in `text`, and where it begins. Nothing when `text` does not go on from what was told: the
    /// program has begun to leave out the beginning, and the result has the rest.
    pub(super) fn news<'t>(&mut self, text: &'t str) -> Option<(u64, &'t str)> {
        let at = usize::try_from(self.length).ok()?;
        let (before, new) = text.split_at_checked(at)?;
        if new.is_empty() || sum(OFFSET, before) != self.sum {
            return None;
        }
        let offset = self.length;
        self.length = text.len() as u64;
        self.sum = sum(self.sum, new);
        Some((offset, new))
    }
}

/// The text of a result's content.
pub(super) fn text_of(result: &Fields<'_>) -> String {
    let blocks = result.list("content").into_iter().map(Fields::of);
    blocks.filter_map(|block| block.text("text")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_told_as_long_as_the_text_grows() {
        let mut told = Told::default();
        for (text, expected) in [
            ("", None),
            ("n1\n", Some((0, "n1\n"))),
            ("n1\n", None),
            ("n1\nn2ä", Some((3, "n2ä"))),
            // Its beginning is left out, or another text.
            ("n2ä\nn3", None),
            ("x1\nn2ä\nn3", None),
            ("n1", None),
            ("n1\nn2ä\n", Some((7, "\n"))),
        ] {
            assert_eq!(told.news(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_text_of_a_result_is_that_of_its_blocks() {
        let result = r#"{"content":[{"type":"text","text":"a"},{"type":"image","data":"x"},{"type":"text","text":"b"}]}"#;
        assert_eq!(text_of(&Fields::of(result)), "ab");
    }
}
