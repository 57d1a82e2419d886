use std::time::Duration;

use astrabox_model::ErrorKind;
use astrabox_types::SessionId;
use serde_json::{Value, json};

use super::*;

/// What LiteLLM 1.108.7 answers to `POST /key/generate`.
const GENERATED: &str = include_str!("../tests/recorded/key_generate.json");

fn answer(status: u16, body: &Value) -> Answer {
    Answer {
        status,
        body: Zeroizing::new(body.to_string().into_bytes()),
    }
}

/// LiteLLM's shape of an error.
fn refusal(status: u16, kind: &str, message: &str) -> Answer {
    let code = status.to_string();
    let error = json!({"message": message, "type": kind, "param": null, "code": code});
    answer(status, &json!({ "error": error }))
}

fn request() -> IssueRequest {
    IssueRequest {
        session_id: SessionId::new(),
        model: "scripted".to_owned(),
        lifetime: Duration::from_secs(600),
    }
}

fn recorded() -> Value {
    serde_json::from_str(GENERATED).expect("the recording is JSON")
}

#[test]
fn a_key_is_asked_for_with_its_end_its_model_and_its_session() {
    let request = request();
    let body: Value = serde_json::from_slice(&generate(&request, Some(1.5))).expect("JSON");
    assert_eq!(
        body,
        json!({
            "duration": "600s",
            "models": ["scripted"],
            "key_type": "llm_api",
            "metadata": {"astrabox_session_id": request.session_id.to_string()},
            "max_budget": 1.5,
        })
    );
    let body: Value = serde_json::from_slice(&generate(&request, None)).expect("JSON");
    assert!(body.get("max_budget").is_none());
}

#[test]
fn the_recorded_key_is_read_and_its_end_is_the_earlier_one() {
    let value = recorded();
    let expires: Timestamp = value["expires"].as_str().unwrap().parse().unwrap();
    let before = expires - Duration::from_secs(700);
    for (now, end) in [
        (expires - Duration::from_secs(500), expires),
        (before, before + Duration::from_secs(600)),
    ] {
        let issued = issued(&answer(200, &value), &request(), now);
        let issued = issued.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(issued.expires_at, end);
        assert_eq!(issued.id, value["token_id"].as_str().unwrap());
        assert_eq!(
            issued.secret.expose(),
            value["key"].as_str().unwrap().as_bytes()
        );
    }
    let zoneless = "2026-11-30T19:17:38.256614";
    assert_eq!(end(zoneless), format!("{zoneless}+00:00").parse().ok());
}

#[test]
fn an_answer_that_is_no_key_is_refused_without_being_repeated() {
    let canary = "sk-canary-canary-canary";
    let with = |key: &str, value: Value| {
        let mut generated = recorded();
        generated["key"] = json!(canary);
        generated[key] = value;
        generated
    };
    for body in [
        json!({}),
        json!({ "key": canary }),
        json!([canary]),
        json!(canary),
        with("token_id", Value::Null),
        with("token_id", json!(canary)),
        with("token_id", json!(format!("id-of-{canary}"))),
        with("expires", Value::Null),
        with("expires", json!(canary)),
        with("key", json!("")),
        with("key", json!(format!("{canary}\r\nx: y"))),
    ] {
        let Err(error) = issued(&answer(200, &body), &request(), Timestamp::now()) else {
            panic!("accepted: {body}");
        };
        assert_eq!(error.kind(), ErrorKind::Invalid, "{body}");
        assert!(
            !format!("{error} {error:?}").contains("canary"),
            "{error:?}"
        );
    }
}

#[test]
fn a_list_gives_plain_names_once() {
    let card = |id: &str| json!({"id": id, "object": "model", "created": 1_677_610_602, "owned_by": "openai"});
    let long = "m".repeat(300);
    let data: Vec<_> = ["a", "b", "a", "", "x\ny", &long].map(card).into();
    let page = json!({"data": data, "object": "list"});
    let names = names(&answer(200, &page)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(names, ["a", "b"]);
}

/// The texts are those of LiteLLM 1.108.7.
#[test]
fn every_refusal_has_its_kind_and_repeats_nothing() {
    use ErrorKind::{Denied, Invalid, Unavailable};
    let auth =
        "Authentication Error, Invalid proxy server token passed. Received API Key = sk-...canary";
    for (answer, kind) in [
        (refusal(401, "token_not_found_in_db", auth), Denied),
        (
            refusal(401, "auth_error", "Authentication Error, canary"),
            Denied,
        ),
        (refusal(403, "key_model_access_denied", "canary"), Denied),
        (refusal(400, "no_db_connection", "No connected db."), Denied),
        (refusal(400, "bad_request_error", "canary"), Invalid),
        (answer(404, &json!({"detail": "Not Found"})), Invalid),
        (answer(307, &json!("canary")), Invalid),
        (refusal(429, "throttling_error", "canary"), Unavailable),
        (answer(502, &json!("canary")), Unavailable),
        (
            refusal(
                500,
                "internal_server_error",
                "{'error': 'DB not connected. This endpoint needs a database'}",
            ),
            Invalid,
        ),
        (
            refusal(500, "internal_server_error", "Not connected to DB!"),
            Invalid,
        ),
    ] {
        let Err(error) = issued(&answer, &request(), Timestamp::now()) else {
            panic!("accepted");
        };
        assert_eq!(error.kind(), kind, "{error}");
        assert!(
            !format!("{error} {error:?}").contains("canary"),
            "{error:?}"
        );
        let error = ended(&answer).expect_err("it is refused");
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn a_key_that_the_proxy_does_not_know_is_ended() {
    let deleted = json!({"deleted_keys": ["an-id"]});
    assert!(ended(&answer(200, &deleted)).is_ok());
    let unknown = refusal(404, "internal_server_error", "{'error': 'No keys found'}");
    assert!(ended(&unknown).is_ok());
}
