//! The control socket: who may speak, and what is not understood.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use astrabox_egress_proxy::{EgressGateClient, GateOptions};
use astrabox_sandbox::ErrorKind;
use rustix::fs::{Gid, Uid};

use crate::support::{Stand, hosts};

/// Sends frames and gives what comes back until the role hangs up.
fn converse(stream: &mut UnixStream, frames: &[&str]) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        let _ = stream.write_all(&length.to_be_bytes());
        let _ = stream.write_all(frame.as_bytes());
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const HELLO: &str =
    r#"{"type":"hello","min_version":2,"max_version":2,"client":"test","instance":"test"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_understood_is_refused_and_changes_nothing() {
    let stand = Stand::start(hosts(&[])).await;
    let sandbox = stand.sandbox(&["a.test"]).await;
    let close = format!(r#"{{"type":"close","sandbox_id":"{}"}}"#, sandbox.id);
    let open = format!(
        r#"{{"type":"open","sandbox_id":"{}","session_id":"{}","policy":{{"unrestricted":true,"allowed":[]}},"credentials":null}}"#,
        sandbox.id, sandbox.session
    );
    let newer =
        r#"{"type":"hello","min_version":7,"max_version":9,"client":"test","instance":"test"}"#;
    let configure = r#"{"type":"configure","config":{"max_connections":0},"extra_roots":""}"#;
    let unknown = r#"{"type":"close","sandbox_id":"sbx_0","more":1}"#;
    for (frames, part) in [
        (&[&*close][..], "the first request is hello"),
        (&[newer], "\"kind\":\"version\""),
        (&[HELLO, HELLO], "the first request only"),
        (&[HELLO, &open], "open comes with a listener"),
        (&[HELLO, configure], "max_connections"),
        (&[HELLO, unknown, &close], "\"type\":\"hello\""),
        (&[HELLO, "x", &close], "\"type\":\"hello\""),
        (&["", &close], ""),
    ] {
        let socket = stand.config.socket();
        let frames: Vec<String> = frames.iter().map(|text| (*text).to_owned()).collect();
        let told = frames.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            let frames: Vec<&str> = frames.iter().map(String::as_str).collect();
            converse(&mut stream, &frames)
        })
        .await
        .unwrap();
        assert!(answer.contains(part), "{told:?}: {answer:?}");
    }
    let list = stand.gate.list().await.unwrap();
    assert_eq!(list.len(), 1, "a close got through");
    let again = crate::support::client::connect_to("b.test:443");
    let denied = crate::support::client::ask(sandbox.proxy, again).await;
    assert_eq!(
        denied.reason(),
        Some("host_not_allowed"),
        "an open got through"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ep9_another_users_connection_is_refused_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can speak as another user");
        return;
    }
    let stand = Stand::start(hosts(&[])).await;
    // Let the other user get as far as the socket, so that its word is what is refused.
    let open_up = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open_up(stand.folder.path(), 0o755);
    open_up(&stand.config.run_dir, 0o755);
    open_up(&stand.config.socket(), 0o666);
    let socket = stand.config.socket();
    let as_another = move || {
        // The kernel keeps users by thread; this thread ends with it.
        let uid = Uid::from_raw(12_345);
        rustix::thread::set_thread_res_gid(None, Gid::from_raw(12_345), None).unwrap();
        rustix::thread::set_thread_res_uid(None, uid, None).unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        converse(&mut stream, &[HELLO, r#"{"type":"shutdown"}"#])
    };
    let answer = std::thread::spawn(as_another).join().unwrap();
    assert_eq!(answer, "");
    assert!(stand.gate.list().await.is_ok(), "the role was ended");

    // A socket that another user made in the role's place gets no listener.
    let folder = tempfile::tempdir().unwrap();
    open_up(folder.path(), 0o777);
    let mut config = stand.config.clone();
    config.run_dir = folder.path().to_owned();
    let socket = config.socket();
    let impostor = move || {
        rustix::thread::set_thread_res_uid(None, Uid::from_raw(12_345), None).unwrap();
        std::os::unix::net::UnixListener::bind(socket).unwrap()
    };
    let _listener = std::thread::spawn(impostor).join().unwrap();
    let connected = EgressGateClient::connect(GateOptions::new(config, None)).await;
    assert_eq!(connected.err().unwrap().kind(), ErrorKind::Refused);
}
