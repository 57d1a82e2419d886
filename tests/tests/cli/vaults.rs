//! Vaults from the command line: a secret comes through a pipe or a file, and never out again.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::stage::{Stage, text};

const CANARY: &str = "canary-of-the-command-line-4b1d";

/// The program with this on its standard input, to its end.
fn with_input(stage: &Stage, arguments: &[&str], input: &str) -> Output {
    let mut command = stage.command(arguments);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(input.as_bytes()).expect("it reads");
    drop(pipe);
    child.wait_with_output().expect("it ends")
}

/// What it printed, as an object, when it succeeded and told no secret.
fn object(output: &Output) -> Value {
    let (out, beside) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{beside}");
    assert!(
        !out.contains(CANARY) && !beside.contains(CANARY),
        "{out}{beside}"
    );
    serde_json::from_str(&out).expect("an object")
}

fn id(value: &Value) -> String {
    value["id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_vault_is_made_filled_used_and_removed() {
    let stage = Stage::new();
    let vault = id(&stage.json(&["vault", "create", "--name", "work", "--metadata", "team=a"]));
    let add = ["--json", "vault", "credential", "add", &vault];
    let secret = format!("{CANARY}\n");
    let bearer = [
        &add[..],
        &["static-bearer", "--mcp-server-url", "https://MCP.example/"],
    ]
    .concat();
    let made = object(&with_input(&stage, &bearer, &secret));
    let url = &made["spec"]["static_bearer"]["mcp_server_url"];
    assert_eq!(url, "https://mcp.example");
    // The same from a file.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, &secret).expect("it is written");
    let file = file.to_str().expect("text");
    let from_file = [
        &add[..],
        &["--secret-file", file, "--name", "the API"],
        &["environment-variable", "--secret-name", "API_TOKEN"],
        &[
            "--allow-host",
            "api.example",
            "--method",
            "get",
            "--path",
            "/v1/*",
            "--not-in-body",
            "--in-websocket",
        ],
    ]
    .concat();
    let variable = object(&stage.piped(&from_file));
    let spec = &variable["spec"]["environment_variable"];
    assert_eq!(spec["allowed_requests"]["methods"][0], "GET");
    assert_eq!(spec["injection_location"]["body"], false);
    assert_eq!(spec["injection_location"]["websocket"], true);
    // A secret that is none, a place that is taken.
    let empty = with_input(&stage, &bearer, "\n");
    assert_eq!(empty.status.code(), Some(2), "{}", text(&empty.stderr));
    let again = with_input(&stage, &bearer, &secret);
    assert!(
        text(&again.stderr).contains("active credential"),
        "{}",
        text(&again.stderr)
    );
    assert!(!text(&again.stderr).contains(CANARY));

    let listed = stage.piped(&["vault", "credential", "list", &vault]);
    let listed = text(&listed.stdout);
    for part in [
        "static_bearer",
        "https://mcp.example",
        "environment_variable",
        "API_TOKEN",
        "the API",
    ] {
        assert!(listed.contains(part), "{part} is not in\n{listed}");
    }
    let credential = id(&made);
    let rotate = [
        "--json",
        "vault",
        "credential",
        "rotate",
        &vault,
        &credential,
    ];
    let rotated = object(&with_input(&stage, &rotate, &format!("{CANARY}-2")));
    assert_eq!(rotated["secret_version"], 2);
    let renamed = stage.json(&["vault", "credential", "rename", &vault, &credential, "new"]);
    assert_eq!(
        (&renamed["display_name"], &renamed["secret_version"]),
        (&"new".into(), &2.into())
    );
    assert_eq!(stage.json(&["vault", "rotate-key"])["key_version"], 2);

    let environment = ["environment", "create", "--name", "e", "--engine", "fake"];
    let environment = stage.json(&[&environment[..], &["--allow-mcp-servers"]].concat());
    let limited = &environment["spec"]["networking"]["limited"];
    assert_eq!(limited["allow_mcp_servers"], true);
    let agent = [
        "agent",
        "create",
        "--name",
        "a",
        "--environment",
        "e",
        "--model",
        "m",
    ];
    let agent = stage.json(&[&agent[..], &["--vault", &vault]].concat());
    assert_eq!(agent["spec"]["vault_ids"][0], vault.as_str());
    let shown = stage.json(&["vault", "show", &vault]);
    assert_eq!(shown["agent_ids"][0], agent["id"]);
    let refused = stage.piped(&["vault", "delete", &vault]);
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));

    let archived = stage.json(&["vault", "credential", "archive", &vault, &credential]);
    assert!(archived["archived_at"].is_string());
    stage.json(&["vault", "credential", "delete", &vault, &credential]);
    let archived = stage.json(&["vault", "archive", &vault]);
    assert!(archived["archived_at"].is_string());
    assert_eq!(
        stage.json(&["vault", "list"])["vaults"],
        serde_json::json!([])
    );
    stage.json(&["agent", "archive", agent["id"].as_str().expect("an id")]);
    stage.json(&["vault", "delete", &vault]);
    let gone = stage.piped(&["vault", "show", &vault]);
    assert_eq!(gone.status.code(), Some(4), "{}", text(&gone.stderr));
    stage.clear();
}

#[test]
fn two_vaults_with_one_variable_are_refused_when_a_session_is_made() {
    let stage = Stage::new();
    stage.json(&["environment", "create", "--name", "e", "--engine", "fake"]);
    let mut agent = vec![
        "agent",
        "create",
        "--name",
        "a",
        "--environment",
        "e",
        "--model",
        "m",
    ];
    let vaults: Vec<String> = ["one", "two"]
        .iter()
        .map(|name| id(&stage.json(&["vault", "create", "--name", name])))
        .collect();
    for vault in &vaults {
        let add = [
            "--json",
            "vault",
            "credential",
            "add",
            vault,
            "environment-variable",
        ];
        let what = ["--secret-name", "API_TOKEN", "--allow-host", "api.example"];
        object(&with_input(&stage, &[&add[..], &what].concat(), CANARY));
        agent.extend(["--vault", vault]);
    }
    let agent = id(&stage.json(&agent));
    let create = ["session", "create", &agent];
    let refused = stage.piped(&create);
    let told = text(&refused.stderr);
    assert!(told.contains("`API_TOKEN`"), "{told}");
    stage.json(&["vault", "archive", &vaults[1]]);
    let made = stage.piped(&create);
    assert!(made.status.success(), "{}", text(&made.stderr));
    stage.clear();
}
