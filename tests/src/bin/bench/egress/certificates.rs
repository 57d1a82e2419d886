//! Who is believed: the upstream's root and its certificate, and whom a client trusts.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The upstream's name.
pub(super) const HOST: &str = "bench.test";
/// The certificate of the root, in the stage's folder.
pub(super) const ROOT: &str = "root.pem";
const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";

/// The cheapest cipher that everybody has, for client and upstream: they are not what is measured.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..default_provider()
    })
}

/// Makes a root and a certificate of it for the upstream.
pub(super) fn make(folder: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    // OpenSSL takes a certificate whose issuer is called as its subject for one that signed itself.
    params
        .distinguished_name
        .push(DnType::CommonName, "bench root");
    let root = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let server = CertificateParams::new(vec![HOST.to_owned()])?.signed_by(&key, &issuer)?;
    for (name, text) in [
        (ROOT, root.pem()),
        (CERTIFICATE, server.pem()),
        (KEY, key.serialize_pem()),
    ] {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}

/// What the upstream says in a handshake.
pub(super) fn server(folder: &Path) -> Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_file(folder.join(CERTIFICATE))?;
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config))
}

/// A client that trusts this certificate, in PEM, and no other.
pub(super) fn client(root: &str) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(root.as_bytes()).context("a root in PEM")?;
    roots.add(root)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
