//! How long a body is. Every doubt is an error: it is how requests are smuggled.

use crate::answer::Bad;
use crate::http::head::{Fields, RequestHead, ResponseHead, Version};

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    None,
    Length(u64),
    Chunked,
    /// To the end of the connection; responses only.
    UntilClose,
}

/// The length of a request's body.
pub(crate) fn of_request(head: &RequestHead) -> Result<BodyLength, Bad> {
    Ok(declared(&head.fields, head.version)?.unwrap_or(BodyLength::None))
}

/// The length of a response's body, which depends on the request's method and on the status as well.
pub(crate) fn of_response(head: &ResponseHead, method: &str) -> Result<BodyLength, Bad> {
    let declared = declared(&head.fields, head.version)?;
    if method == "HEAD" || matches!(head.status, 204 | 304) {
        return Ok(BodyLength::None);
    }
    Ok(declared.unwrap_or(BodyLength::UntilClose))
}

/// What the fields say: nothing, one Content-Length in digits, or `chunked`; never two of them.
fn declared(fields: &Fields, version: Version) -> Result<Option<BodyLength>, Bad> {
    let mut lengths = fields.all("content-length");
    let mut codings = fields.all("transfer-encoding");
    match (
        lengths.next(),
        lengths.next(),
        codings.next(),
        codings.next(),
    ) {
        (None, _, None, _) => Ok(None),
        (Some(length), None, None, _) => Ok(Some(BodyLength::Length(parse_length(length)?))),
        (None, _, Some(coding), None) => {
            if version == Version::Http11 && coding.eq_ignore_ascii_case(b"chunked") {
                Ok(Some(BodyLength::Chunked))
            } else {
                Err(Bad::TransferEncoding)
            }
        }
        (None, _, Some(_), Some(_)) => Err(Bad::TransferEncoding),
        (Some(_), ..) => Err(Bad::BodyLength),
    }
}

fn parse_length(text: &[u8]) -> Result<u64, Bad> {
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return Err(Bad::BodyLength);
    }
    let length = text.iter().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    length
        .filter(|length| i64::try_from(*length).is_ok())
        .ok_or(Bad::BodyLength)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn request(version: &str, fields: &str) -> Result<BodyLength, Bad> {
        let text = format!("POST / {version}\r\n{fields}\r\n");
        of_request(&RequestHead::parse(&Bytes::from(text))?)
    }

    #[test]
    fn d1_to_d4_a_doubtful_length_is_refused() {
        let length = Err(Bad::BodyLength);
        let coding = Err(Bad::TransferEncoding);
        for (fields, wanted) in [
            ("", Ok(BodyLength::None)),
            ("Content-Length: 0\r\n", Ok(BodyLength::Length(0))),
            (
                "Content-Length: 9223372036854775807\r\n",
                Ok(BodyLength::Length(i64::MAX as u64)),
            ),
            ("Transfer-Encoding: Chunked\r\n", Ok(BodyLength::Chunked)),
            ("Content-Length: 5\r\nContent-Length: 50\r\n", length),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", length),
            ("Content-Length: 5\r\nContent-Length: x\r\n", length),
            ("Content-Length: 5, 5\r\n", length),
            ("Content-Length: +5\r\n", length),
            ("Content-Length: -5\r\n", length),
            ("Content-Length: 5 5\r\n", length),
            ("Content-Length: 0x5\r\n", length),
            ("Content-Length:\r\n", length),
            ("Content-Length: 9223372036854775808\r\n", length),
            ("Content-Length: 18446744073709551616\r\n", length),
            (
                "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
                length,
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
                length,
            ),
            ("Transfer-Encoding: chunked, identity\r\n", coding),
            ("Transfer-Encoding: identity\r\n", coding),
            ("Transfer-Encoding: xchunked\r\n", coding),
            ("Transfer-Encoding: gzip, chunked\r\n", coding),
            ("Transfer-Encoding: \"chunked\"\r\n", coding),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                coding,
            ),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
                coding,
            ),
        ] {
            assert_eq!(request("HTTP/1.1", fields), wanted, "{fields:?}");
        }
        assert_eq!(
            request("HTTP/1.0", "Transfer-Encoding: chunked\r\n"),
            coding
        );
    }

    #[test]
    fn a_response_without_a_length_lasts_until_the_end() {
        for (head, method, wanted) in [
            ("HTTP/1.1 200 OK\r\n\r\n", "GET", Ok(BodyLength::UntilClose)),
            ("HTTP/1.1 204 No\r\n\r\n", "GET", Ok(BodyLength::None)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                "HEAD",
                Ok(BodyLength::None),
            ),
            (
                "HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n",
                "GET",
                Ok(BodyLength::None),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                "GET",
                Ok(BodyLength::Length(9)),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
                "GET",
                Err(Bad::BodyLength),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 9\r\n\r\n",
                "HEAD",
                Err(Bad::BodyLength),
            ),
        ] {
            let parsed = ResponseHead::parse(&Bytes::from_static(head.as_bytes()))
                .ok()
                .unwrap();
            assert_eq!(of_response(&parsed, method), wanted, "{head:?}");
        }
    }
}
