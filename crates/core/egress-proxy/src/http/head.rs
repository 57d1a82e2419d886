//! The head of a message: where it ends, its first line and its fields.

use bytes::Bytes;

use crate::answer::Bad;

/// The longest head, in bytes.
pub(crate) const MAX_HEAD: usize = 64 * 1024;

/// The most fields of a head.
const MAX_FIELDS: usize = 256;

/// Looks for the end of the head in `buffer`, of which `scanned` bytes were looked at before, and refuses every
/// byte that a head must not have as soon as it is there.
///
/// Gives the length of the head with its empty line, or nothing when more is needed.
pub(crate) fn find_end(buffer: &[u8], scanned: usize) -> Result<Option<usize>, Bad> {
    for at in scanned..buffer.len() {
        let byte = buffer[at];
        let after_cr = at > 0 && buffer[at - 1] == b'\r';
        match byte {
            b'\n' if after_cr => {
                if at == 1 {
                    return Err(Bad::RequestLine);
                }
                if at >= 3 && buffer[at - 3..at] == *b"\r\n\r" {
                    return if at < MAX_HEAD {
                        Ok(Some(at + 1))
                    } else {
                        Err(Bad::HeadTooLarge)
                    };
                }
            }
            b'\n' => return Err(Bad::LineEnding),
            _ if after_cr => return Err(Bad::LineEnding),
            b'\r' | b'\t' | b' '..=b'~' | 0x80.. => {}
            _ => return Err(Bad::ControlCharacter),
        }
    }
    if buffer.len() >= MAX_HEAD {
        return Err(Bad::HeadTooLarge);
    }
    Ok(None)
}

/// The versions that are spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http10,
    Http11,
}

impl Version {
    fn parse(text: &[u8]) -> Result<Self, Bad> {
        match text {
            b"HTTP/1.1" => Ok(Self::Http11),
            b"HTTP/1.0" => Ok(Self::Http10),
            _ => Err(Bad::Version),
        }
    }
}

/// One field. Not `Debug`: values may be secrets.
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: Bytes,
    pub(crate) value: Bytes,
}

/// The fields of a head, in order.
#[derive(Clone, Default)]
pub(crate) struct Fields(Vec<Field>);

impl Fields {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Field> {
        self.0.iter()
    }

    /// The values of every field of this name, given in lower case.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Bytes> {
        self.0
            .iter()
            .filter(move |field| field.name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|field| &field.value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// The comma-separated elements of every field of this name, in lower case.
    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        let mut elements = Vec::new();
        for value in self.all(name) {
            for element in value.split(|byte| *byte == b',') {
                let element = String::from_utf8_lossy(element.trim_ascii()).to_ascii_lowercase();
                if !element.is_empty() {
                    elements.push(element);
                }
            }
        }
        elements
    }
}

/// The head of a request. Not `Debug`: the target may hold a secret.
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: Version,
    pub(crate) fields: Fields,
}

impl RequestHead {
    /// Reads a head that [`find_end`] has delimited.
    pub(crate) fn parse(head: &Bytes) -> Result<Self, Bad> {
        let (line, fields) = split_first_line(head);
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Bad::RequestLine);
        };
        let upper = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'-';
        if method.is_empty() || method.len() > 20 || !method.iter().all(upper) {
            return Err(Bad::RequestLine);
        }
        if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
            return Err(Bad::RequestLine);
        }
        Ok(Self {
            version: Version::parse(version)?,
            method: ascii(method),
            target: ascii(target),
            fields: parse_fields(head, fields)?,
        })
    }
}

/// The head of a response.
pub(crate) struct ResponseHead {
    pub(crate) version: Version,
    pub(crate) status: u16,
    pub(crate) phrase: Bytes,
    pub(crate) fields: Fields,
}

