//! One canonical form of a request's path and query, and what is too doubtful for a rule.

use std::fmt;
use std::str;

/// How often an escape may hide another one before the target is refused unread.
const MOST_ROUNDS: usize = 4;

/// The path and query of a request, in the one form that is matched and that goes upstream, byte for byte.
///
/// What has no doubt is brought into one form: an escape of an unreserved character (`%7e`) becomes the character,
/// and the digits of every other escape are upper case (`%c3%a9` becomes `%C3%A9`). What has a doubt is never mended.
/// It is refused ([`InvalidTarget`]) where some server could leave the named path by it, and marked
/// ([`CanonicalTarget::doubt`]) where servers only disagree about the segments: a credential with `paths` refuses what
/// is marked, one without them may go to every path of its host and does not care.
///
/// | in the path | verdict |
/// |---|---|
/// | `%7e`, `%41` | becomes `~`, `A` |
/// | `%c3%a9`, `%3f` | becomes `%C3%A9`, `%3F`: the same bytes, other digits |
/// | `.` and `..` segments, also as `%2e`, `..;x`, `..%2f`, `..%5c`, `%252e` and with spaces behind | refused |
/// | a raw backslash, blank, control character, `#` or byte over 127 | refused |
/// | `%` without two hexadecimal digits; `%00` to `%1f` and `%7f` | refused |
/// | escapes that are not UTF-8, overlong forms among them | refused |
/// | an escape in an escape, more than four deep | refused |
/// | `//`, `%2f`, `%5c`, `;`, `%3b`, `%25` before two hexadecimal digits, raw characters that URLs escape | marked |
/// | a slash at the end | kept: `/a` and `/a/` are two paths |
///
/// The query goes through byte for byte: no rule reads it, so duplicate keys, `+` and `%26` change nothing. It holds
/// visible ASCII characters only, without `#`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CanonicalTarget {
    text: String,
    path: usize,
    doubt: Option<Doubt>,
}

/// Why a target cannot be read in one way only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidTarget {
    /// It does not begin with a slash.
    #[error("the target does not begin with `/`")]
    NotOriginForm,
    /// It holds a blank, a control character, a byte over 127 or a fragment.
    #[error("the target holds a character that a URL never does; escape it with `%`")]
    Character,
    /// It holds a backslash, which some clients take for a slash.
    #[error("the path holds a backslash")]
    Backslash,
    /// A percent sign without two hexadecimal digits behind it.
    #[error("the path holds a `%` without two hexadecimal digits")]
    Escape,
    /// An escape of a control character.
    #[error("the path holds an escaped control character")]
    EscapedControl,
    /// Escapes that are not UTF-8.
    #[error("the escapes of the path are not UTF-8")]
    NotUtf8,
    /// A `.` or `..` segment in any guise.
    #[error("the path holds a `.` or `..` segment; send the path that is meant")]
    DotSegment,
    /// Escapes of escapes of escapes.
    #[error("the path is escaped too many times over")]
    EscapedTooOften,
}

/// Why servers could see other segments in a path than it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Doubt {
    /// `//`: some servers merge the two.
    #[error("the path has an empty segment")]
    EmptySegment,
    /// `%2F` or `%5C`: some servers take it for a slash.
    #[error("the path has an escaped slash or backslash")]
    EscapedSlash,
    /// `;`: some servers cut the segment there.
    #[error("the path has a `;`")]
    Parameter,
    /// `%25` before two digits: some servers read it twice.
    #[error("the path is escaped twice")]
    EscapedTwice,
    /// A raw character that some clients and servers escape.
    #[error("the path has a character that should be escaped")]
    Unescaped,
}

impl CanonicalTarget {
    /// Reads a target in origin form: `/path` or `/path?query`.
    ///
    /// # Errors
    /// When two servers could be led to different paths by it; the table above says when.
    pub fn parse(origin_form: &str) -> Result<Self, InvalidTarget> {
        if !origin_form.starts_with('/') {
            return Err(InvalidTarget::NotOriginForm);
        }
        let visible = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if !origin_form.bytes().all(visible) {
            return Err(InvalidTarget::Character);
        }
        let (path, query) = match origin_form.find('?') {
            Some(at) => origin_form.split_at(at),
            None => (origin_form, ""),
        };
        if path.contains('\\') {
            return Err(InvalidTarget::Backslash);
        }
        let mut text = canonical_path(path)?;
        refuse_dots(&text)?;
        let doubt = doubt(&text);
        let path = text.len();
        text.push_str(query);
        Ok(Self { text, path, doubt })
    }

