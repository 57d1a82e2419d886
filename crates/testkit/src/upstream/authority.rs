//! An authority for one test, and certificates of it.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A private certificate authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes one.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        Ok(Self(issuer))
    }

    /// Its certificate, as PEM, for those that are to trust it.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// How a server speaks TLS as these names or addresses, over these application protocols.
    ///
    /// # Errors
    /// When a name is none.
    pub fn server(&self, names: &[&str], protocols: &[&str]) -> Result<Arc<ServerConfig>> {
        let names = names.iter().map(|name| (*name).to_owned());
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(names.collect::<Vec<_>>())?;
        let leaf = params.signed_by(&key, &self.0)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("protocol versions")?
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone(), self.0.der().clone()], key)?;
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        Ok(Arc::new(config))
    }
}
