//! Certificates for the hosts at which TLS is ended, kept by canonical host and never made for anything else.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use astrabox_egress::Host;
use jiff::{Timestamp, ToSpan};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::authority::{Authority, certified, set_validity};

/// How many hosts are kept.
const KEPT: usize = 512;

/// How long a certificate is valid from the day on which it is made, in hours, and when it is made anew. With what
/// it is dated back it is valid for less than 30 days.
const VALID_HOURS: i64 = 20 * 24;
const RENEWED_HOURS: i64 = 10 * 24;

/// Makes certificates and keeps them. All have one key, which never leaves the memory.
pub(crate) struct Leaves {
    authority: Authority,
    key: KeyPair,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_host: HashMap<Host, Leaf>,
    uses: u64,
}

struct Leaf {
    certified: Arc<CertifiedKey>,
    renew: Timestamp,
    used: u64,
}

impl Leaves {
    pub(crate) fn new(authority: Authority) -> io::Result<Self> {
        Ok(Self {
            authority,
            key: KeyPair::generate().map_err(io::Error::other)?,
            kept: Mutex::default(),
        })
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What a server that is `host` says in a handshake, with one application protocol or none.
    pub(crate) fn server_config(
        &self,
        host: &Host,
        protocol: Option<&[u8]>,
    ) -> io::Result<Arc<ServerConfig>> {
        let certified = self.certified(host, Timestamp::now())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Always(certified)));
        config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
        // Every connection is judged by its own handshake.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn certified(&self, host: &Host, now: Timestamp) -> io::Result<Arc<CertifiedKey>> {
        // Nothing panics while it holds the lock, and the state is whole between any two statements.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let uses = kept.uses;
        if let Some(leaf) = kept.by_host.get_mut(host)
            && now < leaf.renew
        {
            leaf.used = uses;
            return Ok(Arc::clone(&leaf.certified));
        }
        // About a tenth of a millisecond, and rare.
        let certified = Arc::new(self.make(host, now)?);
        if kept.by_host.len() >= KEPT && !kept.by_host.contains_key(host) {
            let oldest = kept.by_host.iter().min_by_key(|(_, leaf)| leaf.used);
            if let Some(oldest) = oldest.map(|(host, _)| host.clone()) {
                kept.by_host.remove(&oldest);
            }
        }
        let leaf = Leaf {
            certified: Arc::clone(&certified),
            renew: now.saturating_add(RENEWED_HOURS.hours()).unwrap_or(now),
            used: uses,
        };
        kept.by_host.insert(host.clone(), leaf);
        Ok(certified)
    }

    fn make(&self, host: &Host, now: Timestamp) -> io::Result<CertifiedKey> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![match host {
            Host::Name(name) => {
                SanType::DnsName(name.as_str().try_into().map_err(io::Error::other)?)
            }
            Host::Address(address) => SanType::IpAddress(*address),
        }];
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "AstraBox egress");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, VALID_HOURS);
        certified(self.authority.sign(&params, &self.key)?, &self.key)
    }
}

/// One certificate, whatever a client asks for: what it asks for was compared before.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    fn leaves(folder: &tempfile::TempDir) -> Leaves {
        let directory = std::fs::File::open(folder.path()).unwrap().into();
        Leaves::new(Authority::load(&directory).unwrap()).unwrap()
    }

    /// Whether a client that trusts the authority takes the certificate, `hours` from now.
    fn accepted(leaves: &Leaves, certified: &CertifiedKey, name: &str, hours: i64) -> bool {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(leaves.authority().pem().as_bytes());
        roots.add(authority.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let now = Timestamp::now().saturating_add(hours.hours()).unwrap();
        let seconds = u64::try_from(now.as_second()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier
            .verify_server_cert(&certified.cert[0], &[], &name, &[], now)
            .is_ok()
    }

    #[test]
    fn j_a_certificate_is_for_its_host_only_and_holds_for_a_clock_that_is_behind() {
        let folder = tempfile::tempdir().unwrap();
        let leaves = leaves(&folder);
        for (host, name, hours, wanted) in [
            ("api.good.test", "api.good.test", 0, true),
            ("api.good.test", "api.good.test", -47, true),
            ("api.good.test", "api.good.test", -100, false),
            ("api.good.test", "api.good.test", 19 * 24, true),
            ("api.good.test", "api.good.test", 30 * 24, false),
            ("api.good.test", "x.api.good.test", 0, false),
            ("api.good.test", "good.test", 0, false),
            ("127.0.0.1", "127.0.0.1", 0, true),
            ("127.0.0.1", "127.0.0.2", 0, false),
            ("[::1]", "::1", 0, true),
        ] {
            let host = host.parse().unwrap();
            let certified = leaves.certified(&host, Timestamp::now()).unwrap();
            let got = accepted(&leaves, &certified, name, hours);
            assert_eq!(got, wanted, "{host} {name} {hours}");
        }
    }

    #[test]
    fn j_certificates_are_kept_by_host_renewed_in_time_and_bounded_in_number() {
        let folder = tempfile::tempdir().unwrap();
        let leaves = leaves(&folder);
        let now = Timestamp::now();
        let host: Host = "a.test".parse().unwrap();
        let first = leaves.certified(&host, now).unwrap();
        assert!(Arc::ptr_eq(&first, &leaves.certified(&host, now).unwrap()));
        let later = now.saturating_add(RENEWED_HOURS.hours()).unwrap();
        let renewed = leaves.certified(&host, later).unwrap();
        assert!(!Arc::ptr_eq(&first, &renewed));
        for number in 0..KEPT {
            let other = format!("x{number}.test").parse().unwrap();
            leaves.certified(&other, later).unwrap();
            // In use all the time, so never the one that goes.
            assert!(Arc::ptr_eq(
                &renewed,
                &leaves.certified(&host, later).unwrap()
            ));
        }
        assert_eq!(leaves.kept.lock().unwrap().by_host.len(), KEPT);
    }
}
