use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

/// Short, so that the tests are; long enough for a busy machine to answer.
const LIMITS: Limits = Limits {
    connect: Duration::from_secs(2),
    whole: Duration::from_secs(4),
};

fn client() -> Client {
    Client::with(LIMITS, RootCertStore::empty())
}

fn ask(url: String) -> Ask<'static> {
    Ask {
        method: Method::GET,
        url,
        credential: None,
        body: None,
    }
}

/// A server that reads one request's head, writes this, and then gives what it read.
async fn server(answer: Vec<u8>) -> (SocketAddr, JoinSet<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if stream.read_buf(&mut head).await.unwrap() == 0 {
                break;
            }
        }
        // The client may have had enough.
        let _ = stream.write_all(&answer).await;
        let _ = stream.shutdown().await;
        String::from_utf8_lossy(&head).into_owned()
    });
    (address, serving)
}

async fn fault(client: &Client, url: String) -> Fault {
    match client.send(ask(url)).await {
        Ok(answer) => panic!("answered with status {}", answer.status),
        Err(fault) => fault,
    }
}

#[tokio::test]
async fn an_answer_is_read_to_its_end_with_and_without_a_length() {
    for head in ["content-length: 5\r\n", "connection: close\r\n"] {
        let (address, mut serving) =
            server(format!("HTTP/1.1 418 X\r\n{head}\r\nhello").into()).await;
        let secret = Secret::new(b"sk-canary".to_vec());
        let asked = Ask {
            credential: Some(&secret),
            ..ask(format!("http://{address}/gate/v1/models"))
        };
        let answer = client().send(asked).await.unwrap_or_else(|f| panic!("{f}"));
        assert_eq!((answer.status, &answer.body[..]), (418, &b"hello"[..]));
        let read = serving.join_next().await.unwrap().unwrap();
        assert!(
            read.starts_with("GET /gate/v1/models HTTP/1.1\r\n"),
            "{read}"
        );
        assert!(read.contains(&format!("host: {address}\r\n")), "{read}");
        assert!(
            read.contains("authorization: Bearer sk-canary\r\n"),
            "{read}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_none() {
    for answer in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{\"data\":",
        b"not http at all\r\n\r\n",
    ] {
        let (address, _serving) = server(answer.to_vec()).await;
        let fault = fault(&client(), format!("http://{address}/")).await;
        assert!(matches!(fault, Fault::Broken(_)), "{fault:?}");
    }
}

#[tokio::test]
async fn an_answer_without_an_end_is_cut_at_its_size() {
    let mut answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
    answer.resize(answer.len() + MAX_ANSWER + 1, b'x');
    let (address, _serving) = server(answer).await;
    let fault = fault(&client(), format!("http://{address}/")).await;
    assert!(matches!(fault, Fault::TooLarge), "{fault:?}");
}

#[tokio::test]
async fn silence_ends_with_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        connect: Duration::from_millis(200),
        whole: Duration::from_millis(400),
    };
    let client = Client::with(limits, RootCertStore::empty());
    let began = Instant::now();
    // The kernel takes the connection, and nobody reads.
    let silent = fault(&client, format!("http://{address}/")).await;
    assert!(matches!(silent, Fault::Timeout), "{silent:?}");
    let silent = fault(&client, format!("https://{address}/")).await;
    assert!(matches!(silent, Fault::ConnectTimeout), "{silent:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn where_nobody_listens_there_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let fault = fault(&client(), format!("http://{address}/")).await;
    assert!(matches!(fault, Fault::Connect(_)), "{fault:?}");
}

#[tokio::test]
async fn a_key_that_no_header_may_have_is_not_sent() {
    let secret = Secret::new(b"sk-canary\r\nx: y".to_vec());
    let asked = Ask {
        credential: Some(&secret),
        ..ask("http://127.0.0.1:9/".to_owned())
    };
    let Err(fault) = client().send(asked).await else {
        panic!("sent");
    };
    assert!(matches!(fault, Fault::Credential));
    assert!(!format!("{fault} {fault:?}").contains("canary"));
}

#[tokio::test]
async fn a_certificate_is_verified_before_a_byte_is_sent() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut trusted = 0;
        while trusted == 0 {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = [0; 512];
            if !matches!(stream.read(&mut head).await, Ok(1..)) {
                continue;
            }
            trusted += 1;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer).await.unwrap();
            let _ = stream.shutdown().await;
        }
        trusted
    });
    let url = || format!("https://localhost:{port}/");
    let fault = fault(&client(), url()).await;
    assert!(matches!(fault, Fault::Tls(_)), "{fault:?}");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let trusting = Client::with(LIMITS, roots);
    let answer = trusting.send(ask(url())).await;
    let answer = answer.unwrap_or_else(|fault| panic!("{fault:?}"));
    assert_eq!(&answer.body[..], b"ok");
    let trusted = serving.join_next().await.unwrap().unwrap();
    assert_eq!(trusted, 1, "only who trusts it asks it");
}
