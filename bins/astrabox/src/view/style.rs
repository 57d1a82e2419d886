//! Colours, and text that a terminal may be given.

use std::borrow::Cow;
use std::env;

/// Colours on one output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    /// Colours where the output is a terminal that has them, unless `NO_COLOR` is set to something.
    pub(crate) fn of(is_terminal: bool) -> Self {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            colours: is_terminal && !is_set("NO_COLOR") && !is_dumb(),
        }
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.paint("36", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colours && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Whether the terminal takes no control sequences at all.
pub(crate) fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Text of an agent as a terminal may be given it: what would move the cursor, change the terminal or turn the
/// direction of the text is shown instead of done, so that nothing is hidden from the person who decides.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_active) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\r' => {}
            c if !is_active(c) => plain.push(c),
            // The pictures of the control characters, in their order.
            c if (c as u32) < 0x20 => {
                plain.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'))
            }
            c => plain.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(plain)
}

fn is_active(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_does_not_steer_the_terminal() {
        for (text, shown) in [
            ("plain\n\ttext é", "plain\n\ttext é"),
            ("a\r\nb", "a\nb"),
            ("\x1b[2J\x07", "\u{241b}[2J\u{2407}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("ls \u{202e}fr- mr", "ls \\u{202e}fr- mr"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn without_colours_the_text_stays_as_it_is() {
        assert_eq!(Style::default().red("x"), "x");
        assert_eq!(Style { colours: true }.red("x"), "\x1b[31mx\x1b[0m");
        assert_eq!(Style { colours: true }.red(""), "");
    }
}
