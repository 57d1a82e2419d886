//! What an agent brings along: MCP servers, skills, pictures.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::collections::HashMap;

use astrabox_client::{text_part, v1};
use v1::interaction::Presentation;
use v1::mcp_server::Transport;

use crate::{Program, Stage, must};

/// A smallest MCP server: one tool, `say`, that repeats its text.
const ECHO: &str = r#"
BEGIN { $| = 1 }
my $m = decode_json($_);
next unless defined $m->{id} && $m->{method};
my $r = {};
if ($m->{method} eq "initialize") {
    $r = { protocolVersion => $m->{params}{protocolVersion}, capabilities => { tools => {} },
           serverInfo => { name => "echo", version => "1" } };
} elsif ($m->{method} eq "tools/list") {
    $r = { tools => [{ name => "say", description => "Repeats a text.", inputSchema => {
           type => "object", properties => { text => { type => "string" } }, required => ["text"] } }] };
} elsif ($m->{method} eq "tools/call") {
    $r = { content => [{ type => "text", text => "mcp says $m->{params}{arguments}{text} $ENV{WORD}" }] };
}
print encode_json({ jsonrpc => "2.0", id => $m->{id}, result => $r }), "\n";
"#;

fn echo() -> v1::McpServer {
    let stdio = v1::McpStdio {
        command: "perl".to_owned(),
        args: ["-MJSON::PP", "-ne", ECHO].map(str::to_owned).to_vec(),
        env: HashMap::from([("WORD".to_owned(), "heliotrope".to_owned())]),
    };
    v1::McpServer {
        name: "echo".to_owned(),
        transport: Some(Transport::Stdio(stdio)),
    }
}

pub async fn a_tool_of_an_mcp_server_is_called(program: &Program) {
    let agent = v1::AgentSpec {
        mcp_servers: vec![echo()],
        ..Default::default()
    };
    let stage = must(Stage::with(program, agent).await);
    let mut talk = must(stage.conversation(program.asking).await);
    must(
        talk.send(&format!(
            "TOOL: {} {{\"text\": \"hello\"}}",
            program.mcp_say
        ))
        .await,
    );
    if program.asks_for_mcp {
        let asked = must(talk.until_asked().await);
        let Some(Presentation::ToolApproval(approval)) = &asked.presentation else {
            panic!("an approval: {asked:?}")
        };
        assert!(approval.tool.contains("echo"), "{approval:?}");
        let allowing = approval.choices.iter().find(|choice| choice.allows);
        let allowing = allowing.expect("a choice that allows it").id.clone();
        must(talk.choose(&asked, &allowing).await);
    }
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    let output = &turn.results()[0].output;
    assert!(output.contains("mcp says hello heliotrope"), "{output}");
    must(stage.clear().await);
}

pub async fn a_skill_is_known_to_the_program(program: &Program) {
    let text = "---\nname: tell-the-word\ndescription: Knows the word chartreuse.\n---\nSay it.\n";
    let skill = v1::Skill {
        name: "tell-the-word".to_owned(),
        files: HashMap::from([("SKILL.md".to_owned(), text.to_owned())]),
    };
    let agent = v1::AgentSpec {
        skills: vec![skill],
        ..Default::default()
    };
    let stage = must(Stage::with(program, agent).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    must(talk.say("SAY: ready").await);
    let told = stage.model.requests();
    let told = told
        .iter()
        .any(|request| request.body.to_string().contains("chartreuse"));
    assert!(told, "the model is told of the skill");
    must(stage.clear().await);
}

/// In the words of Claude Code, the one program with plugin directories.
pub async fn a_plugin_is_known_to_the_program(program: &Program) {
    let agent = v1::AgentSpec {
        engine_options: HashMap::from([(
            "plugins".to_owned(),
            r#"{"directories": ["/workspace/tools"]}"#.to_owned(),
        )]),
        ..Default::default()
    };
    let stage = must(Stage::with(program, agent).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let make = "RUN: mkdir -p tools/.claude-plugin tools/skills/colour && \
                echo '{\"name\": \"tools\", \"description\": \"d\", \"version\": \"1.0.0\"}' \
                > tools/.claude-plugin/plugin.json && \
                printf -- '---\\nname: colour\\ndescription: Knows the word vermilion.\\n---\\nSay it.\\n' \
                > tools/skills/colour/SKILL.md && echo made";
    let turn = must(talk.say(make).await);
    assert!(turn.results()[0].output.contains("made"), "{turn:?}");
    // Directories are read when the program starts.
    let release = v1::ReleaseSandboxRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    must(talk.client.release_sandbox(release).await);
    must(talk.until_state(v1::SessionState::Hibernated).await);
    must(talk.say("SAY: ready").await);
    let told = stage.model.requests();
    let last = told.last().expect("a request").body.to_string();
    assert!(
        last.contains("vermilion"),
        "the model is told of the plugin"
    );
    must(stage.clear().await);
}

pub async fn an_mcp_server_at_a_host_that_is_not_allowed_is_refused(program: &Program) {
    let http = v1::McpHttp {
        url: "https://mcp.elsewhere.test/mcp".to_owned(),
    };
    let agent = v1::AgentSpec {
        mcp_servers: vec![v1::McpServer {
            name: "far".to_owned(),
            transport: Some(Transport::Http(http)),
        }],
        ..Default::default()
    };
    let stage = must(Stage::with(program, agent).await);
    let refused = stage.conversation(program.unasked).await;
    let Err(error) = refused else {
        panic!("it is refused")
    };
    let text = format!("{error:?}");
    assert!(
        text.contains("mcp.elsewhere.test:443") && text.contains("allowed_hosts"),
        "{text}"
    );
    must(stage.clear().await);
}

pub async fn a_picture_reaches_the_model(program: &Program) {
    // One red pixel.
    let png: &[u8] = &[
        0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0,
        0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0, 0x90, 0x77, 0x53, 0xde, 0, 0, 0, 0x0c, 0x49, 0x44,
        0x41, 0x54, 8, 0xd7, 0x63, 0xf8, 0xcf, 0xc0, 0, 0, 3, 1, 1, 0, 0x18, 0xdd, 0x8d, 0xb0, 0,
        0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
    ];
    let stage = must(Stage::of(program).await);
    let mut talk = must(stage.conversation(program.unasked).await);
    let image = v1::Image {
        media_type: "image/png".to_owned(),
        data: png.to_vec().into(),
    };
    let image = v1::ContentPart {
        part: Some(v1::content_part::Part::Image(image)),
    };
    must(
        talk.send_parts(vec![text_part("look at this"), image])
            .await,
    );
    let turn = must(talk.turn().await);
    assert_eq!(turn.ended().outcome(), v1::TurnOutcome::Completed);
    let told = stage.model.requests();
    let told = told.iter().any(|request| {
        let body = request.body.to_string();
        body.contains("image/png") && body.contains("iVBORw0KGgo")
    });
    assert!(told, "the model is shown the picture");
    must(stage.clear().await);
}
