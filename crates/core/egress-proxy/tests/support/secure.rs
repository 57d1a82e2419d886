//! TLS on both ends of the proxy: roots and upstreams of the tests, and clients inside a sandbox.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::client::{Client, tunnel};
use super::upstream::{Conversation, Log};

pub(crate) const H1: &[u8] = b"http/1.1";
pub(crate) const H2: &[u8] = b"h2";

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Whom the operator of a test trusts.
pub(crate) struct Root {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Root {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("root.pem"), certificate.pem()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            folder,
        }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    fn server(&self, names: &[&str], protocols: &[&[u8]]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

pub(crate) type ServerTls = server::TlsStream<TcpStream>;
pub(crate) type ClientTls = client::TlsStream<TcpStream>;

/// An upstream that speaks TLS and records what it decrypts.
pub(crate) struct Secure {
    pub(crate) address: SocketAddr,
    log: Log,
    _tasks: JoinSet<()>,
}

impl Secure {
    /// Runs `script` on each connection that ended its handshake.
    pub(crate) async fn start<F, Fut>(
        root: &Root,
        names: &[&str],
        protocols: &[&[u8]],
        script: F,
    ) -> Self
    where
        F: Fn(Conversation<ServerTls>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(root.server(names, protocols));
        let log: Log = Arc::new(Mutex::default());
        let mut tasks = JoinSet::new();
        let connections = Arc::clone(&log);
        let script = Arc::new(script);
        tasks.spawn(async move {
            let mut scripts = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                let (acceptor, log) = (acceptor.clone(), Arc::clone(&connections));
                let script = Arc::clone(&script);
                scripts.spawn(async move {
                    // The proxy may hang up at any time.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = script(Conversation::new(stream, &log)).await;
                    }
                });
            }
        });
        Self {
            address,
            log,
            _tasks: tasks,
        }
    }

    /// Answers each request with `ok`, on connections that stay.
    pub(crate) async fn answering(root: &Root, names: &[&str]) -> Self {
        Self::start(root, names, &[H1], |mut conversation| async move {
            loop {
                conversation.request().await?;
                conversation.write(super::OK).await?;
            }
        })
        .await
    }

    /// What each connection sent so far.
    pub(crate) fn received(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect()
    }

    /// Everything, as bytes.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.log.lock().unwrap().concat()
    }

    /// Everything, of all connections.
    pub(crate) fn all(&self) -> String {
        self.received().concat()
    }
}

/// What a client inside a sandbox trusts and offers.
pub(crate) struct Trusting {
    config: Arc<ClientConfig>,
}

impl Trusting {
    pub(crate) fn new(authority: &str, protocols: &[&[u8]]) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
            .unwrap();
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.enable_sni = true;
        Self {
            config: Arc::new(config),
        }
    }

    pub(crate) fn without_sni(self) -> Self {
        let mut config = ClientConfig::clone(&self.config);
        config.enable_sni = false;
        Self {
            config: Arc::new(config),
        }
    }

    /// Speaks TLS to `name` in a tunnel to `authority`.
    pub(crate) async fn connect(
        &self,
        proxy: SocketAddr,
        authority: &str,
        name: &str,
    ) -> io::Result<ClientTls> {
        let plain = tunnel(proxy, authority).await;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::clone(&self.config))
            .connect(name, plain.stream)
            .await
    }

    /// Speaks TLS to `name` over a connection of any kind.
    pub(crate) async fn over<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        name: &str,
    ) -> client::TlsStream<S> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::clone(&self.config))
            .connect(name, stream)
            .await
            .unwrap()
    }

    /// As [`Trusting::connect`], to speak HTTP/1.1.
    pub(crate) async fn client(
        &self,
        proxy: SocketAddr,
        authority: &str,
        name: &str,
    ) -> Client<ClientTls> {
        Client::over(self.connect(proxy, authority, name).await.unwrap())
    }
}

/// The file of a root, as the setting wants it.
pub(crate) fn roots(root: &Root) -> Vec<PathBuf> {
    assert!(Path::new(&root.file()).is_absolute());
    vec![root.file()]
}
