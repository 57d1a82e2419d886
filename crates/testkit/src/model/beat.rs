//! Takes a reply apart into the beats that every wire has: blocks that open, grow and close.

use std::time::Duration;

use super::conversation::Conversation;
use super::reply::{Reply, Step};
use super::tools::{self, Call};

/// One moment of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Beat {
    Open,
    ThinkOpen,
    ThinkDelta(String),
    ThinkClose,
    TextOpen,
    TextDelta(String),
    TextClose,
    Call(Call),
    Close,
    Pause(Duration),
    Hold(String),
    /// Half of the event that a text delta would make, then the cut.
    Half,
    /// The cut.
    Drop,
}

/// The most deltas that a text is cut into unless told otherwise.
const DEFAULT_DELTAS: usize = 8;

/// The beats of a reply. A call for which the program offers no tool becomes a text.
pub(crate) fn beats(reply: &Reply, conversation: &Conversation) -> Vec<Beat> {
    let mut score = Score {
        beats: vec![Beat::Open],
        open_text: false,
        first_delta: true,
        reply,
    };
    for step in &reply.steps {
        match step {
            Step::Say(text) => score.say(text),
            Step::Think(text) => score.think(text),
            Step::Hold(name) => score.beats.push(Beat::Hold(name.clone())),
            Step::Half | Step::Drop => {
                let half = *step == Step::Half;
                if half && !score.open_text {
                    score.open_text();
                }
                score.beats.push(if half { Beat::Half } else { Beat::Drop });
                return score.beats;
            }
            call => match tools::resolve(call, conversation) {
                Ok(call) => {
                    score.close_text();
                    score.beats.push(Beat::Call(call));
                }
                Err(why) => score.say(&why),
            },
        }
    }
    score.close_text();
    score.beats.push(Beat::Close);
    score.beats
}

struct Score<'a> {
    beats: Vec<Beat>,
    open_text: bool,
    first_delta: bool,
    reply: &'a Reply,
}

impl Score<'_> {
    fn say(&mut self, text: &str) {
        let joined;
        let text = if self.open_text {
            joined = format!("\n{text}");
            &joined
        } else {
            self.open_text();
            text
        };
        for delta in self.cut(text) {
            self.pause();
            self.beats.push(Beat::TextDelta(delta));
        }
    }

    fn think(&mut self, text: &str) {
        self.close_text();
        self.beats.push(Beat::ThinkOpen);
        for delta in self.cut(text) {
            self.pause();
            self.beats.push(Beat::ThinkDelta(delta));
        }
        self.beats.push(Beat::ThinkClose);
    }

    fn open_text(&mut self) {
        self.open_text = true;
        self.beats.push(Beat::TextOpen);
    }

    fn close_text(&mut self) {
        if std::mem::take(&mut self.open_text) {
            self.beats.push(Beat::TextClose);
        }
    }

    fn pause(&mut self) {
        let first = std::mem::take(&mut self.first_delta);
        if let (false, Some(pause)) = (first, self.reply.slow) {
            self.beats.push(Beat::Pause(pause));
        }
    }

    fn cut(&self, text: &str) -> Vec<String> {
        let words = text.split_whitespace().count();
        cut(text, self.reply.deltas.unwrap_or(words.min(DEFAULT_DELTAS)))
    }
}

/// Cuts a text into `n` near-equal pieces, fewer if it has fewer characters.
fn cut(text: &str, n: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let n = n.clamp(1, chars.len().max(1));
    (0..n)
        .map(|i| {
            chars[i * chars.len() / n..(i + 1) * chars.len() / n]
                .iter()
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_into_as_many_deltas_as_asked() {
        for (text, n, expected) in [
            ("abcdef", 3, vec!["ab", "cd", "ef"]),
            ("abc", 9, vec!["a", "b", "c"]),
            ("äöü", 2, vec!["ä", "öü"]),
            ("", 4, vec![""]),
            ("abc", 0, vec!["abc"]),
        ] {
            assert_eq!(cut(text, n), expected);
        }
    }

    #[test]
    fn neighbouring_texts_are_one_message_and_a_cut_ends_the_score() {
        let reply = Reply::new()
            .say("a")
            .hold("h")
            .say("b")
            .step(Step::Drop)
            .say("c");
        assert_eq!(
            beats(&reply, &Conversation::default()),
            [
                Beat::Open,
                Beat::TextOpen,
                Beat::TextDelta("a".to_owned()),
                Beat::Hold("h".to_owned()),
                Beat::TextDelta("\nb".to_owned()),
                Beat::Drop,
            ]
        );
    }
}
