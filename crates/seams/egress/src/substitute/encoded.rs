//! Finds the marker in forms that are not it.

use std::sync::LazyLock;

use memchr::memchr3_iter;
use memchr::memmem::Finder;

use crate::MARKER;
use crate::target::escaped;

/// The longest escape of one character: `&#x0000002d;`.
const LONGEST_ESCAPE: usize = 12;

/// How many times over a percent sign may be escaped.
const MOST_LAYERS: usize = 4;

/// The longest form of the marker that is found.
pub(crate) const LONGEST_FORM: usize = MARKER.len() * LONGEST_ESCAPE;

/// The marker in UTF-16; that of one byte order is in that of the other.
static WIDE: LazyLock<Finder<'static>> = LazyLock::new(|| {
    let mut wide = Vec::new();
    for byte in MARKER.bytes() {
        wide.extend([byte, 0]);
    }
    wide.pop();
    Finder::new(&wide).into_owned()
});

/// The marker in base64 at each of the three offsets: the digits that are its alone, and what it has a part in. The
/// alphabets of base64 differ in no digit of it.
static BASE64: LazyLock<[Base64Form; 3]> = LazyLock::new(|| {
    [
        Base64Form {
            digits: Finder::new("YXN0cmFib3gtY3JlZC"),
            before: None,
            behind: Some((2, 0b1101)),
        },
        Base64Form {
            digits: Finder::new("FzdHJhYm94LWNyZWQt"),
            before: Some((0b1111, 0b0110)),
            behind: None,
        },
        Base64Form {
            digits: Finder::new("hc3RyYWJveC1jcmVkL"),
            before: Some((0b11, 0b01)),
            behind: Some((4, 0b01)),
        },
    ]
});

struct Base64Form {
    digits: Finder<'static>,
    /// Which bits of the digit before are the marker's, and what they are.
    before: Option<(u8, u8)>,
    /// Behind which bits of the digit behind those of the marker are, and what they are.
    behind: Option<(u32, u8)>,
}

impl Base64Form {
    fn stands_in(&self, text: &[u8]) -> bool {
        self.digits.find_iter(text).any(|at| {
            let end = at + self.digits.needle().len();
            let before = self.before.is_none_or(|(mask, bits)| {
                let digit = at.checked_sub(1).and_then(|at| base64_digit(text[at]));
                digit.is_some_and(|digit| digit & mask == bits)
            });
            let behind = self.behind.is_none_or(|(shift, bits)| {
                let digit = text.get(end).copied().and_then(base64_digit);
                digit.is_some_and(|digit| digit >> shift == bits)
            });
            before && behind
        })
    }
}

/// The value of a digit of either alphabet.
fn base64_digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

/// Whether the marker stands there escaped: by percent signs, also several times over, as in JSON, as a character of
/// HTML, mixed with characters as they are, in UTF-16, or in base64 (EG16). What is found in a text is found in every
/// longer one.
///
/// One search for each, because each runs at the speed of memory; one automaton for all of them does not.
pub(crate) fn holds_encoded(text: &[u8]) -> bool {
    WIDE.find(text).is_some()
        || BASE64.iter().any(|form| form.stands_in(text))
        || memchr3_iter(b'%', b'\\', b'&', text).any(|at| begins_escaped_marker(text, at))
}

/// Whether the escape at this place is the first of an escaped marker. What stands before it are then characters of
/// the marker as they are.
fn begins_escaped_marker(text: &[u8], at: usize) -> bool {
    let Some((byte, length)) = escape(&text[at..]) else {
        return false;
    };
    let marker = MARKER.as_bytes();
    (0..marker.len()).any(|index| {
        marker[index] == byte
            && text[..at].ends_with(&marker[..index])
            && continues(&text[at + length..], &marker[index + 1..])
    })
}

/// Whether the text begins with the rest of the marker, each character as it is or escaped.
fn continues(mut text: &[u8], rest: &[u8]) -> bool {
    for wanted in rest {
        let (byte, length) = match text.first() {
            Some(byte) if byte == wanted => (*byte, 1),
            _ => match escape(text) {
                Some(escape) => escape,
                None => return false,
            },
        };
        if byte != *wanted {
            return false;
        }
        text = &text[length..];
    }
    true
}

/// The character that an escape at the beginning stands for, and the escape's length.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [b'%', rest @ ..] => {
            let mut layers = 0;
            while layers < MOST_LAYERS && rest[2 * layers..].starts_with(b"25") {
                layers += 1;
            }
            escaped(&rest[2 * layers..]).map(|byte| (byte, 3 + 2 * layers))
        }
        [b'\\', b'u' | b'U', b'0', b'0', rest @ ..] => escaped(rest).map(|byte| (byte, 6)),
        [b'\\', b'x' | b'X', rest @ ..] => escaped(rest).map(|byte| (byte, 4)),
        [b'&', b'#', rest @ ..] => {
            let hexadecimal = matches!(rest.first(), Some(b'x' | b'X'));
            let (radix, start) = if hexadecimal { (16, 1) } else { (10, 0) };
            let most = LONGEST_ESCAPE - 3 - start;
            let digits = rest[start..]
                .iter()
                .take(most)
                .take_while(|byte| char::from(**byte).is_digit(radix))
                .count();
            let number = str::from_utf8(&rest[start..start + digits]).ok()?;
            let byte = u8::try_from(u32::from_str_radix(number, radix).ok()?).ok()?;
            // Without a semicolon it would depend on what follows.
            let ends = rest.get(start + digits) == Some(&b';');
            ends.then_some((byte, 3 + start + digits))
        }
        _ => None,
    }
}
