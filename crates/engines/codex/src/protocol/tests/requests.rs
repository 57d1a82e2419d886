//! Approvals and questions.

use astrabox_engine::{EmissionKind, ErrorKind};
use astrabox_types::{InteractionAnswer, Presentation};
use serde_json::{Value, json};

use super::harness::{Driver, THREAD, choose, decline, reply};

/// Asks, checks what a person sees, answers, and gives what the program gets.
fn ask(method: &str, params: Value, shown: &str, answer: &InteractionAnswer) -> Value {
    let mut driver = Driver::running();
    let item = json!({"type": "commandExecution", "id": "i", "command": "ls"});
    driver.item("item/started", item);
    driver.told();
    let mut params = params;
    params["threadId"] = json!(THREAD);
    params["turnId"] = json!("turn-1");
    driver.request(3, method, &params);
    assert_eq!(driver.told(), [format!("asks 1.3 {shown} +")]);
    assert!(driver.written().is_empty(), "nobody answered yet");
    driver.answer("1.3", answer).expect("it fits");
    let sent = driver.written();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0]["id"], 3);
    let again = driver.answer("1.3", answer).unwrap_err();
    assert_eq!(
        again.kind(),
        ErrorKind::InvalidAnswer,
        "it is answered once"
    );
    sent[0]["result"].clone()
}

fn command(extra: Value) -> Value {
    let mut params =
        json!({"itemId": "i", "kind": "command", "command": "ls", "cwd": "/workspace"});
    for (key, value) in extra.as_object().expect("an object") {
        params[key] = value.clone();
    }
    params
}

#[test]
fn a_command_is_decided_by_the_programs_own_words() {
    let amendment =
        json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "a"]}});
    let offered = json!({"availableDecisions": ["accept", amendment, "cancel"], "reason": "why"});
    let shown = "commandExecution {\"command\":\"ls\",\"cwd\":\"/workspace\",\"kind\":\"command\"} \
                 call=i@1.1 reason=Some(\"why\") \
                 [+accept +acceptForSession +acceptWithExecpolicyAmendment -decline -cancel]";
    for (answer, decision) in [
        (choose("accept"), json!("accept")),
        (choose("acceptForSession"), json!("acceptForSession")),
        (choose("acceptWithExecpolicyAmendment"), amendment.clone()),
        (choose("decline"), json!("decline")),
        (choose("cancel"), json!("cancel")),
        (decline(), json!("decline")),
    ] {
        let method = "item/commandExecution/requestApproval";
        let result = ask(method, command(offered.clone()), shown, &answer);
        assert_eq!(result, json!({"decision": decision}));
    }
}

#[test]
fn a_host_is_allowed_or_denied_for_good_by_its_own_choice() {
    let amend = |action: &str| json!({"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": "a.test", "action": action}}});
    let offered =
        json!({"availableDecisions": ["accept", amend("allow"), amend("deny"), "cancel"]});
    let shown = "commandExecution {\"command\":\"ls\",\"cwd\":\"/workspace\",\"kind\":\"command\"} \
                 call=i@1.1 reason=None [+accept +acceptForSession \
                 +applyNetworkPolicyAmendment/allow -applyNetworkPolicyAmendment/deny -decline -cancel]";
    let method = "item/commandExecution/requestApproval";
    let answer = choose("applyNetworkPolicyAmendment/deny");
    let result = ask(method, command(offered), shown, &answer);
    assert_eq!(result, json!({"decision": amend("deny")}));
}

#[test]
fn input_for_a_running_command_is_not_allowed_for_the_session() {
    let params = command(json!({"kind": "writeStdin", "availableDecisions": ["accept", "cancel"]}));
    let shown = "commandExecution {\"command\":\"ls\",\"cwd\":\"/workspace\",\"kind\":\"writeStdin\"} \
                 call=i@1.1 reason=None [+accept -decline -cancel]";
    ask(
        "item/commandExecution/requestApproval",
        params,
        shown,
        &choose("accept"),
    );
}

#[test]
fn a_server_that_offers_nothing_gets_the_plain_words() {
    let shown = "commandExecution {\"command\":\"ls\",\"cwd\":\"/workspace\",\"kind\":\"command\"} \
                 call=i@1.1 reason=None [+accept +acceptForSession -decline -cancel]";
    ask(
        "item/commandExecution/requestApproval",
        command(json!({})),
        shown,
        &choose("accept"),
    );
}

