use serde_json::json;

use super::*;

fn offer(name: &str, properties: Value, required: Value) -> ToolOffer {
    ToolOffer {
        name: name.to_owned(),
        namespace: None,
        kind: ToolKind::Function,
        schema: json!({"type": "object", "properties": properties, "required": required}),
        description: String::new(),
    }
}

fn free(name: &str, description: &str) -> ToolOffer {
    ToolOffer {
        kind: ToolKind::Custom,
        description: description.to_owned(),
        schema: Value::Null,
        ..offer(name, json!({}), json!([]))
    }
}

fn with(offers: &[ToolOffer]) -> Conversation {
    Conversation {
        tools: offers.to_vec(),
        ..Conversation::default()
    }
}

fn run(offers: &[ToolOffer]) -> Call {
    resolve(&Step::Run("ls".to_owned()), &with(offers)).expect("a shell tool is offered")
}

fn write(offers: &[ToolOffer]) -> Call {
    let step = Step::Write {
        path: "a.txt".to_owned(),
        content: "x\ny".to_owned(),
    };
    resolve(&step, &with(offers)).expect("a file tool is offered")
}

#[test]
fn a_command_goes_to_each_programs_own_shell_tool() {
    let string = json!({"type": "string"});
    let cases = [
        (
            offer("exec_command", json!({"cmd": string}), json!(["cmd"])),
            json!({"cmd": "ls"}),
        ),
        (
            offer(
                "shell",
                json!({"command": {"type": "array"}}),
                json!(["command"]),
            ),
            json!({"command": ["bash", "-lc", "ls"]}),
        ),
        (
            offer("Bash", json!({"command": string}), json!(["command"])),
            json!({"command": "ls"}),
        ),
        (
            offer(
                "bash",
                json!({"command": string, "description": string, "timeoutMs": {"type": "number"}}),
                json!(["command", "description"]),
            ),
            json!({"command": "ls", "description": "scripted"}),
        ),
        (
            offer("terminal", json!({"command": string}), json!(["command"])),
            json!({"command": "ls"}),
        ),
    ];
    for (offer, expected) in cases {
        let name = offer.name.clone();
        let other = super::tests::offer("Read", json!({}), json!([]));
        let call = run(&[other, offer]);
        assert_eq!((call.name, call.input), (name, Input::Json(expected)));
    }
}

#[test]
fn a_code_cell_runs_a_command_where_there_is_no_shell_tool() {
    let cell = free("exec", "JavaScript\n### `exec_command`\n### `apply_patch`");
    let Input::Text(source) = run(std::slice::from_ref(&cell)).input else {
        panic!("a cell takes text");
    };
    assert_eq!(
        source,
        r#"const r = await tools.exec_command({"cmd":"ls"}); text(r.output);"#
    );
    let Input::Text(source) = write(&[cell]).input else {
        panic!("a cell takes text");
    };
    assert!(source.starts_with(r#"text(await tools.apply_patch("*** Begin Patch\n"#));
}

#[test]
fn a_file_goes_through_the_patch_tool_then_the_write_tool_then_the_shell() {
    let string = json!({"type": "string"});
    let patch = "*** Begin Patch\n*** Add File: a.txt\n+x\n+y\n*** End Patch\n";
    let shell = offer("exec_command", json!({"cmd": string}), json!(["cmd"]));
    let writer = offer(
        "write",
        json!({"path": string, "content": string}),
        json!(["path", "content"]),
    );
    let all = [shell, writer, free("apply_patch", "")];

    assert_eq!(write(&all).input, Input::Text(patch.to_owned()));
    assert_eq!(
        write(&all[..2]).input,
        Input::Json(json!({"path": "a.txt", "content": "x\ny"}))
    );
    assert_eq!(
        write(&all[..1]).input,
        Input::Json(json!({"cmd": format!("apply_patch <<'EOF'\n{patch}EOF")}))
    );
}

#[test]
fn a_tool_is_called_by_its_name_with_or_without_namespace() {
    let spaced = ToolOffer {
        namespace: Some("multi_agent_v1".to_owned()),
        ..offer(
            "spawn_agent",
            json!({"message": {"type": "string"}}),
            json!([]),
        )
    };
    for name in ["spawn_agent", "multi_agent_v1.spawn_agent"] {
        let step = Step::Tool {
            name: name.to_owned(),
            input: json!({"message": "hi"}),
        };
        let call = resolve(&step, &with(std::slice::from_ref(&spaced))).expect("offered");
        assert_eq!(call.namespace.as_deref(), Some("multi_agent_v1"));
        assert_eq!(call.input, Input::Json(json!({"message": "hi"})));
    }
}

#[test]
fn a_missing_tool_is_named_together_with_what_there_is() {
    let why = resolve(
        &Step::Run("ls".to_owned()),
        &with(&[offer("Read", json!({}), json!([]))]),
    )
    .expect_err("there is no shell tool");
    assert_eq!(why, "the request offers no shell tool; offered: Read");
}
