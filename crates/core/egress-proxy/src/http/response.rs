//! How an upstream's answer goes back to the client.

use crate::answer::{Bad, REASON_HEADER};
use crate::http::framing::{self, BodyLength};
use crate::http::head::{ResponseHead, Version};
use crate::http::request::{Forward, goes_on, write_field, write_framing};

/// Fields that concern the upstream connection only, that lead a client away from the proxy, or that only the
/// proxy itself may say.
const NOT_PASSED_ON: &[&str] = &[
    "alt-svc",
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    REASON_HEADER,
];

/// The way back of one answer.
pub(crate) struct Passage {
    /// The head for the client.
    pub(crate) head: Vec<u8>,
    /// The body's framing on the upstream's side.
    pub(crate) from: BodyLength,
    /// The body's framing on the client's side.
    pub(crate) to: BodyLength,
    /// Whether the client's connection can be used again.
    pub(crate) keep_alive: bool,
    /// Whether the upstream's connection can be used again.
    pub(crate) persistent: bool,
}

/// The head of an answer that grants a WebSocket, for the client.
pub(crate) fn switching(response: &ResponseHead) -> Vec<u8> {
    let mut head = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    let passed = goes_on(&response.fields, NOT_PASSED_ON);
    for field in response.fields.iter().filter(|field| passed(field)) {
        write_field(&mut head, field);
    }
    head.extend_from_slice(b"connection: Upgrade\r\nupgrade: websocket\r\n\r\n");
    head
}

impl Passage {
    /// Plans the way back of a final answer to `request`.
    pub(crate) fn plan(response: &ResponseHead, request: &Forward) -> Result<Self, Bad> {
        let from = framing::of_response(response, &request.method)?;
        let to = match from {
            // HTTP/1.0 has no chunks.
            BodyLength::Chunked if request.version == Version::Http10 => BodyLength::UntilClose,
            from => from,
        };
        let keep_alive = request.keep_alive && to != BodyLength::UntilClose;
        let mut head = format!("HTTP/1.1 {:03} ", response.status).into_bytes();
        head.extend_from_slice(&response.phrase);
        head.extend_from_slice(b"\r\n");
        let passed = goes_on(&response.fields, NOT_PASSED_ON);
        for field in response.fields.iter().filter(|field| passed(field)) {
            write_field(&mut head, field);
        }
        if from == BodyLength::None && response.status != 204 {
            // The length that an answer to HEAD, or a 304, would have is information and no framing.
            for length in response.fields.all("content-length") {
                head.extend_from_slice(b"content-length: ");
                head.extend_from_slice(length);
                head.extend_from_slice(b"\r\n");
            }
        }
        write_framing(&mut head, to);
        if !keep_alive {
            head.extend_from_slice(b"connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let close = response
            .fields
            .elements("connection")
            .contains(&"close".to_owned());
        Ok(Self {
            head,
            from,
            to,
            keep_alive,
            persistent: response.version == Version::Http11
                && !close
                && from != BodyLength::UntilClose,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::http::head::RequestHead;
    use crate::http::request::Request;

    fn passage(request: &str, response: &str) -> Passage {
        let head = RequestHead::parse(&Bytes::from(request.to_owned()))
            .ok()
            .unwrap();
        let Ok(Request::Forward(forward)) = Request::interpret(head) else {
            panic!("no forwarded request")
        };
        let head = ResponseHead::parse(&Bytes::from(response.to_owned()))
            .ok()
            .unwrap();
        Passage::plan(&head, &forward).unwrap()
    }

    const GET: &str = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
    const HEAD: &str = "HEAD http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n";
    const OLD: &str = "GET http://a.test/ HTTP/1.0\r\nHost: a.test\r\n\r\n";

    #[test]
    fn an_answer_goes_back_in_a_framing_that_the_client_knows() {
        for (request, response, head, to, keep_alive) in [
            (
                GET,
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX: y\r\n\r\n",
                "HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 3\r\n\r\n",
                BodyLength::Length(3),
                true,
            ),
            (
                GET,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nAlt-Svc: h3\r\nX-AstraBox-Egress-Reason: x\r\n\r\n",
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                BodyLength::Chunked,
                true,
            ),
            (
                OLD,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
                BodyLength::UntilClose,
                false,
            ),
            (
                GET,
                "HTTP/1.0 200 OK\r\n\r\n",
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
                BodyLength::UntilClose,
                false,
            ),
            (
                HEAD,
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
                "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n",
                BodyLength::None,
                true,
            ),
            (
                GET,
                "HTTP/1.1 304 Not Modified\r\n\r\n",
                "HTTP/1.1 304 Not Modified\r\n\r\n",
                BodyLength::None,
                true,
            ),
        ] {
            let got = passage(request, response);
            assert_eq!(String::from_utf8(got.head).unwrap(), head, "{response:?}");
            assert_eq!((got.to, got.keep_alive), (to, keep_alive), "{response:?}");
        }
    }
}
