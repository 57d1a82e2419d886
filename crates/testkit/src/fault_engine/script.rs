//! Prompts to steps.

use super::native::Verdict;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Say(String),
    Half(String),
    Call(String),
    Result(String),
    Run(String),
    Ask,
    Child(String),
    Strange(String),
    Request(String),
    Garbage(String),
    Raw,
    Big(usize),
    Pieces(usize),
    Stderr(String),
    Recall,
    Hold,
    Deaf,
    Loiter,
    Rest(Verdict),
    End,
    Idle,
    Open,
    Exit(i32),
    Refuse,
}

/// Reads a prompt.
pub(super) fn parse(prompt: &str) -> Vec<Step> {
    // Not `lines`: a prompt may have other line ends inside its lines.
    let lines = prompt.split('\n').filter(|line| !line.is_empty());
    lines.map(step).collect()
}

fn step(line: &str) -> Step {
    let (word, text) = line.split_once(": ").unwrap_or((line, ""));
    let owned = || text.to_owned();
    let number = || text.parse().ok();
    let read = match word {
        "SAY" => Some(Step::Say(owned())),
        "HALF" => Some(Step::Half(owned())),
        "CALL" => Some(Step::Call(owned())),
        "RESULT" => Some(Step::Result(owned())),
        "RUN" => Some(Step::Run(owned())),
        "ASK" => Some(Step::Ask),
        "CHILD" => Some(Step::Child(owned())),
        "STRANGE" => Some(Step::Strange(owned())),
        "REQUEST" => Some(Step::Request(owned())),
        "GARBAGE" => Some(Step::Garbage(owned())),
        "RAW" => Some(Step::Raw),
        "BIG" => number().map(Step::Big),
        "PIECES" => number().filter(|size| *size > 0).map(Step::Pieces),
        "STDERR" => Some(Step::Stderr(owned())),
        "LENGTH" => Some(Step::Say(format!("length: {}", line.len()))),
        "RECALL" => Some(Step::Recall),
        "HOLD" => Some(Step::Hold),
        "DEAF" => Some(Step::Deaf),
        "LOITER" => Some(Step::Loiter),
        "REST" => match text {
            "ended" => Some(Step::Rest(Verdict::Ended)),
            "open" => Some(Step::Rest(Verdict::Open)),
            _ => None,
        },
        "END" => Some(Step::End),
        "IDLE" => Some(Step::Idle),
        "OPEN" => Some(Step::Open),
        "EXIT" => text.parse().ok().map(Step::Exit),
        "REFUSE" => Some(Step::Refuse),
        _ => None,
    };
    read.unwrap_or_else(|| Step::Say(format!("you said {line}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_step_or_is_said_back() {
        for (prompt, expected) in [
            ("SAY: a: b", vec![Step::Say("a: b".to_owned())]),
            ("EXIT: 3", vec![Step::Exit(3)]),
            ("EXIT: x", vec![Step::Say("you said EXIT: x".to_owned())]),
            (
                "PIECES: 0",
                vec![Step::Say("you said PIECES: 0".to_owned())],
            ),
            (
                "REST: open\nREST: ended\n\nEND",
                vec![
                    Step::Rest(Verdict::Open),
                    Step::Rest(Verdict::Ended),
                    Step::End,
                ],
            ),
            ("LENGTH: abc", vec![Step::Say("length: 11".to_owned())]),
            (
                "SAY: a\u{2028}HOLD\r",
                vec![Step::Say("a\u{2028}HOLD\r".to_owned())],
            ),
            ("hello", vec![Step::Say("you said hello".to_owned())]),
            ("", vec![]),
        ] {
            assert_eq!(parse(prompt), expected, "{prompt}");
        }
    }
}