    /// The path, from its first slash.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.text[..self.path]
    }

    /// The query without its `?`; `None` when there is no `?`.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.text[self.path..].strip_prefix('?')
    }

    /// The whole, as it goes upstream.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Why a rule about paths cannot be applied to it; `None` when it has one reading.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }
}

impl fmt::Display for CanonicalTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Decodes the escapes of unreserved characters and writes the others in upper case.
fn canonical_path(path: &str) -> Result<String, InvalidTarget> {
    if !path.contains('%') {
        return Ok(path.to_owned());
    }
    let mut text = String::with_capacity(path.len());
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        if byte != b'%' {
            text.push(char::from(byte));
            decoded.push(byte);
            rest = behind;
            continue;
        }
        let escaped = escaped(behind).ok_or(InvalidTarget::Escape)?;
        if escaped.is_ascii_control() {
            return Err(InvalidTarget::EscapedControl);
        }
        if is_unreserved(escaped) {
            text.push(char::from(escaped));
        } else {
            text.push('%');
            for digit in &behind[..2] {
                text.push(char::from(digit.to_ascii_uppercase()));
            }
        }
        decoded.push(escaped);
        rest = &behind[2..];
    }
    match str::from_utf8(&decoded) {
        Ok(_) => Ok(text),
        Err(_) => Err(InvalidTarget::NotUtf8),
    }
}

/// The byte that two hexadecimal digits at the beginning stand for.
pub(crate) fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Refuses dot segments as any server could see them: with other separators, parameters, and read more than once.
fn refuse_dots(path: &str) -> Result<(), InvalidTarget> {
    let mut read = path.as_bytes().to_vec();
    for _ in 0..=MOST_ROUNDS {
        for segment in read.split(|byte| matches!(byte, b'/' | b'\\')) {
            let end = segment.iter().position(|byte| *byte == b';');
            let name = segment[..end.unwrap_or(segment.len())].trim_ascii_end();
            if matches!(name, b"." | b"..") {
                return Err(InvalidTarget::DotSegment);
            }
        }
        let again = unescape(&read);
        if again.len() == read.len() {
            return Ok(());
        }
        read = again;
    }
    Err(InvalidTarget::EscapedTooOften)
}

/// What a careless server makes of escapes: it decodes those that are whole and keeps the others.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        match escaped(behind).filter(|_| byte == b'%') {
            Some(escaped) => {
                plain.push(escaped);
                rest = &behind[2..];
            }
            None => {
                plain.push(byte);
                rest = behind;
            }
        }
    }
    plain
}

