//! Reads the directives of a prompt. The table in the parent module is the specification.

use std::time::Duration;

use super::wire::AskForm;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Directive {
    Say(String),
    Deltas {
        count: usize,
        hold: Option<String>,
    },
    Clock {
        count: usize,
        pause: Duration,
    },
    Think(String),
    Run(String),
    File {
        path: String,
        text: String,
    },
    Ask(AskForm, String),
    Asks(usize),
    Withdraw(String),
    Hold(String),
    Child(String),
    Background {
        name: String,
        text: String,
        lingers: bool,
    },
    Leave {
        name: String,
        text: String,
    },
    ChildAsk {
        name: String,
        text: String,
    },
    Prelude(String),
    Recall,
    Notice,
    Mode,
    Request(String),
    Idle,
    Weather,
    Garbage,
    Split(String),
    Long(usize),
    Stderr(String),
    Usage(u64, u64),
    Fail(String),
    Twice,
    Silent,
    Deaf,
    Exit(i32),
    NoEnd,
}

/// Takes a prompt apart.
pub(super) fn parse(text: &str) -> Vec<Directive> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| directive(line).unwrap_or_else(|| Directive::Say(format!("echo: {line}"))))
        .collect()
}

/// Reads one line; `None` for what is no directive, or one that cannot be read.
fn directive(line: &str) -> Option<Directive> {
    let (keyword, argument) = line.split_once(':').unwrap_or((line, ""));
    let argument = argument.trim();
    let (first, rest) = argument.split_once(' ').unwrap_or((argument, ""));
    let whole = || argument.to_owned();
    Some(match keyword {
        "SAY" => Directive::Say(whole()),
        "DELTAS" => Directive::Deltas {
            count: argument.parse().ok()?,
            hold: None,
        },
        "STREAM" => Directive::Deltas {
            count: first.parse().ok()?,
            hold: Some(rest.to_owned()),
        },
        "CLOCK" => Directive::Clock {
            count: first.parse().ok()?,
            pause: Duration::from_micros(rest.parse().ok()?),
        },
        "THINK" => Directive::Think(whole()),
        "RUN" => Directive::Run(whole()),
        "FILE" => Directive::File {
            path: first.to_owned(),
            text: rest.to_owned(),
        },
        "ASK" => Directive::Ask(form(first)?, rest.to_owned()),
        "ASKS" => Directive::Asks(argument.parse().ok()?),
        "WITHDRAW" => Directive::Withdraw(whole()),
        "HOLD" => Directive::Hold(whole()),
        "CHILD" => Directive::Child(whole()),
        "BACKGROUND" | "LINGER" => Directive::Background {
            name: first.to_owned(),
            text: rest.to_owned(),
            lingers: keyword == "LINGER",
        },
        "LEAVE" => Directive::Leave {
            name: first.to_owned(),
            text: rest.to_owned(),
        },
        "CHILDASK" => Directive::ChildAsk {
            name: first.to_owned(),
            text: rest.to_owned(),
        },
        "PRELUDE" => Directive::Prelude(whole()),
        "REQUEST" => Directive::Request(whole()),
        "SPLIT" => Directive::Split(whole()),
        "LONG" => Directive::Long(argument.parse().ok()?),
        "STDERR" => Directive::Stderr(whole()),
        "USAGE" => Directive::Usage(first.parse().ok()?, rest.parse().ok()?),
        "FAIL" => Directive::Fail(whole()),
        "EXIT" => Directive::Exit(argument.parse().ok()?),
        _ => return bare(line),
    })
}

fn bare(line: &str) -> Option<Directive> {
    Some(match line {
        "RECALL" => Directive::Recall,
        "NOTICE" => Directive::Notice,
        "MODE" => Directive::Mode,
        "IDLE" => Directive::Idle,
        "WEATHER" => Directive::Weather,
        "GARBAGE" => Directive::Garbage,
        "TWICE" => Directive::Twice,
        "SILENT" => Directive::Silent,
        "DEAF" => Directive::Deaf,
        "NOEND" => Directive::NoEnd,
        _ => return None,
    })
}

fn form(word: &str) -> Option<AskForm> {
    Some(match word {
        "approval" => AskForm::Approval,
        "question" => AskForm::Question,
        "decision" => AskForm::Decision,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_directive_or_is_repeated() {
        let cases = [
            ("SAY: one: two", Directive::Say("one: two".into())),
            (
                "STREAM: 4 go on",
                Directive::Deltas {
                    count: 4,
                    hold: Some("go on".into()),
                },
            ),
            (
                "ASK: decision which way",
                Directive::Ask(AskForm::Decision, "which way".into()),
            ),
            (
                "CLOCK: 3 1500",
                Directive::Clock {
                    count: 3,
                    pause: Duration::from_micros(1500),
                },
            ),
            ("EXIT: 3", Directive::Exit(3)),
            ("SILENT", Directive::Silent),
            ("EXIT: x", Directive::Say("echo: EXIT: x".into())),
            ("silent", Directive::Say("echo: silent".into())),
            ("hello: you", Directive::Say("echo: hello: you".into())),
        ];
        for (line, expected) in cases {
            assert_eq!(parse(line), [expected], "{line}");
        }
        assert_eq!(parse("\n SILENT \n\nRECALL").len(), 2);
    }
}
