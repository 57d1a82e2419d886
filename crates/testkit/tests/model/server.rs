//! The endpoint as its owner sees it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use astrabox_testkit::model::{Error, Reply, ScriptedModel, Usage, Wire};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::client::{Dialogue, SOON, WIRES, model, send};

#[tokio::test]
async fn many_clients_at_once_get_each_their_own_answer() {
    let model = Arc::new(model().await);
    let mut clients = JoinSet::new();
    for n in 0..60 {
        let model = model.clone();
        clients.spawn(async move {
            let wire = WIRES[n % 3];
            let prompt = format!("client {n}");
            let got = Dialogue::new(wire, n % 2 == 0)
                .user(&prompt)
                .ask(&model)
                .await;
            assert_eq!(got.said(wire).text, format!("echo: client {n}"));
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("an answer");
    }
    let requests = model
        .wait_for_requests(60, SOON)
        .await
        .expect("all of them");
    for (place, request) in requests.iter().enumerate() {
        assert_eq!(request.number, place);
    }
    Arc::into_inner(model)
        .expect("no client is left")
        .shutdown()
        .await;
}

#[tokio::test]
async fn shutdown_breaks_off_what_waits_and_leaves_no_task() {
    let before = Handle::current().metrics().num_alive_tasks();
    let model = model().await;
    let address = model.address();
    let mut open = Vec::new();
    for (wire, prompt) in WIRES
        .into_iter()
        .zip(["HOLD: x", "STALL", "SLOW: 60000\nDELTAS: 2"])
    {
        open.push(Dialogue::new(wire, true).user(prompt).open(&model).await);
    }
    model.wait_until_held("x", SOON).await.expect("held");
    tokio::time::timeout(SOON, model.shutdown())
        .await
        .expect("a prompt end");
    for answer in open {
        assert!(answer.rest().await.cut);
    }
    assert!(TcpStream::connect(address).await.is_err());
    // The clients' own connection tasks end when they see the cut.
    let quiet = async {
        while Handle::current().metrics().num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, quiet)
        .await
        .expect("no task is left");
}

#[tokio::test]
async fn dropping_the_model_ends_it() {
    let model = model().await;
    let address = model.address();
    drop(model);
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(SOON, refused)
        .await
        .expect("nobody listens");
}

#[tokio::test]
async fn queued_answers_go_before_the_closure_and_the_closure_before_the_directives() {
    let model = ScriptedModel::builder()
        .script(|conversation| {
            (conversation.prompt() == "closure")
                .then(|| Reply::new().think("hm").say(conversation.model()).run("ls"))
        })
        .reply(Reply::new().say("queued").usage(Usage {
            input: 5,
            output: 1,
            cached: 0,
        }))
        .start()
        .await
        .expect("a free port");
    for wire in WIRES {
        let dialogue = Dialogue::new(wire, true).user("closure");
        if wire == WIRES[0] {
            let said = dialogue.ask(&model).await.said(wire);
            assert_eq!(
                (said.text.as_str(), said.usage),
                ("queued", Some((5, 1, 0)))
            );
        }
        let said = dialogue.ask(&model).await.said(wire);
        assert_eq!((said.thought.as_str(), said.text.as_str()), ("hm", "any"));
        assert_eq!(said.calls[0].2, json!({"command": "ls"}));
        let said = Dialogue::new(wire, true)
            .user("other")
            .ask(&model)
            .await
            .said(wire);
        assert_eq!(said.text, "echo: other");
    }
    model.enqueue(Reply::status(503));
    let got = Dialogue::new(Wire::Chat, true)
        .user("closure")
        .ask(&model)
        .await;
    assert_eq!(got.status, 503);
    model.shutdown().await;
}

#[tokio::test]
async fn a_recorded_credential_can_be_compared_but_not_read() {
    let secret = "sk-very-secret";
    let seen = Arc::new(Mutex::new(String::new()));
    let log = seen.clone();
    let model = ScriptedModel::builder()
        .observer(move |request| {
            let line = serde_json::to_string(request).expect("JSON");
            log.lock().expect("one writer").push_str(&line);
        })
        .start()
        .await
        .expect("a free port");
    let bearer = format!("Bearer {secret}");
    let body = Dialogue::new(Wire::Messages, false).user("hi").body();
    for headers in [
        [("authorization", bearer.as_str()), ("x-team", "blue")],
        [("x-api-key", secret), ("cookie", secret)],
        [("api-key", secret), ("proxy-authorization", secret)],
    ] {
        send(&model, "POST", "/v1/messages", &headers, Some(&body)).await;
    }
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        assert!(request.presented(secret) && !request.presented("other"));
        assert!(!format!("{request:?}").contains(secret));
    }
    assert_eq!(requests[0].header("authorization"), Some("[redacted]"));
    assert_eq!(requests[0].header("x-team"), Some("blue"));
    assert_eq!(requests[0].prompt(), "hi");
    assert_eq!(requests[0].body, body);
    let log = seen.lock().expect("no writer").clone();
    assert!(log.contains("sha256:") && !log.contains(secret));
    model.shutdown().await;
}

#[tokio::test]
async fn a_required_credential_is_required_everywhere() {
    let model = ScriptedModel::builder()
        .require_credential("right")
        .start()
        .await
        .expect("a free port");
    let body = Dialogue::new(Wire::Chat, false).user("hi").body();
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", "Bearer right")], 200),
        (vec![("x-api-key", "right")], 200),
    ] {
        let got = send(
            &model,
            "POST",
            "/v1/chat/completions",
            &headers,
            Some(&body),
        )
        .await;
        assert_eq!(got.status, status, "{headers:?}");
        let got = send(&model, "GET", "/v1/models", &headers, None).await;
        assert_eq!(got.status, status, "{headers:?}");
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_wait_that_is_in_vain_tells_what_happened_instead() {
    let model = model().await;
    Dialogue::new(Wire::Chat, false)
        .user("one")
        .ask(&model)
        .await;
    let error = model
        .wait_for_requests(2, Duration::from_millis(1))
        .await
        .expect_err("there was one");
    assert!(matches!(error, Error::Deadline { .. }));
    assert_eq!(
        error.to_string(),
        "request 2 did not happen within 1ms; prompts so far: [\"one\"], held at: []"
    );
    let held = model.wait_until_held("x", Duration::from_millis(1)).await;
    assert!(held.is_err());
    model.shutdown().await;
}

#[tokio::test]
async fn a_taken_address_is_refused() {
    let model = model().await;
    let second = ScriptedModel::builder()
        .listen(model.address())
        .start()
        .await;
    assert!(matches!(second, Err(Error::Listen { .. })));
    model.shutdown().await;
}