impl ResponseHead {
    /// Reads a head that [`find_end`] has delimited.
    pub(crate) fn parse(head: &Bytes) -> Result<Self, Bad> {
        let (line, fields) = split_first_line(head);
        let (version, rest) = line.split_at_checked(9).ok_or(Bad::RequestLine)?;
        let version = Version::parse(version.strip_suffix(b" ").ok_or(Bad::RequestLine)?)?;
        let (code, phrase) = rest.split_at_checked(3).ok_or(Bad::RequestLine)?;
        if !code.iter().all(u8::is_ascii_digit) || !(b'1'..=b'9').contains(&code[0]) {
            return Err(Bad::RequestLine);
        }
        let phrase = match phrase {
            [] => phrase,
            [b' ', phrase @ ..] => phrase,
            _ => return Err(Bad::RequestLine),
        };
        Ok(Self {
            version,
            status: ascii(code).parse().map_err(|_| Bad::RequestLine)?,
            phrase: head.slice_ref(phrase),
            fields: parse_fields(head, fields)?,
        })
    }
}

fn ascii(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The first line without its end, and what follows.
fn split_first_line(head: &[u8]) -> (&[u8], &[u8]) {
    match head.windows(2).position(|pair| pair == b"\r\n") {
        Some(at) => (&head[..at], &head[at + 2..]),
        None => (head, &[]),
    }
}

/// Reads the lines up to the empty one.
pub(crate) fn parse_fields(head: &Bytes, mut lines: &[u8]) -> Result<Fields, Bad> {
    let mut fields = Vec::new();
    while !lines.is_empty() {
        let (line, rest) = split_first_line(lines);
        lines = rest;
        if line.is_empty() {
            break;
        }
        if fields.len() == MAX_FIELDS {
            return Err(Bad::HeadTooLarge);
        }
        fields.push(parse_field(head, line)?);
    }
    Ok(Fields(fields))
}

fn parse_field(head: &Bytes, line: &[u8]) -> Result<Field, Bad> {
    if matches!(line[0], b' ' | b'\t') {
        return Err(Bad::FoldedHeader);
    }
    let colon = line
        .iter()
        .position(|byte| *byte == b':')
        .ok_or(Bad::Header)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    // A space before the colon fails here: it is no token character.
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(Bad::Header);
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = value
        .iter()
        .position(|byte| !blank(byte))
        .unwrap_or(value.len());
    let to = value
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(from, |last| last + 1);
    Ok(Field {
        name: head.slice_ref(name),
        value: head.slice_ref(&value[from..to]),
    })
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<RequestHead, Bad> {
        match find_end(text, 0)? {
            Some(end) => RequestHead::parse(&Bytes::copy_from_slice(&text[..end])),
            None => Err(Bad::Incomplete),
        }
    }

    #[test]
    fn a_plain_head_is_read() {
        let head = parse(b"GET http://a.test/x?y=%20 HTTP/1.1\r\nHost: a.test\r\nX-A:\t b c \r\nx-a:\r\n\r\nrest")
            .ok()
            .unwrap();
        assert_eq!(head.method, "GET");
        assert_eq!(head.target, "http://a.test/x?y=%20");
        assert_eq!(head.version, Version::Http11);
        let values: Vec<_> = head.fields.all("x-a").collect();
        assert_eq!(values, ["b c", ""]);
    }

    #[test]
    fn d5_malformed_heads_are_refused() {
        let long = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &vec![b'a'; MAX_HEAD]].concat();
        let many = [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"a: b\r\n".repeat(257),
            b"\r\n".to_vec(),
        ]
        .concat();
        let cases: &[(&[u8], Bad)] = &[
            (b"\r\nGET / HTTP/1.1\r\n\r\n", Bad::RequestLine),
            (b"GET / HTTP/1.1\n\n", Bad::LineEnding),
            (b"GET / HTTP/1.1\r\nHost: a\n\r\n", Bad::LineEnding),
            (b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", Bad::LineEnding),
            (b"GET / HTTP/1.1\r\r\n\r\n", Bad::LineEnding),
            (
                b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n",
                Bad::ControlCharacter,
            ),
            (
                b"GET / HTTP/1.1\r\nHost: a\x0bb\r\n\r\n",
                Bad::ControlCharacter,
            ),
            (
                b"GET / HTTP/1.1\r\nHost: a\x7f\r\n\r\n",
                Bad::ControlCharacter,
            ),
            // The first bytes of a TLS handshake.
            (b"\x16\x03\x01\x02\x00\x01", Bad::ControlCharacter),
            (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", Bad::Header),
            (b"GET / HTTP/1.1\r\nHost\r\n\r\n", Bad::Header),
            (b"GET / HTTP/1.1\r\n: a\r\n\r\n", Bad::Header),
            (b"GET / HTTP/1.1\r\nH\xc3\xb6st: a\r\n\r\n", Bad::Header),
            (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", Bad::FoldedHeader),
            (b"GET / HTTP/1.1\r\n\tA: b\r\n\r\n", Bad::FoldedHeader),
            (b"GET /\r\n\r\n", Bad::RequestLine),
            (b"GET  / HTTP/1.1\r\n\r\n", Bad::RequestLine),
            (b"GET / HTTP/1.1 \r\n\r\n", Bad::RequestLine),
            (b" GET / HTTP/1.1\r\n\r\n", Bad::RequestLine),
            (b"GET\t/ HTTP/1.1\r\n\r\n", Bad::RequestLine),
            (b"get / HTTP/1.1\r\n\r\n", Bad::RequestLine),
            (b"G(T / HTTP/1.1\r\n\r\n", Bad::RequestLine),
            (b"GET /\xc3\xb6 HTTP/1.1\r\n\r\n", Bad::RequestLine),
            (b"GET / HTTP/2.0\r\n\r\n", Bad::Version),
            (b"GET / HTTP/1.2\r\n\r\n", Bad::Version),
            (b"GET / http/1.1\r\n\r\n", Bad::Version),
            (b"GET / HTTP/0.9\r\n\r\n", Bad::Version),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Bad::Version),
            (&long, Bad::HeadTooLarge),
            (&many, Bad::HeadTooLarge),
        ];
        for (text, wanted) in cases {
            let shown = String::from_utf8_lossy(&text[..text.len().min(60)]);
            assert_eq!(parse(text).err(), Some(*wanted), "{shown:?}");
        }
    }

    #[test]
    fn a_head_is_found_wherever_it_is_cut() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody";
        for cut in 0..text.len() {
            let first = find_end(&text[..cut], 0).unwrap();
            let found = match first {
                Some(end) => Some(end),
                None => find_end(text, cut).unwrap(),
            };
            assert_eq!(found, Some(text.len() - 4), "{cut}");
        }
    }

    #[test]
    fn a_response_head_is_read_or_refused() {
        for (text, wanted) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n", Some((200, "OK"))),
            ("HTTP/1.0 404\r\n\r\n", Some((404, ""))),
            ("HTTP/1.1 200 \r\n\r\n", Some((200, ""))),
            ("HTTP/1.1 20 OK\r\n\r\n", None),
            ("HTTP/1.1 2000 OK\r\n\r\n", None),
            ("HTTP/1.1 099 OK\r\n\r\n", None),
            ("HTTP/1.1  200 OK\r\n\r\n", None),
            ("HTTP/2 200 OK\r\n\r\n", None),
            ("ICY 200 OK\r\n\r\n", None),
            ("\r\n\r\n", None),
        ] {
            let head = ResponseHead::parse(&Bytes::from_static(text.as_bytes())).ok();
            let got = head.map(|head| (head.status, ascii(&head.phrase)));
            assert_eq!(
                got,
                wanted.map(|(code, phrase)| (code, phrase.to_owned())),
                "{text:?}"
            );
        }
    }
}
