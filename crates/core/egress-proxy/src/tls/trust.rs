//! Whom upstreams are believed: the system's roots and those that the operator adds.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// A text that is not the operator's roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("egress.extra_roots: the files hold something that is not a certificate in PEM")]
pub(crate) struct InvalidRoots;

/// What upstreams are verified by.
pub(crate) struct Trust {
    system: RootCertStore,
    current: RwLock<Current>,
}

struct Current {
    extra: String,
    config: Arc<ClientConfig>,
}

impl Trust {
    /// The roots of the system. None where the system has none; then every upstream but the operator's is refused.
    pub(crate) fn of_the_system() -> Self {
        let found = rustls_native_certs::load_native_certs();
        let mut system = RootCertStore::empty();
        let (added, _) = system.add_parsable_certificates(found.certs);
        if added == 0 {
            tracing::warn!("the system has no root certificates; install ca-certificates");
        }
        Self {
            current: RwLock::new(Current {
                extra: String::new(),
                config: config(system.clone()),
            }),
            system,
        }
    }

    /// Takes the operator's roots, as PEM, besides those of the system.
    pub(crate) fn set_extra(&self, pem: &str) -> Result<(), InvalidRoots> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if current.extra == pem {
            return Ok(());
        }
        let mut roots = self.system.clone();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|_| InvalidRoots)?;
            roots.add(certificate).map_err(|_| InvalidRoots)?;
        }
        *current = Current {
            extra: pem.to_owned(),
            config: config(roots),
        };
        Ok(())
    }

    /// What a client says in a handshake that offers these application protocols.
    pub(crate) fn client_config(&self, protocols: Vec<Vec<u8>>) -> Arc<ClientConfig> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let mut config = ClientConfig::clone(&current.config);
        config.alpn_protocols = protocols;
        Arc::new(config)
    }
}

fn config(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the ring provider has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Each connection verifies anew, and sandboxes share nothing.
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused_and_changes_nothing() {
        let trust = Trust::of_the_system();
        let before = Arc::clone(&trust.current.read().unwrap().config);
        let wrong = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(trust.set_extra(wrong), Err(InvalidRoots));
        assert!(Arc::ptr_eq(&before, &trust.current.read().unwrap().config));
        assert_eq!(trust.set_extra("no certificate at all"), Ok(()));
    }
}
