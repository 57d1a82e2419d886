//! The opening handshake: what asks for a WebSocket, and what grants one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::http::head::{Fields, ResponseHead, Version};

/// Joined to the key before it is hashed (RFC 6455, section 1.3).
const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The key of a request that asks for a WebSocket and for nothing else.
#[derive(Clone)]
pub(crate) struct Key(String);

impl Key {
    /// Reads the fields of a GET without a body; nothing when they are no well-formed request for a WebSocket.
    pub(crate) fn read(fields: &Fields) -> Option<Self> {
        let only = |name| {
            let mut values = fields.all(name);
            values.next().filter(|_| values.next().is_none())
        };
        let upgrade = only("upgrade")?.eq_ignore_ascii_case(b"websocket");
        let version = &only("sec-websocket-version")?[..] == b"13";
        let connection = fields.elements("connection");
        if !upgrade || !version || !connection.contains(&"upgrade".to_owned()) {
            return None;
        }
        let key = std::str::from_utf8(only("sec-websocket-key")?).ok()?;
        let bytes = STANDARD.decode(key).ok()?;
        (bytes.len() == 16).then(|| Self(key.to_owned()))
    }

    /// What the server must answer.
    fn accept(&self) -> String {
        let joined = [self.0.as_bytes(), SUFFIX].concat();
        STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &joined))
    }
}

/// Whether a response with status 101 grants the WebSocket of this key. With `plain` it must agree on no extension:
/// none was offered.
pub(crate) fn accepts(response: &ResponseHead, key: &Key, plain: bool) -> bool {
    let fields = &response.fields;
    let only = |name, wanted: &[u8], exactly: bool| {
        let mut values = fields.all(name);
        let same = values.next().is_some_and(|value| match exactly {
            true => &value[..] == wanted,
            false => value.eq_ignore_ascii_case(wanted),
        });
        same && values.next().is_none()
    };
    let upgrade = fields
        .elements("connection")
        .contains(&"upgrade".to_owned());
    response.status == 101
        && response.version == Version::Http11
        && upgrade
        && only("upgrade", b"websocket", false)
        && only("sec-websocket-accept", key.accept().as_bytes(), true)
        && !(plain && fields.has("sec-websocket-extensions"))
        && !fields.has("content-length")
        && !fields.has("transfer-encoding")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::http::head::RequestHead;

    const ASKED: &str = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    const GRANTED: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                           Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

    fn key(fields: &str) -> Option<Key> {
        let head = format!("GET / HTTP/1.1\r\n{fields}\r\n");
        let head = RequestHead::parse(&Bytes::from(head)).ok().unwrap();
        Key::read(&head.fields)
    }

    #[test]
    fn only_a_request_for_a_websocket_has_a_key() {
        assert!(key(ASKED).is_some());
        for (from, to) in [
            ("WebSocket\r\n", "h2c\r\n"),
            ("WebSocket\r\n", "websocket, h2c\r\n"),
            ("WebSocket\r\n", "websocket\r\nUpgrade: websocket\r\n"),
            ("keep-alive, Upgrade", "keep-alive"),
            ("Version: 13", "Version: 8"),
            (
                "Version: 13\r\n",
                "Version: 13\r\nSec-WebSocket-Version: 13\r\n",
            ),
            ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZQ=="),
            ("dGhlIHNhbXBsZSBub25jZQ==", "?"),
        ] {
            assert!(key(&ASKED.replace(from, to)).is_none(), "{from} {to}");
        }
    }

    #[test]
    fn d12_only_the_right_answer_grants_it() {
        // The example of RFC 6455, section 1.3.
        let key = key(ASKED).unwrap();
        let head = |status: &str, fields: &str| {
            let head = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
            ResponseHead::parse(&Bytes::from(head)).ok().unwrap()
        };
        assert!(accepts(
            &head("101 Switching Protocols", GRANTED),
            &key,
            true
        ));
        for (from, to) in [
            (
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOO=",
            ),
            (
                "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
                "S3PPLMBITXAQ9KYGZZHZRBK+XOO=",
            ),
            ("Connection: Upgrade\r\n", ""),
            ("Upgrade: websocket\r\n", "Upgrade: h2c\r\n"),
            (
                "Upgrade: websocket\r\n",
                "Upgrade: websocket\r\nContent-Length: 3\r\n",
            ),
            (
                "Upgrade: websocket\r\n",
                "Upgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n",
            ),
        ] {
            let granted = GRANTED.replace(from, to);
            assert!(
                !accepts(&head("101 Switching Protocols", &granted), &key, true),
                "{to}"
            );
        }
        assert!(!accepts(&head("200 OK", GRANTED), &key, true));
    }
}
