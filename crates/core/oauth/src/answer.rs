//! What a token endpoint answers.

use std::time::Duration;

use astrabox_types::Secret;
use http::StatusCode;
use serde_json::{Map, Value};

use crate::{Error, ErrorKind};

/// New tokens.
pub struct Tokens {
    /// The access token.
    pub access_token: Secret,
    /// The refresh token that takes the place of the one before; that one stays when there is none.
    pub refresh_token: Option<Secret>,
    /// How long the access token lives from the answer on; not known when there is none.
    pub expires_in: Option<Duration>,
}

/// Reads an answer (RFC 6749, sections 5.1 and 5.2).
pub(crate) fn read(status: StatusCode, body: &[u8]) -> Result<Tokens, Error> {
    // serde's own message would repeat what the endpoint wrote.
    let parsed = serde_json::from_slice::<Map<String, Value>>(body);
    if !status.is_success() {
        return Err(refusal(status, parsed.ok()));
    }
    let mut answer = parsed.map_err(|_| invalid("the answer is no JSON object"))?;
    let bearer = match answer.get("token_type") {
        None => true,
        Some(kind) => kind
            .as_str()
            .is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")),
    };
    if !bearer {
        return Err(invalid("the new token is no bearer token"));
    }
    let access_token = token(&mut answer, "access_token")?
        .ok_or_else(|| invalid("the answer has no access_token"))?;
    Ok(Tokens {
        access_token,
        refresh_token: token(&mut answer, "refresh_token")?,
        expires_in: seconds(answer.get("expires_in"))?,
    })
}

fn token(answer: &mut Map<String, Value>, name: &str) -> Result<Option<Secret>, Error> {
    match answer.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => {
            let token = Secret::new(text.into_bytes());
            // What is put into a header must not begin one of its own.
            match astrabox_egress::check_value(token.expose()) {
                Ok(()) => Ok(Some(token)),
                Err(error) => Err(invalid(&format!("{name}: {error}"))),
            }
        }
        Some(_) => Err(invalid(&format!("{name} is no text"))),
    }
}

/// A number, or the text of one, as some servers write it.
fn seconds(value: Option<&Value>) -> Result<Option<Duration>, Error> {
    let seconds = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    seconds
        .map(|seconds| Some(Duration::from_secs(seconds)))
        .ok_or_else(|| invalid("expires_in is no number of seconds"))
}

fn refusal(status: StatusCode, answer: Option<Map<String, Value>>) -> Error {
    let code = answer
        .as_ref()
        .and_then(|answer| answer.get("error"))
        .and_then(Value::as_str)
        .filter(|code| {
            let plain = |b: u8| b.is_ascii_lowercase() || b == b'_';
            (1..=64).contains(&code.len()) && code.bytes().all(plain)
        });
    let later = status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT;
    let kind = if later {
        ErrorKind::Unavailable
    } else if status.is_redirection() {
        ErrorKind::Invalid
    } else {
        ErrorKind::Refused
    };
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    Error::new(
        kind,
        format!("the token endpoint answered {}{code}", status.as_u16()),
    )
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Result<Tokens, Error> {
        read(
            StatusCode::from_u16(status).expect("a status"),
            body.as_bytes(),
        )
    }

    #[test]
    fn an_answer_is_read_as_servers_write_it() {
        for (body, refresh, seconds) in [
            (
                r#"{"access_token":"a","token_type":"Bearer","expires_in":60}"#,
                None,
                Some(60),
            ),
            (
                r#"{"access_token":"a","token_type":"bearer","expires_in":"60","x":[]}"#,
                None,
                Some(60),
            ),
            (
                r#"{"access_token":"a","refresh_token":"r"}"#,
                Some("r"),
                None,
            ),
            (
                r#"{"access_token":"a","refresh_token":null,"expires_in":null}"#,
                None,
                None,
            ),
        ] {
            let tokens = of(200, body).unwrap_or_else(|error| panic!("{body}: {error}"));
            assert!(tokens.access_token.expose() == b"a");
            let given = tokens
                .refresh_token
                .as_ref()
                .map(|token| token.expose().to_vec());
            assert_eq!(
                given,
                refresh.map(|token| token.as_bytes().to_vec()),
                "{body}"
            );
            assert_eq!(
                tokens.expires_in,
                seconds.map(Duration::from_secs),
                "{body}"
            );
        }
    }

    #[test]
    fn a_wrong_answer_is_an_error_that_repeats_none_of_it() {
        use ErrorKind::{Invalid, Refused, Unavailable};
        for (status, body, kind, part) in [
            (200, "hunter2", Invalid, "no JSON object"),
            (200, r#"["hunter2"]"#, Invalid, "no JSON object"),
            (200, r#"{"token":"hunter2"}"#, Invalid, "no access_token"),
            (
                200,
                r#"{"access_token":7}"#,
                Invalid,
                "access_token is no text",
            ),
            (200, r#"{"access_token":""}"#, Invalid, "empty"),
            (
                200,
                "{\"access_token\":\"hunter2\\r\\nx: y\"}",
                Invalid,
                "control character",
            ),
            (
                200,
                r#"{"access_token":"hunter2","token_type":"mac"}"#,
                Invalid,
                "no bearer",
            ),
            (
                200,
                r#"{"access_token":"hunter2","expires_in":-1}"#,
                Invalid,
                "expires_in",
            ),
            (
                400,
                r#"{"error":"invalid_grant","error_description":"hunter2"}"#,
                Refused,
                "400 (invalid_grant)",
            ),
            (
                401,
                r#"{"error":"hunter2 is wrong"}"#,
                Refused,
                "answered 401",
            ),
            (403, "hunter2", Refused, "answered 403"),
            (302, "hunter2", Invalid, "answered 302"),
            (429, "{}", Unavailable, "answered 429"),
            (503, "hunter2", Unavailable, "answered 503"),
        ] {
            let error = of(status, body).err().expect(body);
            assert_eq!(error.kind(), kind, "{body}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(part), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
