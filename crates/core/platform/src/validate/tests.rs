//! What an agent brings along is refused by name, before anything is made.

use astrabox_types::{McpServer, McpTransport, Networking, Repository, Skill};

use super::*;

fn stdio(name: &str, command: &str, args: &[&str], env: &[(&str, &str)]) -> McpServer {
    McpServer {
        name: name.to_owned(),
        transport: McpTransport::Stdio {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: env
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        },
    }
}

fn http(name: &str, url: &str) -> McpServer {
    McpServer {
        name: name.to_owned(),
        transport: McpTransport::Http {
            url: url.to_owned(),
        },
    }
}

fn skill(name: &str, files: &[(&str, &str)]) -> Skill {
    Skill {
        name: name.to_owned(),
        files: files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect(),
    }
}

/// What the refusal has to say; nothing where it is taken.
fn check(result: Result<()>, wanted: Option<&str>, case: &str) {
    match (result, wanted) {
        (Ok(()), None) => {}
        (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{case}: {error}"),
        (Ok(()), Some(_)) => panic!("{case}: it was taken"),
        (Err(error), None) => panic!("{case}: {error}"),
    }
}

#[test]
fn mcp_servers_have_names_programs_and_addresses() {
    let long = "x".repeat(MAX_MCP_TEXT + 1);
    let many: Vec<_> = (0..=MAX_MCP_SERVERS)
        .map(|n| http(&format!("s{n}"), "https://a.test"))
        .collect();
    let parts: Vec<_> = (0..=MAX_MCP_PARTS).map(|_| "a").collect();
    for (case, servers, wanted) in [
        (
            "both kinds",
            vec![
                stdio("a_B-1", "perl", &["x.pl"], &[("A", "b")]),
                http("b", "http://b.test:8080/mcp"),
            ],
            None,
        ),
        (
            "no name",
            vec![stdio("", "perl", &[], &[])],
            Some("1 to 64"),
        ),
        (
            "a long name",
            vec![stdio(&"a".repeat(65), "perl", &[], &[])],
            Some("1 to 64"),
        ),
        (
            "a name with a dot",
            vec![stdio("a.b", "perl", &[], &[])],
            Some("1 to 64"),
        ),
        (
            "a name twice",
            vec![stdio("a", "perl", &[], &[]), http("a", "https://a.test")],
            Some("`a` twice"),
        ),
        (
            "no program",
            vec![stdio("a", "", &[], &[])],
            Some("spec.mcp_servers"),
        ),
        (
            "a long argument",
            vec![stdio("a", "perl", &[&long], &[])],
            Some("spec.mcp_servers"),
        ),
        (
            "many arguments",
            vec![stdio("a", "perl", &parts, &[])],
            Some("at most"),
        ),
        (
            "a NUL",
            vec![stdio("a", "perl", &["a\0b"], &[])],
            Some("NUL"),
        ),
        (
            "a variable with =",
            vec![stdio("a", "perl", &[], &[("A=B", "c")])],
            Some("`A=B`"),
        ),
        (
            "a variable without a name",
            vec![stdio("a", "perl", &[], &[("", "c")])],
            Some("not the name"),
        ),
        (
            "another scheme",
            vec![http("a", "ftp://a.test")],
            Some("`ftp://a.test`"),
        ),
        (
            "user info",
            vec![http("a", "https://u@a.test")],
            Some("`https://u@a.test`"),
        ),
        (
            "a space",
            vec![http("a", "https://a.test/ b")],
            Some("not an http"),
        ),
        ("too many", many, Some("at most")),
    ] {
        check(mcp_servers(&servers), wanted, case);
    }
}

#[test]
fn mcp_hosts_are_those_that_the_environment_allows() {
    let limited = |hosts: &[&str]| Networking::Limited {
        allowed_hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        allow_mcp_servers: false,
    };
    for (case, url, networking, wanted) in [
        (
            "an allowed host",
            "https://a.test/mcp",
            limited(&["a.test"]),
            None,
        ),
        (
            "a wildcard",
            "https://x.a.test/mcp",
            limited(&["*.a.test"]),
            None,
        ),
        (
            "its port too",
            "https://a.test:8443",
            limited(&["a.test"]),
            Some("a.test:8443"),
        ),
        (
            "no host",
            "https://a.test",
            limited(&[]),
            Some("allowed_hosts"),
        ),
        (
            "its own loopback",
            "http://127.0.0.1:9000/mcp",
            limited(&[]),
            None,
        ),
        (
            "everything",
            "https://a.test",
            Networking::Unrestricted,
            None,
        ),
    ] {
        check(mcp_hosts(&[http("a", url)], &networking), wanted, case);
    }
    check(
        mcp_hosts(&[stdio("a", "perl", &[], &[])], &limited(&[])),
        None,
        "a program needs no host",
    );
}

#[test]
fn skills_are_folders_with_a_skill_file_and_a_limit() {
    let own = ("SKILL.md", "x");
    let large = "x".repeat(MAX_SKILL_BYTES);
    let many: Vec<_> = (0..=MAX_SKILLS)
        .map(|n| skill(&format!("s{n}"), &[own]))
        .collect();
    for (case, given, wanted) in [
        (
            "a skill",
            vec![skill("a-1", &[own, ("deep/er/x.txt", "y")])],
            None,
        ),
        ("no name", vec![skill("", &[own])], Some("1 to 64")),
        (
            "an upper case name",
            vec![skill("A", &[own])],
            Some("1 to 64"),
        ),
        (
            "a name that climbs",
            vec![skill("..", &[own])],
            Some("1 to 64"),
        ),
        (
            "a name twice",
            vec![skill("a", &[own]), skill("a", &[own])],
            Some("`a` twice"),
        ),
        (
            "no SKILL.md",
            vec![skill("a", &[("x.md", "y")])],
            Some("SKILL.md"),
        ),
        (
            "a path that climbs",
            vec![skill("a", &[own, ("../x", "y")])],
            Some("`../x`"),
        ),
        (
            "an absolute path",
            vec![skill("a", &[own, ("/etc/x", "y")])],
            Some("relative path"),
        ),
        (
            "too large",
            vec![skill("a", &[("SKILL.md", large.as_str())])],
            Some("bytes"),
        ),
        ("too many", many, Some("at most")),
    ] {
        check(skills(&given), wanted, case);
    }
}

#[test]
fn approval_rules_name_their_tool() {
    let rule = |tool: &str| ApprovalRule {
        tool: tool.to_owned(),
        decision: astrabox_types::ApprovalDecision::Allow,
    };
    check(approval_rules(&[rule("Bash")]), None, "a rule");
    check(
        approval_rules(&[rule("")]),
        Some("spec.approval_rules"),
        "no tool",
    );
    let many: Vec<_> = (0..=MAX_RULES).map(|_| rule("Bash")).collect();
    check(approval_rules(&many), Some("at most"), "too many");
}

#[test]
fn a_repository_is_an_address_that_everybody_reads_alike() {
    let given = |url: &str, branch: Option<&str>, depth| Repository {
        url: url.to_owned(),
        branch: branch.map(str::to_owned),
        depth,
    };
    let good = "https://git.test:8443/acme/tools.git";
    check(repository(&given(good, None, None)), None, "a plain one");
    check(
        repository(&given(good, Some("feature/x-1.2"), Some(1))),
        None,
        "a branch",
    );
    for url in [
        "",
        "http://git.test/a",
        "ssh://git.test/a",
        "git@git.test:a/b",
        "https://git.test",
        "https://git.test/",
        "https://u@git.test/a",
        "https://git.test/a?b",
        "https://git.test/a#b",
        "https://git.test/a b",
        "https://git.test/a/../b",
        "https://git.test/a//b",
        "https://git.test/a%2fb",
        "https://git.test/a/",
        "https://git.test/*",
        "--upload-pack=x",
    ] {
        check(
            repository(&given(url, None, None)),
            Some("spec.repository"),
            url,
        );
    }
    for branch in [
        "", "-x", "a..b", "a b", "/a", "a/", "a//b", "a;b", "$(x)", ".a",
    ] {
        check(
            repository(&given(good, Some(branch), None)),
            Some("spec.repository"),
            branch,
        );
    }
    check(
        repository(&given(good, None, Some(0))),
        Some("depth"),
        "no history",
    );
}

fn engine(features: &'static [EngineFeature], names_program: bool) -> EngineCapabilities {
    EngineCapabilities {
        display_name: "E",
        program_version: "1",
        session_kinds: &[],
        model_wire: astrabox_model::ModelWire::OpenaiChat,
        input_content_types: &["text"],
        permission_modes: &[],
        default_permission_mode: None,
        option_blocks: &[],
        steering: false,
        features,
        names_program,
    }
}

#[test]
fn an_agent_that_asks_for_what_its_program_has_not_is_refused() {
    use EngineFeature::{McpHttp, McpStdio, Skills, SystemPrompt, ToolApproval};
    let rule = ApprovalRule {
        tool: "*".to_owned(),
        decision: astrabox_types::ApprovalDecision::Ask,
    };
    let draft = AgentDraft::default;
    let cases: [(AgentDraft, &'static [EngineFeature], &str); 5] = [
        (
            AgentDraft {
                system: "Be brief.".to_owned(),
                ..draft()
            },
            &[SystemPrompt],
            "spec.system",
        ),
        (
            AgentDraft {
                mcp_servers: vec![stdio("a", "b", &[], &[])],
                ..draft()
            },
            &[McpStdio],
            "spec.mcp_servers",
        ),
        (
            AgentDraft {
                mcp_servers: vec![http("a", "https://b")],
                ..draft()
            },
            &[McpHttp],
            "spec.mcp_servers",
        ),
        (
            AgentDraft {
                skills: vec![skill("a", &[("SKILL.md", "x")])],
                ..draft()
            },
            &[Skills],
            "spec.skills",
        ),
        (
            AgentDraft {
                approval_rules: vec![rule],
                ..draft()
            },
            &[ToolApproval],
            "spec.approval_rules",
        ),
    ];
    for (draft, needs, field) in cases {
        let error = consumed(&engine(&[], false), &draft).expect_err(field);
        assert_eq!(error.reason(), ErrorReason::CapabilityUnavailable);
        assert!(error.to_string().contains(field), "{error}");
        assert!(consumed(&engine(needs, false), &draft).is_ok(), "{field}");
    }
    assert!(consumed(&engine(&[], false), &draft()).is_ok());
}

#[test]
fn a_program_is_named_for_an_engine_that_runs_any_and_for_no_other() {
    let program_of = |command: &str, name: &str, state: Option<&str>| ProgramSpec {
        command: command.to_owned(),
        arguments: vec!["--acp".to_owned()],
        env: BTreeMap::from([(name.to_owned(), "x".to_owned())]),
        model_wire: "openai_chat".to_owned(),
        state_directory: state.map(str::to_owned),
    };
    let fine = program_of("agent", "A", Some(".agent/sessions"));
    assert!(program(&engine(&[], true), Some(&fine)).is_ok());
    assert!(program(&engine(&[], false), None).is_ok());
    for (names, spec, text) in [
        (true, None, "spec.program"),
        (false, Some(fine), "leave it out"),
        (
            true,
            Some(program_of("", "A", None)),
            "spec.program.command",
        ),
        (true, Some(program_of("a\0", "A", None)), "NUL"),
        (true, Some(program_of("a", "A=B", None)), "spec.program.env"),
        (
            true,
            Some(program_of("a", "A", Some("../x"))),
            "spec.program.state_directory",
        ),
        (
            true,
            Some(program_of("a", "A", Some("/x"))),
            "spec.program.state_directory",
        ),
    ] {
        let refused = program(&engine(&[], names), spec.as_ref()).expect_err(text);
        assert!(refused.to_string().contains(text), "{text}: {refused}");
    }
}
