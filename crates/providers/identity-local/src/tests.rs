use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use astrabox_identity::registry::{Registration as _, Registry};
use astrabox_identity::{Error, ErrorKind, Evidence, IdentityProvider, Registration};
use serde_json::{Value, json};
use tempfile::TempDir;

const OPS: &str = "canary-ops-0123456789abcdef0123456789";
const DEV: &str = "canary-dev-0123456789abcdef0123456789";

async fn build(config: Value) -> Result<Arc<dyn IdentityProvider>, Error> {
    let linked = Registry::<Registration>::linked().unwrap();
    linked.get("local").unwrap().build(config).await
}

async fn refused(config: Value) -> Error {
    match build(config.clone()).await {
        Ok(_) => panic!("accepted: {config}"),
        Err(error) => error,
    }
}

fn token_file(text: &str, mode: u32) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    (dir, path)
}

async fn with_tokens(text: &str) -> Result<Arc<dyn IdentityProvider>, Error> {
    let (_dir, path) = token_file(text, 0o600);
    build(json!({ "token_file": path })).await
}

fn uid(uid: u32) -> Evidence {
    Evidence {
        peer_uid: Some(uid),
        bearer: None,
    }
}

fn bearer(token: &str) -> Evidence {
    Evidence {
        peer_uid: None,
        bearer: Some(token.to_owned()),
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn it_is_linked_under_its_name() {
    let linked = Registry::<Registration>::linked().unwrap();
    let local = linked.get("local").unwrap();
    assert_eq!(local.origin(), "astrabox-identity-local");
}

#[tokio::test]
async fn id1_a_caller_that_shows_nothing_is_missing() {
    for provider in [
        build(Value::Null).await.unwrap(),
        with_tokens(OPS).await.unwrap(),
    ] {
        let error = provider.identify(&Evidence::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
    }
}

#[tokio::test]
async fn id1_the_servers_user_and_root_may_call_and_others_may_not() {
    let provider = build(json!({})).await.unwrap();
    for allowed in [own_uid(), 0] {
        let actor = provider.identify(&uid(allowed)).await.unwrap();
        assert_eq!(actor.subject(), format!("uid:{allowed}"));
    }
    let error = provider.identify(&uid(own_uid() + 7)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("identity.local.allowed_uids"));
}

#[tokio::test]
async fn id1_a_list_of_users_replaces_the_default() {
    let other = own_uid() + 7;
    let provider = build(json!({"allowed_uids": [other]})).await.unwrap();
    assert!(provider.identify(&uid(other)).await.is_ok());
    assert!(provider.identify(&uid(own_uid())).await.is_err());
}

#[tokio::test]
async fn id1_a_wrong_token_is_rejected_whoever_shows_it() {
    let provider = with_tokens(OPS).await.unwrap();
    let longer = format!("{OPS}x");
    for wrong in ["", "x", DEV, &longer, &OPS[1..]] {
        let mut evidence = bearer(wrong);
        evidence.peer_uid = Some(own_uid());
        let error = provider.identify(&evidence).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Rejected, "{wrong}");
    }
    let without = build(json!({})).await.unwrap();
    let error = without.identify(&bearer(OPS)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
}

#[tokio::test]
async fn id2_each_token_has_its_holder() {
    let text = format!("# keys\n\n ops:{OPS} \r\ndev : {DEV}\nops:{OPS}{DEV}\n");
    let provider = with_tokens(&text).await.unwrap();
    let both = format!("{OPS}{DEV}");
    for (token, subject) in [(OPS, "token:ops"), (DEV, "token:dev"), (&both, "token:ops")] {
        for _ in 0..2 {
            let actor = provider.identify(&bearer(token)).await.unwrap();
            assert_eq!(actor.subject(), subject);
        }
    }
}

#[tokio::test]
async fn id2_a_token_alone_is_the_default_ones() {
    let provider = with_tokens(&format!("{OPS}\n")).await.unwrap();
    let actor = provider.identify(&bearer(OPS)).await.unwrap();
    assert_eq!(actor.subject(), "token:default");
}

#[tokio::test]
async fn id3_no_error_holds_evidence_or_the_path() {
    let (dir, path) = token_file(&format!("ops:{OPS}"), 0o600);
    let provider = build(json!({ "token_file": path })).await.unwrap();
    let open = token_file(OPS, 0o644);
    let errors = [
        provider.identify(&bearer(DEV)).await.unwrap_err(),
        refused(json!({ "token_file": open.1 })).await,
        refused(json!({ "token_file": dir.path() })).await,
        refused(json!({"token_file": [OPS]})).await,
        refused(json!({"allowed_uids": OPS})).await,
        refused(json!({"token": OPS})).await,
        with_tokens(&format!("{OPS}\n{DEV}")).await.err().unwrap(),
        with_tokens(&format!("o p s:{OPS}")).await.err().unwrap(),
    ];
    for error in errors {
        let text = format!("{error} {error:?}");
        assert!(!text.contains("canary"), "{text}");
        assert!(!text.contains(dir.path().to_str().unwrap()), "{text}");
    }
}

#[tokio::test]
async fn tokens_are_accepted_only_with_a_token_file() {
    assert!(!build(Value::Null).await.unwrap().accepts_tokens());
    assert!(with_tokens(OPS).await.unwrap().accepts_tokens());
}

#[tokio::test]
async fn a_token_file_that_others_can_read_is_refused() {
    for (mode, accepted) in [
        (0o600, true),
        (0o400, true),
        (0o640, false),
        (0o604, false),
        (0o620, false),
    ] {
        let (_dir, path) = token_file(OPS, mode);
        let built = build(json!({ "token_file": path })).await;
        assert_eq!(built.is_ok(), accepted, "{mode:o}");
        if let Err(error) = built {
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_token_file_of_another_user_is_refused() {
    if own_uid() != 0 {
        println!("skipped: only root can give a file away");
        return;
    }
    let (_dir, path) = token_file(OPS, 0o600);
    std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
    let error = refused(json!({ "token_file": path })).await;
    assert!(error.to_string().contains("another user"), "{error}");
}

#[tokio::test]
async fn a_token_file_that_is_wrong_is_refused_by_line() {
    let twice = format!("a:{OPS}\nb:{OPS}");
    let unnamed = format!("a:{OPS}\n{DEV}");
    let long_name = format!("{}:{OPS}", "n".repeat(65));
    for (text, expected) in [
        ("", "has no token"),
        ("# only a comment\n", "has no token"),
        ("short", "line 1 has a token of less than 32 characters"),
        (
            "\nops:short",
            "line 2 has a token of less than 32 characters",
        ),
        (":0123456789abcdef0123456789abcdef", "line 1 has a name"),
        (&long_name, "line 1 has a name"),
        ("a b c d e f 0123456789abcdef0123456789", "no header holds"),
        (&unnamed, "line 2 is not `name:token`"),
        (&twice, "line 2 has the token of another line"),
        (&"x".repeat(70_000), "larger than 64 KiB"),
    ] {
        let error = with_tokens(text).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn a_wrong_or_unknown_setting_is_named() {
    let missing = Path::new("/nonexistent/tokens");
    for (config, expected) in [
        (json!("x"), "`identity.local` must be a table"),
        (
            json!({"allowed_uids": [-1]}),
            "`identity.local.allowed_uids` must be a list of user ids",
        ),
        (json!({"allowed_uids": []}), "nobody could call"),
        (json!({"token_file": "tokens"}), "must be an absolute path"),
        (
            json!({ "token_file": missing }),
            "cannot be read: entity not found",
        ),
        (
            json!({"uids": []}),
            "`identity.local.uids` is not a setting",
        ),
    ] {
        let error = refused(config).await;
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}
