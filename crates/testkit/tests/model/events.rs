//! The order and shape of what goes out.

use astrabox_testkit::model::Wire;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::client::{Dialogue, WIRES, model, send};

const PROMPT: &str = "THINK: well\nSAY: hi there\nRUN: ls";

/// The stream of the prompt above, without what the clock decides.
async fn check_stream(wire: Wire, expected: Expect) {
    let model = model().await;
    let got = Dialogue::new(wire, true).user(PROMPT).ask(&model).await;
    assert_eq!(
        got.headers["content-type"],
        "text/event-stream; charset=utf-8"
    );
    assert!(!got.cut);
    let mut lines = String::new();
    for (name, data) in got.events() {
        let data = match serde_json::from_str::<Value>(&data) {
            Ok(data) => sorted(timeless(data)).to_string(),
            Err(_) => data,
        };
        lines.push_str(format!("{name} {data}").trim());
        lines.push('\n');
    }
    expected.assert_eq(&lines);
    model.shutdown().await;
}

async fn check_whole(wire: Wire, expected: Expect) {
    let model = model().await;
    let got = Dialogue::new(wire, false).user(PROMPT).ask(&model).await;
    assert_eq!(got.headers["content-type"], "application/json");
    assert!(got.headers.contains_key("content-length"));
    let body = serde_json::to_string_pretty(&sorted(timeless(got.json()))).expect("JSON");
    expected.assert_eq(&body);
    model.shutdown().await;
}

/// Takes out the creation time, and what no client reads.
fn timeless(mut data: Value) -> Value {
    let object = data.as_object_mut().expect("an object");
    object.remove("created");
    object.remove("created_at");
    if let Some(response) = object.get_mut("response") {
        *response = timeless(response.take());
    }
    data
}

