//! Refreshes at a scripted token endpoint on loopback, which records what it is sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use astrabox_oauth::{ErrorKind, RefreshRequest, Stated, TokenClient, Tokens, roots_of_pem};
use astrabox_types::{ClientAuthMethod, Secret};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const GOOD: &str = r#"{"access_token":"new","refresh_token":"next","expires_in":3600}"#;

/// What the endpoint does with a request.
#[derive(Clone, Copy)]
enum Deed {
    Answer(&'static str, &'static str),
    Silence,
    Endless,
}

struct Endpoint {
    address: SocketAddr,
    root: Vec<u8>,
    seen: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Endpoint {
    async fn start(tls: bool, deed: Deed) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let made = rcgen::generate_simple_self_signed(["issuer.test".to_owned()]).expect("a key");
        let root = roots_of_pem(made.cert.pem().as_bytes()).remove(0);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a certificate");
        let acceptor = tls.then(|| TlsAcceptor::from(Arc::new(config)));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream, acceptor.as_ref(), deed, &log).await;
            }
        });
        Self {
            address,
            root,
            seen,
            _tasks: tasks,
        }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody failed").clone()
    }

    /// A client that is let through to loopback, and knows `issuer.test` and its root.
    fn client(&self) -> TokenClient {
        let range = "127.0.0.0/8".parse().expect("a range");
        TokenClient::new(vec![range], self.stated(), vec![self.root.clone()])
            .with_times(Duration::from_secs(20), Duration::from_secs(10))
    }

    /// Every name that ends in `.test` is here.
    fn stated(&self) -> Stated {
        let address = self.address;
        Arc::new(move |host, port| {
            let here = host.to_string().ends_with(".test") && port == 443;
            here.then_some(address)
        })
    }

    fn url(&self) -> String {
        format!("http://{}/token?tenant=a", self.address)
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: Option<&TlsAcceptor>,
    deed: Deed,
    log: &Mutex<Vec<String>>,
) {
    match acceptor {
        None => talk(stream, deed, log).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                talk(stream, deed, log).await;
            }
        }
    }
}

