//! The `scripted-model` program.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::client::SOON;

async fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    stream.write_all(request.as_bytes()).await.expect("send");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

async fn start(dir: &std::path::Path) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_scripted-model"))
        .arg("--ready-file")
        .arg(dir.join("ready"))
        .arg("--log")
        .arg(dir.join("log.jsonl"))
        .args(["--model", "demo"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let line = tokio::time::timeout(SOON, lines.next_line()).await;
    let line = line.expect("in time").expect("readable").expect("a line");
    let url = line
        .strip_prefix("listening on ")
        .expect("a URL")
        .to_owned();
    (child, url)
}

#[tokio::test]
async fn the_program_serves_logs_and_ends_on_sigterm() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut child, url) = start(dir.path()).await;
    let ready = std::fs::read_to_string(dir.path().join("ready")).expect("a ready file");
    assert_eq!(ready.trim(), url);

    let address = url.strip_prefix("http://").expect("a URL");
    let body = r#"{"model":"demo","messages":[{"role":"user","content":"hi"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-x\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(exchange(address, &request).await.contains("echo: hi"));
    let control = "GET /control HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(exchange(address, control).await.contains(r#""requests":1"#));

    let pid = child.id().expect("a running child").to_string();
    let signalled = Command::new("kill").arg(&pid).status().await;
    assert!(signalled.expect("kill").success());
    let status = tokio::time::timeout(SOON, child.wait()).await;
    assert!(status.expect("a prompt end").expect("a status").success());

    let log = std::fs::read_to_string(dir.path().join("log.jsonl")).expect("a log");
    let entry: Value = serde_json::from_str(log.trim()).expect("one line");
    assert_eq!(entry["wire"], "chat");
    assert!(!log.contains("sk-x"));
}