fn doubt(path: &str) -> Option<Doubt> {
    if path.contains("//") {
        return Some(Doubt::EmptySegment);
    }
    let bytes = path.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let doubt = match byte {
            b';' => Doubt::Parameter,
            b'%' => match &bytes[at + 1..at + 3] {
                b"2F" | b"5C" => Doubt::EscapedSlash,
                b"3B" => Doubt::Parameter,
                b"25" if escaped(&bytes[at + 3..]).is_some() => Doubt::EscapedTwice,
                _ => continue,
            },
            b'"' | b'<' | b'>' | b'[' | b']' | b'^' | b'`' | b'{' | b'|' | b'}' => Doubt::Unescaped,
            _ => continue,
        };
        return Some(doubt);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eg7_what_has_no_doubt_gets_one_form() {
        for (text, form, path, query) in [
            ("/", "/", "/", None),
            ("/a/b", "/a/b", "/a/b", None),
            ("/a/b/", "/a/b/", "/a/b/", None),
            ("/%7ea/%41%2D%5f", "/~a/A-_", "/~a/A-_", None),
            ("/a%2eb", "/a.b", "/a.b", None),
            ("/caf%c3%a9", "/caf%C3%A9", "/caf%C3%A9", None),
            ("/a%3fb%23", "/a%3Fb%23", "/a%3Fb%23", None),
            ("/a?", "/a?", "/a", Some("")),
            ("/a...b/..c/c..", "/a...b/..c/c..", "/a...b/..c/c..", None),
            ("/a%20b", "/a%20b", "/a%20b", None),
            ("/100%25", "/100%25", "/100%25", None),
            // The query is nobody's business: duplicate keys, `+`, an encoded `&`, dots, a lone `%`.
            (
                "/a?x=1&x=2&y=%26+%20&z=../..&w=50%&v=a?b",
                "/a?x=1&x=2&y=%26+%20&z=../..&w=50%&v=a?b",
                "/a",
                Some("x=1&x=2&y=%26+%20&z=../..&w=50%&v=a?b"),
            ),
            (
                "/http://evil.com/",
                "/http://evil.com/",
                "/http://evil.com/",
                None,
            ),
        ] {
            let target = CanonicalTarget::parse(text).expect(text);
            assert_eq!(target.as_str(), form, "{text}");
            assert_eq!((target.path(), target.query()), (path, query), "{text}");
            let again = CanonicalTarget::parse(form).expect(form);
            assert_eq!(again, target, "{text} is a fixed point");
        }
    }

    #[test]
    fn eg8_what_could_leave_the_path_is_refused() {
        use InvalidTarget::*;
        for (text, why) in [
            ("", NotOriginForm),
            ("*", NotOriginForm),
            ("a", NotOriginForm),
            ("https://a.com/", NotOriginForm),
            // E1
            ("/v1/../admin", DotSegment),
            ("/v1/./x", DotSegment),
            ("/..", DotSegment),
            ("/../x", DotSegment),
            ("/a/.", DotSegment),
            // E2
            ("/a/%2e%2e/b", DotSegment),
            ("/a/%2E./b", DotSegment),
            ("/a/.%2e/b", DotSegment),
            ("/a/%2e", DotSegment),
            ("/a/%252e%252e/b", DotSegment),
            ("/a/%25252e%25252e/b", DotSegment),
            ("/a/%25%32%65./b", DotSegment),
            ("/a/%2525252525252e./b", EscapedTooOften),
            // E3, B24
            ("/projects/mine%2F..%2Fvictim%2Fsecrets", DotSegment),
            ("/projects/mine%2f%2e%2e%2fvictim", DotSegment),
            ("/projects/mine%5c..%5cvictim", DotSegment),
            ("/projects/mine%252F..%252Fvictim", DotSegment),
            ("/a/..;/b", DotSegment),
            ("/a/..;x=1/b", DotSegment),
            ("/a/..%3b/b", DotSegment),
            ("/a/..%20/b", DotSegment),
            ("/a\\b", Backslash),
            ("/a/..\\b", Backslash),
            // E5
            ("/%c0%ae%c0%ae/x", NotUtf8),
            ("/%c0%af", NotUtf8),
            ("/%ff", NotUtf8),
            ("/%e9", NotUtf8),
            ("/%ed%a0%80", NotUtf8),
            ("/caf\u{e9}", Character),
            ("/a\u{ff0e}\u{ff0e}/b", Character),
            ("/a#b", Character),
            ("/a?b#c", Character),
            ("/a?b\u{e9}", Character),
            ("/a b", Character),
            ("/a\tb", Character),
            ("/a\r\nX: y", Character),
            ("/a?b\0", Character),
            ("/a\u{7f}", Character),
            ("/a%00", EscapedControl),
            ("/a%0d%0aX:", EscapedControl),
            ("/a%7f", EscapedControl),
            ("/a%", Escape),
            ("/a%4", Escape),
            ("/a%zz", Escape),
            ("/a%+1", Escape),
            ("/a%%32e", Escape),
        ] {
            assert_eq!(CanonicalTarget::parse(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn eg9_what_only_servers_disagree_about_is_marked() {
        use Doubt::*;
        for (text, doubt) in [
            ("/a//b", EmptySegment),
            ("//a", EmptySegment),
            ("/a//", EmptySegment),
            ("/projects/group%2fproject", EscapedSlash),
            ("/a%5cb", EscapedSlash),
            ("/a;v=1/b", Parameter),
            ("/a%3bv=1/b", Parameter),
            ("/a%252Fb", EscapedTwice),
            ("/a%2541", EscapedTwice),
            ("/a%25%34%31", EscapedTwice),
            ("/a[1]", Unescaped),
            ("/{a}", Unescaped),
            ("/a|b", Unescaped),
        ] {
            let target = CanonicalTarget::parse(text).expect(text);
            assert_eq!(target.doubt(), Some(doubt), "{text}");
        }
        let plain = CanonicalTarget::parse("/a-._~!$&'()*+,=:@/b?c;d//e%2f").expect("it is plain");
        assert_eq!(plain.doubt(), None);
    }
}