async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    deed: Deed,
    log: &Mutex<Vec<String>>,
) {
    let mut request = Vec::new();
    let whole = |request: &[u8]| {
        let text = String::from_utf8_lossy(request).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")
                .map(str::to_owned)
        })?;
        (body.len() >= length.parse::<usize>().ok()?).then_some(text)
    };
    let text = loop {
        if let Some(text) = whole(&request) {
            break text;
        }
        if !matches!(stream.read_buf(&mut request).await, Ok(1..)) {
            return;
        }
    };
    log.lock().expect("nobody failed").push(text);
    let head = |status: &str, length: usize| {
        format!(
            "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    match deed {
        Deed::Answer(status, body) => {
            let answer = head(status, body.len()) + body;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        Deed::Silence => std::future::pending().await,
        Deed::Endless => {
            let _ = stream.write_all(head("200 OK", 1 << 30).as_bytes()).await;
            while stream.write_all(&[b' '; 4096]).await.is_ok() {}
        }
    }
}

async fn refresh(client: &TokenClient, endpoint: &str) -> Result<Tokens, astrabox_oauth::Error> {
    let secret = Secret::new(b"client secret".to_vec());
    let token = Secret::new(b"before".to_vec());
    let request = RefreshRequest {
        endpoint,
        client_id: "client",
        auth_method: ClientAuthMethod::ClientSecretPost,
        client_secret: Some(&secret),
        refresh_token: &token,
        scope: "",
    };
    client.refresh(request).await
}

#[tokio::test]
async fn a_token_is_refreshed_over_tls_and_over_http_where_the_operator_lets_it_through() {
    let plain = Endpoint::start(false, Deed::Answer("200 OK", GOOD)).await;
    let tls = Endpoint::start(true, Deed::Answer("200 OK", GOOD)).await;
    for (endpoint, url, host) in [
        (&plain, plain.url(), plain.address.to_string()),
        (
            &tls,
            "https://issuer.test/token?tenant=a".to_owned(),
            "issuer.test".to_owned(),
        ),
    ] {
        let tokens = refresh(&endpoint.client(), &url).await;
        let tokens = tokens.unwrap_or_else(|error| panic!("{url}: {error:?}"));
        assert!(tokens.access_token.expose() == b"new");
        assert!(tokens.refresh_token.expect("another one").expose() == b"next");
        assert_eq!(tokens.expires_in, Some(Duration::from_secs(3600)));
        let seen = endpoint.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert!(
            seen[0].starts_with("POST /token?tenant=a HTTP/1.1\r\n"),
            "{seen:?}"
        );
        assert!(seen[0].contains(&format!("host: {host}\r\n")), "{seen:?}");
        let body = "grant_type=refresh_token&refresh_token=before&client_id=client&client_secret=client+secret";
        assert!(seen[0].ends_with(body), "{seen:?}");
    }
}

#[tokio::test]
async fn what_the_operator_does_not_let_through_is_not_even_dialled() {
    let endpoint = Endpoint::start(false, Deed::Answer("200 OK", GOOD)).await;
    let public = TokenClient::default();
    // Denied although it is a private address that is let through, and one that the operator stated.
    let denying = endpoint
        .client()
        .denying(vec!["127.0.0.0/16".parse().expect("a range")]);
    let elsewhere = TokenClient::default().denying(vec!["192.0.0.0/2".parse().expect("a range")]);
    for (client, url) in [
        (&denying, endpoint.url()),
        (&denying, "https://issuer.test/".to_owned()),
        (&elsewhere, "https://203.1.1.1/".to_owned()),
        (&public, endpoint.url()),
        (&public, format!("https://{}/", endpoint.address)),
        (&public, "https://169.254.169.254/".to_owned()),
        (&endpoint.client(), "http://169.254.169.254/".to_owned()),
        (&endpoint.client(), "http://10.0.0.1/".to_owned()),
        (&endpoint.client(), "ftp://issuer.test/".to_owned()),
    ] {
        let error = refresh(client, &url).await.err().expect(&url);
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{url}: {error}");
    }
    assert_eq!(endpoint.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_gets_no_token() {
    let endpoint = Endpoint::start(true, Deed::Answer("200 OK", GOOD)).await;
    let range = "127.0.0.0/8".parse().expect("a range");
    let stranger = TokenClient::new(vec![range], endpoint.stated(), Vec::new());
    let knows = TokenClient::new(vec![range], endpoint.stated(), vec![endpoint.root.clone()]);
    for (client, url) in [
        (&stranger, "https://issuer.test/"),
        (&knows, "https://other.test/"),
    ] {
        let error = refresh(client, url).await.err().expect(url);
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{url}: {error}");
    }
    assert_eq!(endpoint.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_an_error_names_only_its_code() {
    for (status, body, kind) in [
        ("307 Temporary Redirect", "", ErrorKind::Invalid),
        (
            "400 Bad Request",
            r#"{"error":"invalid_grant"}"#,
            ErrorKind::Refused,
        ),
        ("503 Service Unavailable", "", ErrorKind::Unavailable),
    ] {
        let endpoint = Endpoint::start(false, Deed::Answer(status, body)).await;
        let error = refresh(&endpoint.client(), &endpoint.url()).await.err();
        let error = error.expect(status);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!format!("{error} {error:?}").contains("before"));
        assert_eq!(endpoint.seen().len(), 1);
    }
}

#[tokio::test]
async fn silence_and_an_endless_answer_end_in_time() {
    let silent = Endpoint::start(false, Deed::Silence).await;
    let client = silent
        .client()
        .with_times(Duration::from_millis(200), Duration::from_millis(100));
    let error = refresh(&client, &silent.url())
        .await
        .err()
        .expect("it is silent");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let endless = Endpoint::start(false, Deed::Endless).await;
    let error = refresh(&endless.client(), &endless.url()).await.err();
    assert_eq!(
        error.expect("it is too long").kind(),
        ErrorKind::Unavailable
    );
}
