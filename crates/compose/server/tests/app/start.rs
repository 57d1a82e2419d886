//! Starting and ending.

use std::os::unix::fs::MetadataExt as _;

use astrabox_client::{Client, Endpoint, v1};
use astrabox_server::{App, EgressMode, Error, Registries, Shutdown};

use crate::doubles::{TOKEN, app, config, connect, registries, serve, start};

#[tokio::test]
async fn an_app_serves_and_leaves_nothing_but_its_state() {
    let (folder, running) = serve().await;
    let client = connect(&running).await;
    assert!(client.is_serving().await.expect("it answers"));
    let socket = running.socket().expect("it has one").to_owned();
    assert_eq!(
        std::fs::metadata(&socket).expect("it is there").mode() & 0o777,
        0o600
    );
    assert_eq!(running.shutdown().await, Shutdown::Complete);
    assert!(!socket.exists());
    let error = Client::connect(Endpoint::unix(&socket))
        .await
        .err()
        .expect("nobody is there");
    assert!(error.is_unreachable());
    // The same folders serve again.
    let again = start(config(folder.path()))
        .await
        .expect("everything was given back");
    again.shutdown().await;
}

#[tokio::test]
async fn two_apps_in_one_process_know_nothing_of_each_other() {
    let (_one_folder, one) = serve().await;
    let (_two_folder, two) = serve().await;
    let (to_one, to_two) = (connect(&one).await, connect(&two).await);
    let names = |client: &Client| {
        let client = client.clone();
        async move { client.all_environments().await.expect("it lists").len() }
    };
    assert_eq!((names(&to_one).await, names(&to_two).await), (0, 0));
    one.shutdown().await;
    assert!(to_two.is_serving().await.expect("the other one goes on"));
    two.shutdown().await;
}

#[tokio::test]
async fn two_servers_never_share_a_folder() {
    let (folder, running) = serve().await;
    let mut other = config(folder.path());
    assert!(matches!(
        start(other.clone()).await,
        Err(Error::InUse {
            setting: "state_dir",
            ..
        })
    ));
    other.state_dir = folder.path().join("other");
    assert!(matches!(
        start(other.clone()).await,
        Err(Error::InUse {
            setting: "run_dir",
            ..
        })
    ));
    other.run_dir = folder.path().join("other-run");
    other.server.socket = running.socket().map(ToOwned::to_owned);
    assert!(matches!(
        start(other.clone()).await,
        Err(Error::SocketInUse { .. })
    ));
    other.server.socket = None;
    start(other)
        .await
        .expect("nothing is shared now")
        .shutdown()
        .await;
    running.shutdown().await;
}

#[tokio::test]
async fn tcp_is_only_opened_for_callers_with_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path());
    config.server.tcp = Some(([127, 0, 0, 1], 0).into());
    let mut without = config.clone();
    without
        .identity
        .providers
        .entry("local".to_owned())
        .or_default()
        .set("tokens", false);
    let error = start(without).await.err().expect("it is refused");
    assert!(matches!(error, Error::TcpWithoutTokens { .. }));
    assert!(error.to_string().contains("token_file"), "{error}");

    let running = start(config).await.expect("it takes tokens");
    let url = format!("http://{}", running.tcp().expect("it has an address"));
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path
    };
    let good = Client::connect(Endpoint::tcp(&url, file("good", TOKEN)))
        .await
        .expect("it serves");
    good.list_engines(v1::ListEnginesRequest {})
        .await
        .expect("the token is good");
    let bad = Client::connect(Endpoint::tcp(&url, file("bad", "another")))
        .await
        .expect("it serves");
    let error = bad
        .list_engines(v1::ListEnginesRequest {})
        .await
        .expect_err("the token is wrong");
    assert_eq!(error.reason, "UNAUTHENTICATED");
    assert!(!error.to_string().contains("another"));
    running.shutdown().await;
}

#[tokio::test]
async fn a_listener_can_be_passed_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("it binds");
    let address = listener.local_addr().expect("it has one");
    let app = app(config(folder.path()))
        .listener(astrabox_server::Listener::Tcp(listener))
        .build();
    let running = app.expect("it is fine").spawn().await.expect("it starts");
    assert_eq!((running.tcp(), running.socket()), (Some(address), None));
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).expect("it is written");
    let client = Client::connect(Endpoint::tcp(format!("http://{address}"), token))
        .await
        .expect("it serves");
    assert!(client.is_serving().await.expect("it answers"));
    running.shutdown().await;
}

#[tokio::test]
async fn what_is_wrong_is_told_by_the_setting_and_nothing_is_left_running() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = config(folder.path());
    let mut unknown_default = base.clone();
    unknown_default.sandbox.default = "moon".to_owned();
    let mut unknown_block = base.clone();
    unknown_block
        .model
        .providers
        .insert("litellm".to_owned(), astrabox_config::Block::default());
    let mut broken_block = base.clone();
    broken_block
        .identity
        .providers
        .entry("local".to_owned())
        .or_default()
        .set("broken", true);
    let mut broken_egress = base.clone();
    broken_egress.egress.proxy.set("no_such_key", true);
    let mut relative = base.clone();
    relative.state_dir = "here".into();
    for (config, start_of_text) in [
        (
            unknown_default,
            "sandbox.default: no sandbox provider is called `moon`; there is `local`",
        ),
        (
            unknown_block,
            "model.litellm: no model endpoint provider is called `litellm`",
        ),
        (
            broken_block,
            "identity.local cannot be used: identity configure: invalid configuration: `broken` is set",
        ),
        (broken_egress, "egress: unknown field `no_such_key`"),
        (relative, "state_dir: must be an absolute path"),
    ] {
        let error = whole_text(&start(config).await.err().expect("it is refused"));
        assert!(error.starts_with(start_of_text), "{error}");
    }
    start(base)
        .await
        .expect("the folders are free")
        .shutdown()
        .await;
}

#[tokio::test]
async fn without_adapters_nothing_is_built() {
    let folder = tempfile::tempdir().expect("a folder");
    let nothing = App::builder(config(folder.path()))
        .registries(Registries::empty())
        .build();
    let error = nothing.err().expect("it is refused").to_string();
    assert!(error.contains("there is none"), "{error}");
    let embedded = App::builder(config(folder.path()))
        .registries(registries())
        .egress(EgressMode::Embedded);
    embedded.build().expect("it has all that it needs");
}

fn whole_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}
