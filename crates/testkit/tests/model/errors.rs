//! Errors and cuts.

use astrabox_testkit::model::Wire;
use serde_json::{Value, json};

use crate::client::{Dialogue, Got, WIRES, model, path, send};

#[tokio::test]
async fn a_status_is_answered_in_the_vendors_shape() {
    let model = model().await;
    for (status, anthropic, openai) in [
        (401, "authentication_error", "invalid_request_error"),
        (429, "rate_limit_error", "rate_limit_error"),
        (500, "api_error", "server_error"),
        (529, "overloaded_error", "server_error"),
    ] {
        for wire in WIRES {
            for stream in [true, false] {
                let dialogue = Dialogue::new(wire, stream).user(&format!("STATUS: {status}"));
                for _ in 0..2 {
                    let got = dialogue.ask(&model).await;
                    assert_eq!(got.status, status);
                    let body = got.json();
                    if wire == Wire::Messages {
                        assert_eq!(body["type"], "error");
                        assert_eq!(body["error"]["type"], anthropic);
                    } else {
                        assert_eq!(body["error"]["type"], openai);
                        assert_eq!(body["error"]["param"], Value::Null);
                    }
                }
            }
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_counted_status_is_over_after_so_many_attempts() {
    let model = model().await;
    for wire in WIRES {
        let dialogue = Dialogue::new(wire, true).user("STATUS: 500 2\nSAY: at last");
        for expected in [500, 500, 200, 200] {
            let got = dialogue.ask(&model).await;
            assert_eq!(got.status, expected, "{wire:?}");
            if expected == 200 {
                assert_eq!(got.said(wire).text, "at last");
            }
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_status_after_a_call_spares_the_round_before_it() {
    let model = model().await;
    for wire in WIRES {
        let dialogue = Dialogue::new(wire, true).user("RUN: ls\nSTATUS: 500");
        let got = dialogue.ask(&model).await;
        assert_eq!(got.status, 200);
        let dialogue = dialogue.answered(&got.said(wire), "x");
        assert_eq!(dialogue.ask(&model).await.status, 500);
    }
    model.shutdown().await;
}

/// The events of a cut stream that are whole, and what follows the last of them.
fn whole_and_rest(got: &Got) -> (usize, &str) {
    match got.body.rsplit_once("\n\n") {
        Some((whole, rest)) => (whole.matches("\n\n").count() + 1, rest),
        None => (0, &got.body),
    }
}

#[tokio::test]
async fn a_half_cuts_the_bytes_in_the_middle_of_an_event() {
    let model = model().await;
    for wire in WIRES {
        for prompt in ["HALF", "SAY: some words\nHALF"] {
            let got = Dialogue::new(wire, true).user(prompt).ask(&model).await;
            let (whole, rest) = whole_and_rest(&got);
            assert!(got.cut, "{wire:?}: {}", got.body);
            assert!(whole >= 2 && !rest.is_empty(), "{wire:?}: {}", got.body);
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_drop_cuts_the_bytes_between_two_events() {
    let model = model().await;
    for wire in WIRES {
        let got = Dialogue::new(wire, true).user("DROP").ask(&model).await;
        let (whole, rest) = whole_and_rest(&got);
        assert!(
            got.cut && whole >= 2 && rest.is_empty(),
            "{wire:?}: {}",
            got.body
        );
        assert!(got.body.contains("partial"));
    }
    model.shutdown().await;
}

#[tokio::test]
async fn an_answer_without_a_stream_is_cut_too() {
    let model = model().await;
    for wire in WIRES {
        for prompt in ["HALF", "DROP"] {
            let got = Dialogue::new(wire, false).user(prompt).ask(&model).await;
            assert!(got.cut, "{wire:?} {prompt}: {}", got.body);
            assert!(serde_json::from_str::<Value>(&got.body).is_err());
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_counted_cut_lets_the_retry_through() {
    let model = model().await;
    for wire in WIRES {
        for keyword in ["HALF", "DROP"] {
            let prompt = format!("{keyword}: 1\nSAY: through");
            let dialogue = Dialogue::new(wire, true).user(&prompt);
            assert!(dialogue.ask(&model).await.cut);
            let got = dialogue.ask(&model).await;
            assert!(!got.cut);
            assert_eq!(got.said(wire).text, "through");
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn what_is_no_model_request_is_refused_in_the_vendors_shape() {
    let model = model().await;
    for wire in WIRES {
        for body in [json!({}), json!({"model": "m"}), json!("words"), json!([1])] {
            let got = send(&model, "POST", path(wire), &[], Some(&body)).await;
            let got = got.rest().await;
            assert_eq!(got.status, 400, "{body}");
            assert!(got.json()["error"]["message"].is_string());
        }
    }
    for (method, path) in [
        ("POST", "/v1/embeddings"),
        ("GET", "/v1/models/none"),
        ("PUT", "/"),
    ] {
        let got = send(&model, method, path, &[], None).await;
        assert_eq!(got.status, 404, "{method} {path}");
    }
    model.shutdown().await;
}

#[tokio::test]
async fn conversations_with_a_name_count_their_attempts_apart() {
    let model = model().await;
    for (wire, pointer) in [
        (Wire::Responses, "prompt_cache_key"),
        (Wire::Chat, "prompt_cache_key"),
        (Wire::Messages, "metadata"),
    ] {
        let mut ids = Vec::new();
        for name in ["one", "other"] {
            let mut body = Dialogue::new(wire, false).user("STATUS: 500 1").body();
            body[pointer] = match wire {
                Wire::Messages => json!({ "user_id": name }),
                _ => json!(name),
            };
            for expected in [500, 200] {
                let got = send(&model, "POST", path(wire), &[], Some(&body)).await;
                let got = got.rest().await;
                assert_eq!(got.status, expected, "{wire:?} {name}");
                ids.push(got.json()["id"].clone());
            }
        }
        assert_ne!(ids[1], ids[3]);
    }
    model.shutdown().await;
}