#[test]
fn a_patch_is_shown_with_its_changes() {
    let mut driver = Driver::running();
    let changes = json!([{"path": "/workspace/a", "kind": {"type": "add"}, "diff": "x\n"}]);
    driver.item(
        "item/started",
        json!({"type": "fileChange", "id": "p", "changes": changes}),
    );
    driver.told();
    let params = json!({"threadId": THREAD, "turnId": "turn-1", "itemId": "p", "reason": null});
    driver.request(0, "item/fileChange/requestApproval", &params);
    let told = driver.told();
    assert!(told[0].contains("\"path\":\"/workspace/a\""), "{told:?}");
    assert!(
        told[0].contains("call=p@1.1 reason=None [+accept +acceptForSession -decline -cancel]"),
        "{told:?}"
    );
    driver
        .answer("1.0", &choose("acceptForSession"))
        .expect("it fits");
    assert_eq!(
        driver.written(),
        [json!({"id": 0, "result": {"decision": "acceptForSession"}})]
    );
}

#[test]
fn permissions_are_granted_for_a_turn_a_session_or_not_at_all() {
    let asked = json!({"network": {"enabled": true}, "fileSystem": null});
    let granted = json!({"network": {"enabled": true}});
    let shown = "request_permissions {\"cwd\":\"/workspace\",\"permissions\":{\"fileSystem\":null,\"network\":{\"enabled\":true}}} \
                 call=i@1.1 reason=Some(\"r\") [+turn +session -decline]";
    for (answer, permissions, scope) in [
        (choose("turn"), granted.clone(), "turn"),
        (choose("session"), granted, "session"),
        (choose("decline"), json!({}), "turn"),
        (decline(), json!({}), "turn"),
    ] {
        let params =
            json!({"itemId": "i", "cwd": "/workspace", "reason": "r", "permissions": asked});
        let result = ask("item/permissions/requestApproval", params, shown, &answer);
        assert_eq!(result, json!({"permissions": permissions, "scope": scope}));
    }
}

#[test]
fn a_question_of_the_model_is_answered_by_question() {
    let params = json!({"itemId": "i", "questions": [
        {"id": "q1", "header": "Colour", "question": "Which?", "isOther": true, "isSecret": false,
         "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]},
        {"id": "q2", "header": "", "question": "Why?", "isOther": false, "isSecret": false, "options": null},
    ]});
    let shown =
        "q1: Some(\"Colour\") \"Which?\" [\"Red\", \"Blue\"] free; q2: None \"Why?\" [] free";
    let method = "item/tool/requestUserInput";
    let answer = reply(&[("q1", &["Red"]), ("q2", &["because"])]);
    assert_eq!(
        ask(method, params.clone(), shown, &answer),
        json!({"answers": {"q1": {"answers": ["Red"]}, "q2": {"answers": ["because"]}}})
    );
    assert_eq!(
        ask(method, params, shown, &decline()),
        json!({"answers": {}})
    );
}

fn elicitation(extra: Value) -> Value {
    let mut params = json!({"serverName": "echo", "_meta": null});
    for (key, value) in extra.as_object().expect("an object") {
        params[key] = value.clone();
    }
    params
}

#[test]
fn an_mcp_tool_is_approved_like_any_other() {
    let meta = json!({"codex_approval_kind": "mcp_tool_call", "persist": ["session", "always"],
        "tool_name": "say", "tool_params": {"text": "hi"}});
    let params = elicitation(json!({"mode": "form", "_meta": meta, "message": "Allow?",
        "requestedSchema": {"type": "object", "properties": {}}}));
    let shown = "mcp__echo__say {\"text\":\"hi\"} call=- reason=Some(\"Allow?\") \
                 [+accept +session +always -decline -cancel]";
    let accepted = |meta: Value| json!({"action": "accept", "content": {}, "_meta": meta});
    let refused = |action: &str| json!({"action": action, "content": null, "_meta": null});
    for (answer, result) in [
        (choose("accept"), accepted(Value::Null)),
        (choose("session"), accepted(json!({"persist": "session"}))),
        (choose("always"), accepted(json!({"persist": "always"}))),
        (choose("decline"), refused("decline")),
        (choose("cancel"), refused("cancel")),
        (decline(), refused("decline")),
    ] {
        let method = "mcpServer/elicitation/request";
        assert_eq!(ask(method, params.clone(), shown, &answer), result);
    }
}

#[test]
fn an_mcp_approval_names_the_call_that_waits() {
    let mut driver = Driver::running();
    let item = |id: &str, tool: &str| json!({"type": "mcpToolCall", "id": id, "server": "echo", "tool": tool});
    driver.item("item/started", item("a", "say"));
    driver.item("item/started", item("b", "other"));
    driver.told();
    let meta = json!({"codex_approval_kind": "mcp_tool_call", "tool_name": "say"});
    let mut params = elicitation(json!({"mode": "form", "_meta": meta, "message": "Allow?"}));
    params["threadId"] = json!(THREAD);
    driver.request(0, "mcpServer/elicitation/request", &params);
    assert!(driver.told()[0].contains("call=a@1.1"));
}

#[test]
fn a_form_of_an_mcp_server_is_filled_with_values_of_its_types() {
    let schema = json!({"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "title": "Name", "description": "your name"},
        "age": {"type": "integer"},
        "size": {"type": "number"},
        "ok": {"type": "boolean"},
        "colour": {"type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"]},
        "many": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "X!"}, {"const": "y"}]}},
    }});
    let params = elicitation(json!({"mode": "form", "message": "Who?", "requestedSchema": schema}));
    let shown = "age: None \"Who?\\nage\" [] free; \
                 colour: None \"colour\" [\"Red\", \"Blue\"]; \
                 many: None \"many\" [\"X!\", \"y\"] many; \
                 name: Some(\"Name\") \"your name\" [] free; \
                 ok: None \"ok\" [\"true\", \"false\"]; \
                 size: None \"size\" [] free";
    let method = "mcpServer/elicitation/request";
    let answer = reply(&[
        ("name", &["Ada"]),
        ("age", &["36"]),
        ("size", &["1.5"]),
        ("ok", &["true"]),
        ("colour", &["Blue"]),
        ("many", &["X!", "y"]),
    ]);
    assert_eq!(
        ask(method, params.clone(), shown, &answer),
        json!({"action": "accept", "_meta": null, "content": {
            "name": "Ada", "age": 36, "size": 1.5, "ok": true, "colour": "b", "many": ["x", "y"],
        }})
    );
    let declined = json!({"action": "decline", "content": null, "_meta": null});
    assert_eq!(ask(method, params, shown, &decline()), declined);
}

