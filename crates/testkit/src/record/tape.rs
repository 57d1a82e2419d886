//! The lines of one process, free of the machine that they were recorded on.

use serde_json::json;

/// Where a line went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dir {
    In,
    Out,
    Err,
}

/// Texts of this machine and what stands for them.
#[derive(Debug, Clone)]
pub(super) struct Scrub(Vec<(String, String)>);

impl Scrub {
    pub(super) fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(
            pairs
                .into_iter()
                .filter(|(from, _)| !from.is_empty())
                .collect(),
        )
    }

    fn apply(&self, line: &str) -> String {
        self.0
            .iter()
            .fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
    }
}

/// What was read and written, in order.
#[derive(Debug)]
pub(super) struct Tape {
    scrub: Scrub,
    lines: String,
}

impl Tape {
    pub(super) fn new(scrub: Scrub) -> Self {
        Self {
            scrub,
            lines: String::new(),
        }
    }

    pub(super) fn push(&mut self, dir: Dir, line: &str) {
        let dir = match dir {
            Dir::In => "in",
            Dir::Out => "out",
            Dir::Err => "err",
        };
        let line = self.scrub.apply(line);
        self.lines
            .push_str(&json!({ "dir": dir, "line": line }).to_string());
        self.lines.push('\n');
    }

    /// One JSON object a line.
    pub(super) fn text(&self) -> &str {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_verbatim_but_for_the_places_of_the_machine() {
        let scrub = Scrub::new([
            ("/scratch/x1".to_owned(), String::new()),
            (
                r#""serverName":"vm7""#.to_owned(),
                r#""serverName":"host""#.to_owned(),
            ),
            (String::new(), "never".to_owned()),
        ]);
        let mut tape = Tape::new(scrub);
        tape.push(
            Dir::Out,
            r#"{"cwd":"/scratch/x1/workspace","serverName":"vm7"}"#,
        );
        tape.push(Dir::Err, "vm7");
        assert_eq!(
            tape.text(),
            concat!(
                r#"{"dir":"out","line":"{\"cwd\":\"/workspace\",\"serverName\":\"host\"}"}"#,
                "\n",
                r#"{"dir":"err","line":"vm7"}"#,
                "\n",
            )
        );
    }
}
