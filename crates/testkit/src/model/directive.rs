//! Reads the directives of a prompt. The table in the parent module is the specification.

use std::time::Duration;

use serde_json::Value;

use super::reply::Usage;

/// A directive in the order of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Directive {
    Say(String),
    Think(String),
    Run(String),
    Write { path: String, content: String },
    Tool { name: String, input: Value },
    Spawn(String),
    Wait,
    Result,
    Recall,
    Hold(String),
    Stall,
    Status { code: u16, times: Option<u32> },
    Half { times: Option<u32> },
    Drop { times: Option<u32> },
    Deltas(usize),
    Slow(Duration),
    Usage(Usage),
    Unreadable(String),
}

/// A prompt taken apart.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Prompt {
    pub(crate) directives: Vec<Directive>,
    /// What is left without the directives.
    pub(crate) plain: String,
}

/// Takes a prompt apart.
pub(crate) fn parse(text: &str) -> Prompt {
    let mut prompt = Prompt::default();
    let mut plain = Vec::new();
    for line in text.lines() {
        if let Some(directive) = directive(line.trim()) {
            prompt.directives.push(directive);
            continue;
        }
        let rest = inline(line, &mut prompt.directives);
        if !rest.trim().is_empty() {
            plain.push(rest.trim().to_owned());
        }
    }
    prompt.plain = plain.join("\n");
    prompt
}

/// Takes the `[[...]]` directives out of a line and gives what is left.
fn inline(line: &str, found: &mut Vec<Directive>) -> String {
    let mut rest = line;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("[[") {
        let Some((inner, tail)) = after.split_once("]]") else {
            break;
        };
        kept.push_str(before);
        match directive(inner.trim()) {
            Some(directive) => found.push(directive),
            None => kept.push_str(&format!("[[{inner}]]")),
        }
        rest = tail;
    }
    kept.push_str(rest);
    kept
}

/// Reads one directive; `None` if the text does not begin with a keyword.
fn directive(text: &str) -> Option<Directive> {
    let end = text
        .find(|c: char| !c.is_ascii_uppercase())
        .unwrap_or(text.len());
    let (keyword, tail) = text.split_at(end);
    let colon = tail.starts_with(':');
    let argument = tail.strip_prefix(':').unwrap_or(tail).trim();
    let bare = argument.is_empty();
    let counted = colon || bare || argument.parse::<u32>().is_ok();
    let read = match keyword {
        "SAY" if colon => Ok(Directive::Say(unescaped(argument))),
        "THINK" if colon => Ok(Directive::Think(unescaped(argument))),
        "RUN" if colon => Ok(Directive::Run(argument.to_owned())),
        "SPAWN" if colon => Ok(Directive::Spawn(unescaped(argument))),
        "HOLD" if colon && !bare => Ok(Directive::Hold(argument.to_owned())),
        "TOOL" if colon => tool(argument),
        "WRITE" if colon || tail.starts_with(' ') => write(argument),
        "STATUS" if colon => status(argument),
        "DELTAS" if colon => number(argument).map(Directive::Deltas),
        "SLOW" if colon => number(argument).map(|ms| Directive::Slow(Duration::from_millis(ms))),
        "USAGE" if colon => usage(argument),
        "HALF" if counted => times(argument).map(|times| Directive::Half { times }),
        "DROP" if counted => times(argument).map(|times| Directive::Drop { times }),
        "STALL" if bare => Ok(Directive::Stall),
        "WAIT" if bare => Ok(Directive::Wait),
        "RESULT" if bare => Ok(Directive::Result),
        "RECALL" if bare => Ok(Directive::Recall),
        _ => return None,
    };
    Some(read.unwrap_or_else(|why| Directive::Unreadable(format!("{text}: {why}"))))
}

fn tool(argument: &str) -> Result<Directive, String> {
    let (name, input) = argument
        .split_once(char::is_whitespace)
        .unwrap_or((argument, "{}"));
    let input = serde_json::from_str(input.trim()).map_err(|error| error.to_string())?;
    Ok(Directive::Tool {
        name: name.to_owned(),
        input,
    })
}

fn write(argument: &str) -> Result<Directive, String> {
    let (path, content) = argument
        .split_once(char::is_whitespace)
        .ok_or("a path and a content are needed")?;
    Ok(Directive::Write {
        path: path.to_owned(),
        content: unescaped(content.trim()),
    })
}

