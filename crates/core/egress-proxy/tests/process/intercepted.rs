//! Large bodies through a tunnel in which TLS is ended and every byte of a request is looked at.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, MintKey, Placeholder, Places,
};
use astrabox_egress_proxy::EgressConfig;
use astrabox_sandbox::{CredentialValues, EgressCredentials};
use astrabox_types::Secret;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::Test;
use super::stand::{PATIENCE, Stand, connect_to, status};
use super::traffic::{good_test_is, read_head};

pub(crate) const TESTS: &[Test] = &[(
    "a_large_body_that_is_looked_through_needs_no_memory_in_either_direction",
    a_large_body_that_is_looked_through_needs_no_memory_in_either_direction,
)];

const LARGE: usize = 256 * 1024 * 1024;
const PIECE: usize = 64 * 1024;
/// What the peak may grow by, in kB: a twentieth of a body.
const MOST_GROWN: usize = 12 * 1024;
const VALUE: &str = "value-of-a-large-request";

/// A root, and a server of `good.test` that it vouches for.
fn upstream_tls() -> (String, Arc<ServerConfig>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["good.test".to_owned()]).unwrap();
    let certificate = names.signed_by(&key, &issuer).unwrap();
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], der)
        .unwrap();
    (root, Arc::new(config))
}

fn client_tls(authority: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(authority.as_bytes());
    roots.add(authority.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Reads a head byte by byte, so that nothing behind it is taken.
fn head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Reads a body of `LARGE` bytes, or chunks up to the last one.
fn read_body(stream: &mut impl Read, chunked: bool) {
    let mut piece = vec![0; PIECE];
    if !chunked {
        for _ in 0..LARGE / PIECE {
            stream.read_exact(&mut piece).unwrap();
        }
        return;
    }
    let mut end = Vec::new();
    while !end.ends_with(b"\r\n0\r\n\r\n") {
        // A signal for the runtime may interrupt a read.
        let read = match stream.read(&mut piece) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        assert!(read > 0, "the last chunk is missing");
        end.extend_from_slice(&piece[..read]);
        end.drain(..end.len().saturating_sub(7));
    }
}

fn write_body(stream: &mut impl Write, chunked: bool) {
    // Nearly a placeholder, again and again: something is always held back.
    let text = b"astrabox-cred astrabox-cre ".repeat(PIECE / 27 + 1);
    let piece = match chunked {
        true => [b"10000\r\n".as_slice(), &text[..PIECE], b"\r\n"].concat(),
        false => text[..PIECE].to_vec(),
    };
    for _ in 0..LARGE / PIECE {
        stream.write_all(&piece).unwrap();
    }
    if chunked {
        stream.write_all(b"0\r\n\r\n").unwrap();
    }
    stream.flush().unwrap();
}

fn framing(chunked: bool) -> String {
    match chunked {
        true => "Transfer-Encoding: chunked".to_owned(),
        false => format!("Content-Length: {LARGE}"),
    }
}

/// Takes a large body and gives one back, in the same framing, for each of the framings.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>) {
    for chunked in [false, true] {
        let (socket, _) = listener.accept().unwrap();
        let session = ServerConnection::new(Arc::clone(config)).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        let asked = head(&mut stream);
        assert!(asked.contains(VALUE), "without the value: {asked}");
        read_body(&mut stream, chunked);
        let answer = format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", framing(chunked));
        stream.write_all(answer.as_bytes()).unwrap();
        write_body(&mut stream, chunked);
        stream.conn.send_close_notify();
        stream.flush().unwrap();
    }
}

fn a_large_body_that_is_looked_through_needs_no_memory_in_either_direction() {
    let (root, config) = upstream_tls();
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("root.pem");
    std::fs::write(&roots, root).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stand = Stand::new(EgressConfig {
        extra_roots: vec![roots],
        ..good_test_is(listener.local_addr().unwrap())
    });
    let pid = i32::try_from(stand.start_role().pid).unwrap();
    let gate = stand.gate();
    let sandbox = stand.open(&gate, &[], TcpListener::bind("127.0.0.1:0").unwrap());
    let placeholder = Placeholder::mint(&MintKey::new([7; 32]), "sbx", "key");
    let grant = CredentialGrant {
        credential_id: "key".to_owned(),
        handle: "KEY".to_owned(),
        placeholder: placeholder.clone(),
        hosts: vec!["good.test".parse().unwrap()],
        anywhere: false,
        methods: Vec::new(),
        paths: Vec::new(),
        places: Places {
            header: HeaderPlace::Any,
            // So the body is looked through.
            body: BodyPlace::Refuse,
            websocket: false,
        },
        cleartext: false,
    };
    let plan = CredentialPlan {
        environment: vec![grant],
        ..CredentialPlan::default()
    };
    let mut values = CredentialValues::default();
    values.insert("key", Secret::new(VALUE.as_bytes().to_vec()));
    let authority = stand.runtime.block_on(async {
        gate.set_credentials(sandbox.id, plan, values)
            .await
            .unwrap();
        gate.authority().await.unwrap()
    });
    let trust = client_tls(&authority);
    let upstream = thread::spawn(move || serve(&listener, &config));
    let peak = || {
        let text = status(pid, "VmHWM");
        text.trim_end_matches(" kB").parse::<usize>().unwrap()
    };
    let before = peak();
    for chunked in [false, true] {
        let mut socket = TcpStream::connect(sandbox.proxy).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
            .write_all(connect_to("good.test:443").as_bytes())
            .unwrap();
        assert_eq!(read_head(&mut socket), 0);
        let name = ServerName::try_from("good.test").unwrap();
        let session = ClientConnection::new(Arc::clone(&trust), name).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        let asked = format!(
            "POST / HTTP/1.1\r\nHost: good.test\r\nX-Key: {placeholder}\r\n{}\r\n\r\n",
            framing(chunked)
        );
        stream.write_all(asked.as_bytes()).unwrap();
        write_body(&mut stream, chunked);
        assert!(head(&mut stream).starts_with("HTTP/1.1 200 "));
        read_body(&mut stream, chunked);
    }
    upstream.join().unwrap();
    let grown = peak() - before;
    assert!(grown < MOST_GROWN, "it took {grown} kB for {LARGE} bytes");
}
