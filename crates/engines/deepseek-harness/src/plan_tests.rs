use std::collections::BTreeMap;
use std::sync::Arc;

use astrabox_conformance::doubles::MemoryWorkload;
use astrabox_engine::model::{CredentialKind, ResolvedModelAccess};
use astrabox_engine::{Conversation, EngineStartupContext};
use astrabox_types::{
    AgentSpec, EnvironmentId, Json, McpServer, McpTransport, PermissionLevel, SessionId,
    SessionKind,
};
use serde_json::json;

use super::*;

fn context() -> EngineStartupContext {
    EngineStartupContext {
        session_id: SessionId::new(),
        epoch: 1,
        session_kind: SessionKind::AgentChat,
        agent: AgentSpec {
            name: "a".to_owned(),
            description: String::new(),
            environment_id: EnvironmentId::new(),
            model: "m".to_owned(),
            system: String::new(),
            engine_options: BTreeMap::new(),
            permission_mode: None,
            repository: None,
            mcp_servers: Vec::new(),
            skills: Vec::new(),
            approval_rules: Vec::new(),
            vault_ids: Vec::new(),
            metadata: BTreeMap::new(),
        },
        program: None,
        permission_mode: None,
        permission_level: PermissionLevel::Default,
        model: ResolvedModelAccess {
            base_url: "http://models.test".to_owned(),
            model_name: "m-1".to_owned(),
            credential: None,
            credential_kind: CredentialKind::ApiKey,
            endpoint_provider: "direct".to_owned(),
        },
        model_placeholder: "placeholder-1".to_owned(),
        mcp_headers: Vec::new(),
        workload: Arc::new(MemoryWorkload::running(
            astrabox_conformance::doubles::program(|_io| async { 0 }),
        )),
        env: BTreeMap::new(),
        conversation: Conversation::New,
    }
}

/// The configuration of a row, as the program takes it: the last patch of it counts.
fn row(context: &EngineStartupContext, id: &str) -> Value {
    let mode = mode(context).expect("there is such a mode");
    let rows = patch(context, mode).expect("it can be patched");
    let rows = rows.as_array().expect("a list").iter().rev();
    let mut rows = rows.filter(|row| row["id"] == id);
    rows.next().cloned().unwrap_or_default()
}

fn set(context: &mut EngineStartupContext, block: &str, value: Value) {
    let options = &mut context.agent.engine_options;
    options.insert(block.to_owned(), Json::from(value));
}

#[test]
fn what_tells_others_of_the_conversation_is_off() {
    let context = context();
    for id in [
        "session-log-deepseek",
        "plugin-package-inventory-deepseek",
        "session-telemetry-otel",
        "otel",
        "deepseek-account",
    ] {
        assert_eq!(row(&context, id), json!({"id": id, "disabled": true}));
    }
}

#[test]
fn a_mode_is_a_preset_with_its_sandbox_and_policy() {
    for (name, sandbox, policy) in [
        ("read-only", "read-only", "ask"),
        ("workspace-write", "workspace-write", "ask"),
        ("danger-full-access", "danger-full-access", "never"),
        ("ask", "danger-full-access", "ask"),
    ] {
        let mut context = context();
        context.permission_mode = Some(name.to_owned());
        assert_eq!(row(&context, "sandbox-policy")["config"]["mode"], sandbox);
        assert_eq!(row(&context, "approval")["config"]["policy"], policy);
        let presets = &row(&context, "permission")["config"];
        assert_eq!(presets["defaultPreset"], name);
        let preset = json!({"sandbox": sandbox, "approval": policy});
        assert_eq!(presets["presets"][name], preset);
        let plan = Plan::of(&context).expect("it is planned");
        assert_eq!(plan.settings.mode.as_deref(), Some(name));
    }
}

