//! The proxy's API as data: what is asked, and what an answer says. LiteLLM 1.108.7,
//! `proxy/management_endpoints/key_management_endpoints.py` and `proxy/_types.py`.

use astrabox_model::{Error, IssueRequest, IssuedCredential};
use astrabox_types::{Secret, Timestamp};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::{answered, no_database, strange};

/// The path of the list of models.
pub(crate) const MODELS: &str = "/v1/models";
/// The path that makes a key.
pub(crate) const GENERATE: &str = "/key/generate";
/// The path that ends keys.
pub(crate) const DELETE: &str = "/key/delete";

/// The most models that are taken from a list.
const MAX_MODELS: usize = 10_000;
/// The longest name of a model, bytes.
const MAX_NAME: usize = 256;
/// The longest id and value of a key, bytes.
const MAX_KEY: usize = 512;

/// An answer of the proxy.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Zeroizing<Vec<u8>>,
}

#[derive(Serialize)]
struct Generate<'a> {
    duration: String,
    models: [&'a str; 1],
    /// A key for models alone: it may not manage the proxy.
    key_type: &'static str,
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_budget: Option<f64>,
}

#[derive(Serialize)]
struct Metadata {
    astrabox_session_id: String,
}

/// The body that asks for a key of one session.
pub(crate) fn generate(request: &IssueRequest, max_budget: Option<f64>) -> Vec<u8> {
    let asked = Generate {
        duration: format!("{}s", request.lifetime.as_secs().max(1)),
        models: [&request.model],
        key_type: "llm_api",
        metadata: Metadata {
            astrabox_session_id: request.session_id.to_string(),
        },
        max_budget,
    };
    serde_json::to_vec(&asked).expect("texts and numbers are JSON")
}

/// The body that ends a key.
pub(crate) fn delete(id: &str) -> Vec<u8> {
    serde_json::json!({ "keys": [id] }).to_string().into_bytes()
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Card>,
}

#[derive(Deserialize)]
struct Card {
    id: String,
}

/// The names in a list of models, each once.
pub(crate) fn names(answer: &Answer) -> Result<Vec<String>, Error> {
    const LIST: &str = "list";
    succeeded(LIST, answer)?;
    let page: Page = serde_json::from_slice(&answer.body)
        .map_err(|_| strange(LIST, "the proxy's list of models cannot be read"))?;
    let mut names = Vec::new();
    for Card { id } in page.data.into_iter().take(MAX_MODELS) {
        let plain = !id.is_empty() && id.len() <= MAX_NAME && !id.contains(char::is_control);
        if plain && !names.contains(&id) {
            names.push(id);
        }
    }
    Ok(names)
}

/// What is read of a key. `token_id` is the hash by which the proxy keeps it; `key` is the value.
#[derive(Deserialize)]
struct Generated {
    key: String,
    token_id: String,
    /// ISO 8601, of which LiteLLM leaves out the zone in some versions: it means UTC.
    expires: String,
}

/// The key in an answer. `now` and the request's lifetime bound its end, whatever clock the proxy has.
pub(crate) fn issued(
    answer: &Answer,
    request: &IssueRequest,
    now: Timestamp,
) -> Result<IssuedCredential, Error> {
    const ISSUE: &str = "issue";
    keys_are_kept(ISSUE, answer)?;
    succeeded(ISSUE, answer)?;
    // serde's own message could repeat a value.
    let generated: Generated = serde_json::from_slice(&answer.body)
        .map_err(|_| strange(ISSUE, "the proxy's answer has no key, id and end"))?;
    let secret = Secret::new(generated.key.into_bytes());
    let plain = |bytes: &[u8]| {
        (16..=MAX_KEY).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    let id = generated.token_id;
    if !plain(secret.expose()) || !plain(id.as_bytes()) || tells(id.as_bytes(), secret.expose()) {
        return Err(strange(
            ISSUE,
            "the proxy's answer has no usable key and id",
        ));
    }
    let expires = end(&generated.expires)
        .ok_or_else(|| strange(ISSUE, "the proxy's key has no end that can be read"))?;
    let asked = now
        .checked_add(request.lifetime)
        .map_err(|_| strange(ISSUE, "the lifetime has no end"))?;
    Ok(IssuedCredential {
        id,
        secret,
        expires_at: expires.min(asked),
    })
}

fn tells(id: &[u8], secret: &[u8]) -> bool {
    id.windows(secret.len()).any(|part| part == secret)
        || secret.windows(id.len()).any(|part| part == id)
}

fn end(text: &str) -> Option<Timestamp> {
    text.parse().or_else(|_| format!("{text}Z").parse()).ok()
}

/// Whether a key is ended. One that the proxy does not know is.
pub(crate) fn ended(answer: &Answer) -> Result<(), Error> {
    const REVOKE: &str = "revoke";
    keys_are_kept(REVOKE, answer)?;
    match (answer.status, told(answer)) {
        // A path that there is not is answered without LiteLLM's own shape of an error.
        (404, Some(_)) => Ok(()),
        _ => succeeded(REVOKE, answer),
    }
}

#[derive(Deserialize)]
struct Refusal {
    error: Told,
}

#[derive(Deserialize)]
struct Told {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    message: Option<serde_json::Value>,
}

/// What the proxy tells of an error, in its own shape.
fn told(answer: &Answer) -> Option<Told> {
    let refusal: Refusal = serde_json::from_slice(&answer.body).ok()?;
    Some(refusal.error)
}

fn succeeded(operation: &'static str, answer: &Answer) -> Result<(), Error> {
    if answer.status == 200 {
        return Ok(());
    }
    let kind = told(answer).and_then(|told| told.kind);
    Err(answered(
        operation,
        answer.status,
        kind.as_deref().unwrap_or_default(),
    ))
}

/// Without a database, LiteLLM answers what needs one as an internal error, told apart by its text only.
fn keys_are_kept(operation: &'static str, answer: &Answer) -> Result<(), Error> {
    const TEXTS: [&str; 2] = ["DB not connected", "Not connected to DB"];
    if answer.status != 500 {
        return Ok(());
    }
    let message = told(answer).and_then(|told| told.message?.as_str().map(str::to_owned));
    match message {
        Some(message) if TEXTS.iter().any(|text| message.contains(text)) => {
            Err(no_database(operation))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
