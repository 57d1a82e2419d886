use std::collections::BTreeMap;

use astrabox_engine::line::{Done, Undone, Work};
use astrabox_engine::sandbox::{ExitReason, ExitStatus};
use serde_json::{Value, json};

use super::{Plain, initialized, opened, settings};
use crate::Settings;
use crate::harness::{Driver, SESSION, exit};

fn served() -> Driver<Plain> {
    let settings = Settings {
        serve: Some(BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())])),
        ..settings()
    };
    let mut driver = Driver::bound(settings, Plain, &initialized(), &opened());
    driver.deliver(1).expect("it is taken");
    driver.wrote.clear();
    driver.restart = true;
    driver
}

fn ask(driver: &mut Driver<Plain>, id: u64, method: &str, mut params: Value) {
    params["sessionId"] = json!(SESSION);
    driver.asks(id, method, &params);
}

fn ended(code: i32) -> ExitStatus {
    exit(ExitReason::Exited, Some(code), None)
}

#[test]
fn files_of_the_workspace_are_read_and_written_by_jobs() {
    let mut driver = served();
    ask(
        &mut driver,
        1,
        "fs/read_text_file",
        json!({"path": "/workspace/a", "line": 2, "limit": 3}),
    );
    ask(
        &mut driver,
        2,
        "fs/write_text_file",
        json!({"path": "/workspace/b", "content": "x"}),
    );
    assert_eq!(driver.told(), ["consumed 1"]);
    assert!(
        driver.written().is_empty(),
        "nothing is answered before it is done"
    );
    let works: Vec<_> = driver
        .jobs
        .iter()
        .map(|job| format!("{:?}", job.work))
        .collect();
    assert!(
        works[0].contains("line: Some(2), lines: Some(3)"),
        "{works:?}"
    );
    assert!(works[1].starts_with("WriteText"), "{works:?}");
    driver.does(&Ok(Done::Text("two\n".to_owned())));
    driver.does(&Ok(Done::Nothing));
    let wrote = driver.written();
    assert_eq!(
        wrote[0],
        json!({"jsonrpc": "2.0", "id": 1, "result": {"content": "two\n"}})
    );
    assert_eq!(wrote[1], json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
}

#[test]
fn what_is_not_of_the_workspace_is_refused() {
    for path in [
        "/etc/passwd",
        "/workspace/../etc",
        "/workspace2/a",
        "a",
        "",
        "/workspace/a\0",
    ] {
        let mut driver = served();
        ask(&mut driver, 1, "fs/read_text_file", json!({"path": path}));
        assert_eq!(driver.written()[0]["error"]["code"], -32602, "{path}");
        assert!(driver.jobs.is_empty());
    }
    let mut driver = served();
    driver.asks(
        1,
        "fs/read_text_file",
        &json!({"sessionId": "other", "path": "/workspace/a"}),
    );
    assert_eq!(driver.written()[0]["error"]["code"], -32602);
    ask(
        &mut driver,
        2,
        "terminal/create",
        json!({"command": "ls", "cwd": "/home"}),
    );
    assert_eq!(driver.written()[0]["error"]["code"], -32602);
}

#[test]
fn what_was_not_done_is_an_error_of_the_request() {
    for (missing, code) in [(true, -32002), (false, -32603)] {
        let mut driver = served();
        ask(
            &mut driver,
            1,
            "fs/read_text_file",
            json!({"path": "/workspace/a"}),
        );
        let message = "why".to_owned();
        driver.does(&Err(Undone { missing, message }));
        let error = json!({"code": code, "message": "why"});
        assert_eq!(driver.written()[0]["error"], error);
    }
}

#[test]
fn a_terminal_is_a_command_that_is_looked_at_waited_for_and_released() {
    let mut driver = served();
    let env = json!([{"name": "A", "value": "b"}]);
    ask(
        &mut driver,
        1,
        "terminal/create",
        json!({"command": "ls", "args": ["-l"], "env": env, "outputByteLimit": 9}),
    );
    let Work::Start {
        process,
        command,
        env,
        cwd,
        ..
    } = &driver.jobs[0].work
    else {
        panic!("a start: {:?}", driver.jobs)
    };
    assert_eq!(
        (process.as_str(), cwd.as_str()),
        ("terminal-1-1", "/workspace")
    );
    assert_eq!(command, &["ls", "-l"]);
    assert_eq!(env.len(), 2);
    driver.does(&Ok(Done::Nothing));
    assert_eq!(driver.written()[0]["result"]["terminalId"], "terminal-1-1");

    let terminal = || json!({"terminalId": "terminal-1-1"});
    ask(&mut driver, 2, "terminal/wait_for_exit", terminal());
    ask(&mut driver, 3, "terminal/output", terminal());
    assert!(
        matches!(&driver.jobs[1].work, Work::Look { limit: 9, .. }),
        "{:?}",
        driver.jobs
    );
    driver.does(&Ok(Done::Ended(exit(ExitReason::Killed, None, Some(9)))));
    let shown = Done::Shown {
        text: "a".to_owned(),
        cut: true,
        exit: Some(ended(3)),
    };
    driver.does(&Ok(shown));
    ask(&mut driver, 4, "terminal/kill", terminal());
    ask(&mut driver, 5, "terminal/release", terminal());
    driver.does(&Ok(Done::Nothing));
    driver.does(&Ok(Done::Nothing));
    let results: Vec<_> = driver
        .written()
        .iter()
        .map(|sent| sent["result"].clone())
        .collect();
    assert_eq!(
        results,
        [
            json!({"exitCode": null, "signal": "SIGKILL"}),
            json!({"output": "a", "truncated": true, "exitStatus": {"exitCode": 3, "signal": null}}),
            json!({}),
            json!({}),
        ]
    );
    ask(&mut driver, 6, "terminal/output", terminal());
    assert_eq!(driver.written()[0]["error"]["code"], -32002);
}

#[test]
fn a_command_that_did_not_start_is_no_terminal() {
    let mut driver = served();
    ask(&mut driver, 1, "terminal/create", json!({"command": "ls"}));
    driver.does(&Err(Undone {
        missing: false,
        message: "no".to_owned(),
    }));
    ask(
        &mut driver,
        2,
        "terminal/output",
        json!({"terminalId": "terminal-1-1"}),
    );
    let codes: Vec<_> = driver
        .written()
        .iter()
        .map(|sent| sent["error"]["code"].clone())
        .collect();
    assert_eq!(codes, [json!(-32603), json!(-32002)]);
}

#[test]
fn terminals_are_bounded_and_end_with_the_program() {
    let mut driver = served();
    for id in 0..33 {
        ask(&mut driver, id, "terminal/create", json!({"command": "ls"}));
    }
    assert_eq!(driver.jobs.len(), 32);
    assert_eq!(driver.written()[0]["error"]["code"], -32602);
    driver.jobs.clear();
    driver.exit(&ended(1), "");
    assert_eq!(driver.jobs.len(), 32);
    assert!(
        driver
            .jobs
            .iter()
            .all(|job| matches!(job.work, Work::Forget { .. }))
    );
}

#[test]
fn a_program_that_is_not_served_is_told_so() {
    let mut driver = super::running();
    driver.wrote.clear();
    ask(&mut driver, 1, "terminal/create", json!({"command": "ls"}));
    assert_eq!(driver.written()[0]["error"]["code"], -32601);
}