fn status(argument: &str) -> Result<Directive, String> {
    let (code, rest) = argument.split_once(' ').unwrap_or((argument, ""));
    let code: u16 = number(code)?;
    if !(400..600).contains(&code) {
        return Err("a status from 400 to 599 is needed".to_owned());
    }
    Ok(Directive::Status {
        code,
        times: times(rest.trim())?,
    })
}

fn usage(argument: &str) -> Result<Directive, String> {
    let numbers: Vec<u64> = argument
        .split_whitespace()
        .map(number)
        .collect::<Result<_, _>>()?;
    let (input, output, cached) = match numbers[..] {
        [input, output] => (input, output, 0),
        [input, output, cached] => (input, output, cached),
        _ => return Err("input, output and perhaps cached tokens are needed".to_owned()),
    };
    Ok(Directive::Usage(Usage {
        input,
        output,
        cached,
    }))
}

fn times(argument: &str) -> Result<Option<u32>, String> {
    if argument.is_empty() {
        return Ok(None);
    }
    number(argument).map(Some)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_directive_is_read() {
        let cases = [
            ("SAY: a\\nb", Directive::Say("a\nb".to_owned())),
            ("THINK: hm", Directive::Think("hm".to_owned())),
            (
                "RUN: printf 'a\\nb'",
                Directive::Run("printf 'a\\nb'".to_owned()),
            ),
            (
                "WRITE a/b.txt x y",
                Directive::Write {
                    path: "a/b.txt".to_owned(),
                    content: "x y".to_owned(),
                },
            ),
            (
                "TOOL: ns.say {\"a\": [[1]]}",
                Directive::Tool {
                    name: "ns.say".to_owned(),
                    input: json!({"a": [[1]]}),
                },
            ),
            (
                "TOOL: list",
                Directive::Tool {
                    name: "list".to_owned(),
                    input: json!({}),
                },
            ),
            ("SPAWN: SAY: hi", Directive::Spawn("SAY: hi".to_owned())),
            ("WAIT", Directive::Wait),
            ("RESULT", Directive::Result),
            ("RECALL", Directive::Recall),
            ("HOLD: x", Directive::Hold("x".to_owned())),
            ("STALL", Directive::Stall),
            (
                "STATUS: 500",
                Directive::Status {
                    code: 500,
                    times: None,
                },
            ),
            (
                "STATUS: 429 2",
                Directive::Status {
                    code: 429,
                    times: Some(2),
                },
            ),
            ("HALF", Directive::Half { times: None }),
            ("HALF 1", Directive::Half { times: Some(1) }),
            ("DROP: 1", Directive::Drop { times: Some(1) }),
            ("DELTAS: 7", Directive::Deltas(7)),
            ("SLOW: 20", Directive::Slow(Duration::from_millis(20))),
            (
                "USAGE: 10 2 4",
                Directive::Usage(Usage {
                    input: 10,
                    output: 2,
                    cached: 4,
                }),
            ),
        ];
        for (text, expected) in cases {
            let prompt = parse(text);
            assert_eq!(prompt.directives, [expected], "{text}");
            assert_eq!(prompt.plain, "", "{text}");
        }
    }

    #[test]
    fn inline_directives_leave_the_other_words() {
        let prompt = parse("please [[RUN: ls]] and [[SAY: done]] then\nstop");
        assert_eq!(
            prompt.directives,
            [
                Directive::Run("ls".to_owned()),
                Directive::Say("done".to_owned())
            ]
        );
        assert_eq!(prompt.plain, "please  and  then\nstop");
    }

    #[test]
    fn ordinary_words_are_no_directives() {
        for text in [
            "HALF of it",
            "STALLED",
            "WAIT for me",
            "say: x",
            "DROP it",
            "[[x]]",
            "HOLD:",
            "a [[b",
        ] {
            let prompt = parse(text);
            assert_eq!(prompt.directives, [], "{text}");
            assert_eq!(prompt.plain, text);
        }
    }

    #[test]
    fn a_directive_that_cannot_be_read_says_why() {
        for text in [
            "STATUS: 200",
            "STATUS: x",
            "DELTAS: many",
            "USAGE: 1",
            "TOOL: x {",
            "WRITE path",
        ] {
            let prompt = parse(text);
            assert!(
                matches!(&prompt.directives[..], [Directive::Unreadable(why)] if why.starts_with(text)),
                "{text}: {prompt:?}"
            );
        }
    }
}