/// Keys in the order of the alphabet, whatever features serde_json is built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(object) => {
            let mut fields: Vec<(String, Value)> = object.into_iter().collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            let fields = fields.into_iter().map(|(key, value)| (key, sorted(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

#[tokio::test]
async fn responses_events_come_in_the_vendors_order() {
    check_stream(Wire::Responses, expect![[r#"
        response.created {"response":{"background":false,"error":null,"id":"resp_7b63e7a8403651f081f00d34","incomplete_details":null,"model":"any","object":"response","output":[],"parallel_tool_calls":true,"status":"in_progress","store":false,"usage":null},"sequence_number":0,"type":"response.created"}
        response.in_progress {"response":{"background":false,"error":null,"id":"resp_7b63e7a8403651f081f00d34","incomplete_details":null,"model":"any","object":"response","output":[],"parallel_tool_calls":true,"status":"in_progress","store":false,"usage":null},"sequence_number":1,"type":"response.in_progress"}
        response.output_item.added {"item":{"id":"rs_117903f0295d511f8de90753","summary":[],"type":"reasoning"},"output_index":0,"sequence_number":2,"type":"response.output_item.added"}
        response.reasoning_summary_part.added {"item_id":"rs_117903f0295d511f8de90753","output_index":0,"part":{"text":"","type":"summary_text"},"sequence_number":3,"summary_index":0,"type":"response.reasoning_summary_part.added"}
        response.reasoning_summary_text.delta {"delta":"well","item_id":"rs_117903f0295d511f8de90753","output_index":0,"sequence_number":4,"summary_index":0,"type":"response.reasoning_summary_text.delta"}
        response.reasoning_summary_text.done {"item_id":"rs_117903f0295d511f8de90753","output_index":0,"sequence_number":5,"summary_index":0,"text":"well","type":"response.reasoning_summary_text.done"}
        response.reasoning_summary_part.done {"item_id":"rs_117903f0295d511f8de90753","output_index":0,"part":{"text":"well","type":"summary_text"},"sequence_number":6,"summary_index":0,"type":"response.reasoning_summary_part.done"}
        response.output_item.done {"item":{"encrypted_content":"scripted","id":"rs_117903f0295d511f8de90753","summary":[{"text":"well","type":"summary_text"}],"type":"reasoning"},"output_index":0,"sequence_number":7,"type":"response.output_item.done"}
        response.output_item.added {"item":{"content":[],"id":"msg_093de657bd21adca88bb1b1c","role":"assistant","status":"in_progress","type":"message"},"output_index":1,"sequence_number":8,"type":"response.output_item.added"}
        response.content_part.added {"content_index":0,"item_id":"msg_093de657bd21adca88bb1b1c","output_index":1,"part":{"annotations":[],"logprobs":[],"text":"","type":"output_text"},"sequence_number":9,"type":"response.content_part.added"}
        response.output_text.delta {"content_index":0,"delta":"hi t","item_id":"msg_093de657bd21adca88bb1b1c","logprobs":[],"output_index":1,"sequence_number":10,"type":"response.output_text.delta"}
        response.output_text.delta {"content_index":0,"delta":"here","item_id":"msg_093de657bd21adca88bb1b1c","logprobs":[],"output_index":1,"sequence_number":11,"type":"response.output_text.delta"}
        response.output_text.done {"content_index":0,"item_id":"msg_093de657bd21adca88bb1b1c","logprobs":[],"output_index":1,"sequence_number":12,"text":"hi there","type":"response.output_text.done"}
        response.content_part.done {"content_index":0,"item_id":"msg_093de657bd21adca88bb1b1c","output_index":1,"part":{"annotations":[],"logprobs":[],"text":"hi there","type":"output_text"},"sequence_number":13,"type":"response.content_part.done"}
        response.output_item.done {"item":{"content":[{"annotations":[],"logprobs":[],"text":"hi there","type":"output_text"}],"id":"msg_093de657bd21adca88bb1b1c","role":"assistant","status":"completed","type":"message"},"output_index":1,"sequence_number":14,"type":"response.output_item.done"}
        response.output_item.added {"item":{"arguments":"","call_id":"call_661916d5d92e1d17bbfdee12","id":"fc_c789faabc69eaa621f2351f1","name":"bash","status":"in_progress","type":"function_call"},"output_index":2,"sequence_number":15,"type":"response.output_item.added"}
        response.function_call_arguments.delta {"delta":"{\"command\":\"ls\"}","item_id":"fc_c789faabc69eaa621f2351f1","output_index":2,"sequence_number":16,"type":"response.function_call_arguments.delta"}
        response.function_call_arguments.done {"arguments":"{\"command\":\"ls\"}","item_id":"fc_c789faabc69eaa621f2351f1","output_index":2,"sequence_number":17,"type":"response.function_call_arguments.done"}
        response.output_item.done {"item":{"arguments":"{\"command\":\"ls\"}","call_id":"call_661916d5d92e1d17bbfdee12","id":"fc_c789faabc69eaa621f2351f1","name":"bash","status":"completed","type":"function_call"},"output_index":2,"sequence_number":18,"type":"response.output_item.done"}
        response.completed {"response":{"background":false,"error":null,"id":"resp_7b63e7a8403651f081f00d34","incomplete_details":null,"model":"any","object":"response","output":[{"encrypted_content":"scripted","id":"rs_117903f0295d511f8de90753","summary":[{"text":"well","type":"summary_text"}],"type":"reasoning"},{"content":[{"annotations":[],"logprobs":[],"text":"hi there","type":"output_text"}],"id":"msg_093de657bd21adca88bb1b1c","role":"assistant","status":"completed","type":"message"},{"arguments":"{\"command\":\"ls\"}","call_id":"call_661916d5d92e1d17bbfdee12","id":"fc_c789faabc69eaa621f2351f1","name":"bash","status":"completed","type":"function_call"}],"parallel_tool_calls":true,"status":"completed","store":false,"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":11}},"sequence_number":19,"type":"response.completed"}
    "#]]).await;
}

#[tokio::test]
async fn messages_events_come_in_the_vendors_order() {
    check_stream(Wire::Messages, expect![[r#"
        message_start {"message":{"content":[],"id":"msg_5177697cf9af59c916de7823","model":"any","role":"assistant","stop_reason":null,"stop_sequence":null,"type":"message","usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":7,"output_tokens":1}},"type":"message_start"}
        ping {"type":"ping"}
        content_block_start {"content_block":{"signature":"","thinking":"","type":"thinking"},"index":0,"type":"content_block_start"}
        content_block_delta {"delta":{"thinking":"well","type":"thinking_delta"},"index":0,"type":"content_block_delta"}
        content_block_delta {"delta":{"signature":"c2NyaXB0ZWQ=","type":"signature_delta"},"index":0,"type":"content_block_delta"}
        content_block_stop {"index":0,"type":"content_block_stop"}
        content_block_start {"content_block":{"text":"","type":"text"},"index":1,"type":"content_block_start"}
        content_block_delta {"delta":{"text":"hi t","type":"text_delta"},"index":1,"type":"content_block_delta"}
        content_block_delta {"delta":{"text":"here","type":"text_delta"},"index":1,"type":"content_block_delta"}
        content_block_stop {"index":1,"type":"content_block_stop"}
        content_block_start {"content_block":{"id":"toolu_2eac3e354cfe2a52771067d4","input":{},"name":"bash","type":"tool_use"},"index":2,"type":"content_block_start"}
        content_block_delta {"delta":{"partial_json":"{\"comman","type":"input_json_delta"},"index":2,"type":"content_block_delta"}
        content_block_delta {"delta":{"partial_json":"d\":\"ls\"}","type":"input_json_delta"},"index":2,"type":"content_block_delta"}
        content_block_stop {"index":2,"type":"content_block_stop"}
        message_delta {"delta":{"stop_reason":"tool_use","stop_sequence":null},"type":"message_delta","usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":7,"output_tokens":4}}
        message_stop {"type":"message_stop"}
    "#]]).await;
}

#[tokio::test]
async fn chat_chunks_come_in_the_vendors_order() {
    check_stream(Wire::Chat, expect![[r#"
        {"choices":[{"delta":{"content":"","role":"assistant"},"finish_reason":null,"index":0,"logprobs":null}],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":null}
        {"choices":[{"delta":{"reasoning_content":"well"},"finish_reason":null,"index":0,"logprobs":null}],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":null}
        {"choices":[{"delta":{"content":"hi t"},"finish_reason":null,"index":0,"logprobs":null}],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":null}
        {"choices":[{"delta":{"content":"here"},"finish_reason":null,"index":0,"logprobs":null}],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":null}
        {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"","name":"bash"},"id":"call_8344b8b1b9ec25e0b599fa8c","index":0,"type":"function"}]},"finish_reason":null,"index":0,"logprobs":null}],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":null}
        {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{\"command\":\"ls\"}"},"index":0}]},"finish_reason":null,"index":0,"logprobs":null}],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":null}
        {"choices":[{"delta":{},"finish_reason":"tool_calls","index":0,"logprobs":null}],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":null}
        {"choices":[],"id":"chatcmpl-12cf9d6c0ac67f48764b0e18","model":"any","object":"chat.completion.chunk","usage":{"completion_tokens":4,"completion_tokens_details":{"reasoning_tokens":1},"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":0},"total_tokens":11}}
        [DONE]
    "#]]).await;
}

#[tokio::test]
async fn a_responses_answer_is_whole_without_a_stream() {
    check_whole(
        Wire::Responses,
        expect![[r#"
        {
          "background": false,
          "error": null,
          "id": "resp_7b63e7a8403651f081f00d34",
          "incomplete_details": null,
          "model": "any",
          "object": "response",
          "output": [
            {
              "encrypted_content": "scripted",
              "id": "rs_117903f0295d511f8de90753",
              "summary": [
                {
                  "text": "well",
                  "type": "summary_text"
                }
              ],
              "type": "reasoning"
            },
            {
              "content": [
                {
                  "annotations": [],
                  "logprobs": [],
                  "text": "hi there",
                  "type": "output_text"
                }
              ],
              "id": "msg_093de657bd21adca88bb1b1c",
              "role": "assistant",
              "status": "completed",
              "type": "message"
            },
            {
              "arguments": "{\"command\":\"ls\"}",
              "call_id": "call_661916d5d92e1d17bbfdee12",
              "id": "fc_c789faabc69eaa621f2351f1",
              "name": "bash",
              "status": "completed",
              "type": "function_call"
            }
          ],
          "parallel_tool_calls": true,
          "status": "completed",
          "store": false,
          "usage": {
            "input_tokens": 7,
            "input_tokens_details": {
              "cached_tokens": 0
            },
            "output_tokens": 4,
            "output_tokens_details": {
              "reasoning_tokens": 0
            },
            "total_tokens": 11
          }
        }"#]],
    )
    .await;
}

#[tokio::test]
async fn a_messages_answer_is_whole_without_a_stream() {
    check_whole(
        Wire::Messages,
        expect![[r#"
        {
          "content": [
            {
              "signature": "c2NyaXB0ZWQ=",
              "thinking": "well",
              "type": "thinking"
            },
            {
              "text": "hi there",
              "type": "text"
            },
            {
              "id": "toolu_2eac3e354cfe2a52771067d4",
              "input": {
                "command": "ls"
              },
              "name": "bash",
              "type": "tool_use"
            }
          ],
          "id": "msg_5177697cf9af59c916de7823",
          "model": "any",
          "role": "assistant",
          "stop_reason": "tool_use",
          "stop_sequence": null,
          "type": "message",
          "usage": {
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "input_tokens": 7,
            "output_tokens": 4
          }
        }"#]],
    )
    .await;
}

#[tokio::test]
async fn a_chat_answer_is_whole_without_a_stream() {
    check_whole(
        Wire::Chat,
        expect![[r#"
        {
          "choices": [
            {
              "finish_reason": "tool_calls",
              "index": 0,
              "logprobs": null,
              "message": {
                "content": "hi there",
                "reasoning_content": "well",
                "refusal": null,
                "role": "assistant",
                "tool_calls": [
                  {
                    "function": {
                      "arguments": "{\"command\":\"ls\"}",
                      "name": "bash"
                    },
                    "id": "call_8344b8b1b9ec25e0b599fa8c",
                    "type": "function"
                  }
                ]
              }
            }
          ],
          "id": "chatcmpl-12cf9d6c0ac67f48764b0e18",
          "model": "any",
          "object": "chat.completion",
          "usage": {
            "completion_tokens": 4,
            "completion_tokens_details": {
              "reasoning_tokens": 1
            },
            "prompt_tokens": 7,
            "prompt_tokens_details": {
              "cached_tokens": 0
            },
            "total_tokens": 11
          }
        }"#]],
    )
    .await;
}

#[tokio::test]
async fn a_free_form_call_streams_its_input_as_text() {
    let model = model().await;
    let mut body = Dialogue::new(Wire::Responses, true)
        .user("WRITE a.txt x")
        .body();
    body["tools"] = json!([{"type": "custom", "name": "apply_patch"}]);
    let got = send(&model, "POST", "/v1/responses", &[], Some(&body)).await;
    let got = got.rest().await;
    let names: Vec<String> = got.events().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.custom_tool_call_input.delta",
            "response.custom_tool_call_input.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(
        got.said(Wire::Responses).calls[0].2,
        "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch\n"
    );
    model.shutdown().await;
}

#[tokio::test]
async fn tool_namespaces_and_additional_tools_are_found_and_named_in_the_call() {
    let model = model().await;
    let mut body = Dialogue::new(Wire::Responses, false)
        .user("SPAWN: hello")
        .body();
    let spawn = json!({
        "type": "function", "name": "spawn_agent",
        "parameters": {"type": "object", "properties": {"message": {"type": "string"}}},
    });
    let space = json!({"type": "namespace", "name": "multi_agent_v1", "tools": [spawn]});
    body["tools"] = json!([]);
    let input = body["input"].as_array_mut().expect("a list");
    input.insert(0, json!({"type": "additional_tools", "tools": [space]}));
    let got = send(&model, "POST", "/v1/responses", &[], Some(&body)).await;
    let item = got.rest().await.json()["output"][0].clone();
    assert_eq!(item["namespace"], "multi_agent_v1");
    assert_eq!(item["name"], "spawn_agent");
    assert_eq!(item["arguments"], r#"{"message":"hello"}"#);
    model.shutdown().await;
}

#[tokio::test]
async fn the_usage_chunk_of_a_chat_stream_comes_only_when_asked_for() {
    let model = model().await;
    let mut body = Dialogue::new(Wire::Chat, true).user("hi").body();
    for (asked, expected) in [(json!(true), 1), (json!(false), 0), (Value::Null, 0)] {
        body["stream_options"]["include_usage"] = asked;
        let got = send(&model, "POST", "/v1/chat/completions", &[], Some(&body)).await;
        let got = got.rest().await;
        let with_usage = got.body.matches("\"usage\":{").count();
        assert_eq!(with_usage, expected, "{}", got.body);
        assert!(got.body.ends_with("data: [DONE]\n\n"));
    }
    model.shutdown().await;
}

#[tokio::test]
async fn ids_depend_on_the_question_only_and_differ_between_attempts() {
    let (one, other) = (model().await, model().await);
    for wire in WIRES {
        let dialogue = Dialogue::new(wire, false).user("RUN: ls");
        let first = dialogue.ask(&one).await.json()["id"].clone();
        assert_eq!(first, dialogue.ask(&other).await.json()["id"]);
        assert_ne!(first, dialogue.ask(&one).await.json()["id"]);
    }
    one.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn models_are_listed_in_the_callers_dialect() {
    let model = model().await;
    let openai = send(&model, "GET", "/v1/models", &[], None).await;
    let openai = openai.rest().await.json();
    assert_eq!(openai["object"], "list");
    assert_eq!(openai["data"][0]["id"], "scripted-model");

    let version = [("anthropic-version", "2023-06-01")];
    let anthropic = send(&model, "GET", "/v1/models", &version, None).await;
    let anthropic = anthropic.rest().await.json();
    assert_eq!(anthropic["data"][0]["type"], "model");
    assert_eq!(anthropic["has_more"], false);

    let one = send(&model, "GET", "/v1/models/scripted-model", &[], None).await;
    assert_eq!(one.rest().await.json()["object"], "model");
    model.shutdown().await;
}

#[tokio::test]
async fn tokens_are_counted_without_an_answer() {
    let model = model().await;
    for (wire, path, count) in [
        (
            Wire::Messages,
            "/v1/messages/count_tokens",
            json!({"input_tokens": 3}),
        ),
        (
            Wire::Responses,
            "/v1/responses/input_tokens",
            json!({"object": "response.input_tokens", "input_tokens": 3}),
        ),
    ] {
        let body = Dialogue::new(wire, false).user("one two three").body();
        let got = send(&model, "POST", path, &[], Some(&body)).await;
        assert_eq!(got.rest().await.json(), count, "{path}");
    }
    assert!(model.requests().iter().all(|asked| asked.wire.is_none()));
    model.shutdown().await;
}