#[test]
fn a_model_is_asked_in_the_manner_of_its_endpoint() {
    for (model, kind, route) in [
        ("m-1", CredentialKind::ApiKey, "gateway"),
        ("m-1", CredentialKind::Bearer, "gateway"),
        (
            "deepseek-v4-pro",
            CredentialKind::ApiKey,
            "deepseek-official",
        ),
        // The official route knows no bearer token.
        ("deepseek-v4-pro", CredentialKind::Bearer, "gateway"),
    ] {
        let mut context = context();
        context.model.model_name = model.to_owned();
        context.model.credential_kind = kind;
        set(&mut context, "model", json!({"contextWindow": 1000}));
        let acp = &row(&context, "acp")["config"];
        assert_eq!(acp["provider"], route, "{model} {kind:?}");
        assert_eq!(acp["model"], model);
        let entry = json!([{"contextWindow": 1000, "id": model}]);
        if route == "gateway" {
            let provider = &row(&context, "llm-pi-ai")["config"]["providers"][route];
            assert_eq!(provider["models"], entry);
            assert_eq!(provider["baseURL"], "http://models.test");
            let bearer = provider["headers"]["authorization"].as_str();
            let wanted = (kind == CredentialKind::Bearer).then_some("Bearer placeholder-1");
            assert_eq!(bearer, wanted);
            assert_eq!(row(&context, "llm-deepseek")["disabled"], true);
        } else {
            let config = &row(&context, "llm-deepseek")["config"];
            assert_eq!(config["models"], entry);
            assert_eq!(config["baseURL"], "http://models.test");
            assert_eq!(row(&context, "llm-pi-ai")["disabled"], true);
        }
    }
}

#[test]
fn instructions_are_a_value_and_no_template() {
    let mut context = context();
    assert_eq!(
        row(&context, "system-prompt")["config"]["personaSuffix"],
        ""
    );
    context.agent.system = "Say {{model}}.".to_owned();
    let suffix = &row(&context, "system-prompt")["config"]["personaSuffix"];
    assert_eq!(suffix, "{{agent_instructions}}");
    let rows = patch(&context, demand_mode("ask").expect("there is")).expect("it is patched");
    let host = &rows[0]["insert"][0]["config"];
    assert_eq!(host["instructions"], "Say {{model}}.");
}

#[test]
fn an_agents_rows_and_options_reach_the_program_verbatim() {
    let mut context = context();
    set(
        &mut context,
        "profile",
        json!({"tool-workflow": {"disabled": true}, "jobs": {"config": {"retainBytes": 1}}}),
    );
    set(&mut context, "session", json!({"reasoning_effort": "max"}));
    let jobs = json!({"id": "jobs", "config": {"retainBytes": 1}});
    assert_eq!(row(&context, "jobs"), jobs);
    assert_eq!(row(&context, "tool-workflow")["disabled"], true);
    let plan = Plan::of(&context).expect("it is planned");
    let wish = Wish::Option {
        id: "reasoning_effort".to_owned(),
        value: json!("max"),
    };
    assert_eq!(plan.settings.wishes, [wish]);
    set(&mut context, "profile", json!({"tool-workflow": true}));
    let error = Plan::of(&context).expect_err("it is no row");
    assert!(
        error.to_string().contains("profile.tool-workflow"),
        "{error}"
    );
}

#[test]
fn a_command_of_an_mcp_server_is_found_on_the_path() {
    for (given, command, args) in [
        ("python3", "/usr/bin/env", vec!["python3", "x"]),
        ("/bin/echo", "/bin/echo", vec!["x"]),
    ] {
        let server = McpServer {
            name: "echo".to_owned(),
            transport: McpTransport::Stdio {
                command: given.to_owned(),
                args: vec!["x".to_owned()],
                env: BTreeMap::new(),
            },
        };
        let McpTransport::Stdio {
            command: found,
            args: with,
            ..
        } = found_by_path(&server).transport
        else {
            panic!("it stays a process");
        };
        assert_eq!(
            (found.as_str(), with),
            (command, args.iter().map(|arg| (*arg).to_owned()).collect())
        );
    }
}

#[test]
fn commands_get_the_variables_that_the_program_withholds() {
    let mut context = context();
    assert!(
        !Plan::of(&context)
            .expect("it is planned")
            .spawn
            .env
            .contains_key("BASH_ENV")
    );
    let pairs = [
        ("API_KEY", "it's"),
        ("token_of", "t"),
        ("EDITOR", "vi"),
        ("A-KEY", "no"),
    ];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    context.env = BTreeMap::from(pairs);
    let plan = Plan::of(&context).expect("it is planned");
    let path = plan.spawn.env.get("BASH_ENV").expect("it is set");
    let script = plan.files.iter().find(|file| file.path.as_str() == path);
    let script = String::from_utf8_lossy(&script.expect("it is written").content).into_owned();
    expect_test::expect![[r#"
        [ -n "${API_KEY+x}" ] || export API_KEY='it'\''s'
        [ -n "${token_of+x}" ] || export token_of='t'
    "#]]
    .assert_eq(&script);
}