#[test]
fn a_form_without_fields_and_a_link_are_a_yes_or_a_no() {
    let form = json!({"mode": "openai/form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}});
    let link =
        json!({"mode": "url", "message": "Go to", "url": "https://a.test", "elicitationId": "e"});
    for (params, shown) in [
        (
            form,
            "\"Sure?\" {\"accept\": true, \"cancel\": false, \"decline\": false}",
        ),
        (
            link,
            "\"Go to\\nhttps://a.test\" {\"accept\": true, \"cancel\": false, \"decline\": false}",
        ),
    ] {
        let method = "mcpServer/elicitation/request";
        let result = ask(method, elicitation(params), shown, &choose("accept"));
        assert_eq!(
            result,
            json!({"action": "accept", "content": {}, "_meta": null})
        );
    }
}

#[test]
fn the_approvals_of_the_first_protocol_version_are_answered_in_its_words() {
    for (method, input) in [
        (
            "execCommandApproval",
            json!({"command": ["ls"], "cwd": "/workspace"}),
        ),
        (
            "applyPatchApproval",
            json!({"fileChanges": {"/workspace/a": {}}}),
        ),
    ] {
        for (answer, decision) in [
            (choose("approved"), json!("approved")),
            (
                choose("approved_for_session"),
                json!("approved_for_session"),
            ),
            (choose("abort"), json!("abort")),
            (
                decline(),
                json!({"denied": {"rejection": "declined by the user"}}),
            ),
        ] {
            let mut driver = Driver::running();
            let mut params = input.clone();
            params["conversationId"] = json!(THREAD);
            params["callId"] = json!("x");
            driver.request(1, method, &params);
            driver.answer("1.1", &answer).expect("it fits");
            assert_eq!(
                driver.written(),
                [json!({"id": 1, "result": {"decision": decision}})]
            );
        }
    }
}

#[test]
fn an_answer_that_does_not_fit_is_refused_and_the_question_stays_open() {
    let schema =
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let form = elicitation(
        json!({"threadId": THREAD, "mode": "form", "message": "?", "requestedSchema": schema}),
    );
    let text = json!({"threadId": THREAD, "questions": [{"id": "q", "question": "?"}]});
    let mut driver = Driver::running();
    driver.request(
        0,
        "item/commandExecution/requestApproval",
        &command(json!({"threadId": THREAD})),
    );
    driver.request(1, "mcpServer/elicitation/request", &form);
    driver.request(2, "item/tool/requestUserInput", &text);
    assert_eq!(driver.told().len(), 3, "parallel requests are all asked");
    for (id, answer) in [
        ("1.0", choose("approve")),
        ("1.0", reply(&[])),
        ("1.1", choose("accept")),
        ("1.1", reply(&[("m", &["1"])])),
        ("1.1", reply(&[])),
        ("1.1", reply(&[("n", &["one"])])),
        ("1.1", reply(&[("n", &["1", "2"])])),
        ("1.2", choose("q")),
        ("1.2", reply(&[("other", &["1"])])),
        ("2.0", choose("accept")),
        ("0", choose("accept")),
    ] {
        let error = driver.answer(id, &answer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAnswer, "{id} {answer:?}");
    }
    assert!(driver.written().is_empty());
    for (id, answer) in [
        ("1.2", reply(&[("q", &["x"])])),
        ("1.1", reply(&[("n", &["1"])])),
        ("1.0", decline()),
    ] {
        driver.answer(id, &answer).expect("it fits");
    }
    let ids: Vec<_> = driver
        .written()
        .iter()
        .map(|sent| sent["id"].clone())
        .collect();
    assert_eq!(ids, [json!(2), json!(1), json!(0)]);
}

#[test]
fn a_request_that_nobody_can_answer_is_refused_and_noted() {
    for (method, params) in [
        ("brand/new", json!({})),
        ("item/tool/call", json!({"threadId": THREAD, "tool": "x"})),
        ("account/chatgptAuthTokens/refresh", json!({"reason": "x"})),
        ("attestation/generate", json!({})),
        ("currentTime/read", json!({"threadId": THREAD})),
        (
            "mcpServer/elicitation/request",
            json!({"threadId": THREAD, "mode": "openai/userVerification"}),
        ),
    ] {
        let mut driver = Driver::running();
        driver.value(&json!({"method": method, "id": "q-1", "params": params}));
        let sent = driver.written();
        assert_eq!(sent[0]["id"], "q-1", "{method}");
        assert_eq!(sent[0]["error"]["code"], -32601, "{method}");
        let told = driver.told();
        assert!(told[0].contains("unknown_request"), "{told:?}");
    }
}

#[test]
fn a_request_that_the_program_closes_is_withdrawn_and_one_that_was_answered_is_not() {
    let mut driver = Driver::running();
    let params = command(json!({"threadId": THREAD}));
    for id in [0, 1] {
        driver.request(id, "item/commandExecution/requestApproval", &params);
    }
    driver.answer("1.0", &choose("accept")).expect("it fits");
    driver.told();
    for id in [0, 1, 2] {
        driver.own("serverRequest/resolved", json!({"requestId": id}));
    }
    assert_eq!(
        driver.told(),
        ["withdraws 1.1: the program no longer waits for it"]
    );
}

#[test]
fn the_end_of_a_turn_closes_its_questions_first() {
    let mut driver = Driver::running();
    driver.item(
        "item/started",
        json!({"type": "commandExecution", "id": "i", "command": "ls"}),
    );
    driver.request(
        0,
        "item/commandExecution/requestApproval",
        &command(json!({"threadId": THREAD})),
    );
    driver.told();
    driver.complete("interrupted");
    assert_eq!(
        driver.told(),
        ["withdraws 1.0: the turn has ended", "END interrupted"]
    );
    assert!(
        driver.asked().is_empty(),
        "the command that waited does not run"
    );
}

#[test]
fn a_choice_tells_people_what_it_does() {
    let mut driver = Driver::running();
    let amendment =
        json!({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["git", "push"]}});
    let params = command(json!({"threadId": THREAD, "availableDecisions": ["accept", amendment]}));
    driver.request(0, "item/commandExecution/requestApproval", &params);
    let EmissionKind::InteractionRequested(draft) = &driver.said[0] else {
        panic!("{:?}", driver.said);
    };
    let Presentation::ToolApproval { choices, .. } = &draft.presentation else {
        panic!("{draft:?}");
    };
    let labels: Vec<_> = choices.iter().map(|choice| choice.label.as_str()).collect();
    assert_eq!(
        labels,
        [
            "Allow once",
            "Allow for this session",
            "Allow, and always allow commands that begin with `git push`",
            "Decline",
            "Decline and stop the turn",
        ]
    );
}
