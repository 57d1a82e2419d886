//! From an allowed destination to the addresses that may be dialled: resolved once, each answer judged.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use astrabox_egress::{AddressRules, Decision, DenyReason, Destination, Host};
use async_trait::async_trait;
use tokio::sync::Semaphore;

use crate::config::EgressConfig;

/// How many look-ups run at once; each holds a thread until the name servers answer.
const LOOKUPS: usize = 64;

/// The most answers to one look-up that are looked at.
const MAX_ANSWERS: usize = 64;

/// How names become addresses.
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// Every address of `name`.
    ///
    /// # Errors
    /// When there is none, or when the name servers do not answer.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own resolver.
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let name = name.to_owned();
        let permit = Arc::clone(&self.lookups)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let lookup = move || {
            // Held by the look-up itself, which goes on when nobody waits for it any more.
            let _permit = permit;
            let answers = (name.as_str(), 0).to_socket_addrs()?;
            Ok(answers.map(|answer| answer.ip()).collect())
        };
        tokio::task::spawn_blocking(lookup)
            .await
            .map_err(io::Error::other)?
    }
}

/// Where a destination may be dialled, and why it may be dialled there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidates {
    pub(crate) addresses: Vec<SocketAddr>,
    /// The operator stated the address for this name.
    pub(crate) stated: bool,
}

impl Candidates {
    /// Finds the addresses of a destination. None of them has been judged yet.
    pub(crate) async fn find(
        destination: &Destination,
        config: &EgressConfig,
        resolver: &dyn Resolver,
    ) -> Result<Self, DenyReason> {
        let Destination { host, port, .. } = destination;
        let name = match host {
            Host::Address(address) => {
                return Ok(Self {
                    addresses: vec![SocketAddr::new(*address, *port)],
                    stated: false,
                });
            }
            Host::Name(name) => name,
        };
        if let Some(target) = config.static_hosts.find(host, *port) {
            return Ok(Self {
                addresses: vec![target],
                stated: true,
            });
        }
        let lookup = tokio::time::timeout(config.connect_timeout, resolver.resolve(name));
        let Ok(Ok(answers)) = lookup.await else {
            return Err(DenyReason::Unresolved);
        };
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for answer in answers {
            let address = SocketAddr::new(answer.to_canonical(), *port);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        match addresses.len() {
            1..=MAX_ANSWERS => Ok(Self {
                addresses,
                stated: false,
            }),
            // Too many to judge them one by one is no answer either.
            _ => Err(DenyReason::Unresolved),
        }
    }

    /// Judges every address: one that may not be reached denies them all.
    pub(crate) fn judge(&self, config: &EgressConfig) -> Result<(), DenyReason> {
        let rules = AddressRules {
            denied: &config.deny,
            allowed: &config.allow_private,
        };
        for address in &self.addresses {
            if let Decision::Deny(reason) = rules.judge(address.ip(), self.stated) {
                return Err(reason);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Answers(io::Result<Vec<IpAddr>>);

    #[async_trait]
    impl Resolver for Answers {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            match &self.0 {
                Ok(answers) => Ok(answers.clone()),
                Err(error) => Err(error.kind().into()),
            }
        }
    }

    fn config() -> EgressConfig {
        let mut config = EgressConfig {
            allow_private: vec!["10.0.0.0/8".parse().unwrap(), "fd12::/16".parse().unwrap()],
            deny: vec![
                "10.9.0.0/16".parse().unwrap(),
                "203.1.0.0/16".parse().unwrap(),
            ],
            ..EgressConfig::default()
        };
        for (name, target) in [
            ("static.test", "192.168.7.7"),
            ("static.test:443", "127.0.0.1:8443"),
            ("metadata.test", "169.254.169.254"),
            ("denied.test", "10.9.0.1"),
        ] {
            config.static_hosts.insert(name, target).unwrap();
        }
        config
    }

    async fn verdict(authority: &str, answers: &[&str]) -> Result<Vec<String>, DenyReason> {
        let destination = Destination::tunnel(authority).unwrap();
        let answers = answers.iter().map(|text| text.parse().unwrap()).collect();
        let config = config();
        let found = Candidates::find(&destination, &config, &Answers(Ok(answers))).await?;
        found.judge(&config)?;
        Ok(found.addresses.iter().map(ToString::to_string).collect())
    }

    #[tokio::test]
    async fn c2_b22_every_answer_is_judged() {
        let special = DenyReason::AddressNotAllowed;
        for (answers, wanted) in [
            (&["1.1.1.1"][..], Ok(&["1.1.1.1:443"][..])),
            (
                &["1.1.1.1", "::ffff:1.1.1.1", "1.0.0.1"],
                Ok(&["1.1.1.1:443", "1.0.0.1:443"]),
            ),
            (&["10.1.2.3"], Ok(&["10.1.2.3:443"])),
            (&["fd12::1"], Ok(&["[fd12::1]:443"])),
            (&["1.1.1.1", "192.168.0.1"], Err(special)),
            (&["127.0.0.1"], Err(special)),
            (&["::1"], Err(special)),
            (&["0.0.0.0"], Err(special)),
            (&["169.254.0.1"], Err(special)),
            (&["fe80::1"], Err(special)),
            (&["100.64.0.1"], Err(special)),
            (&["::ffff:127.0.0.1"], Err(special)),
            (&["64:ff9b::7f00:1"], Err(special)),
            (&["64:ff9b::a9fe:a9fe"], Err(DenyReason::Metadata)),
            (&["169.254.169.254"], Err(DenyReason::Metadata)),
            (&["::ffff:169.254.169.254"], Err(DenyReason::Metadata)),
            (&["1.1.1.1", "fd00:ec2::254"], Err(DenyReason::Metadata)),
            (&["203.1.2.3"], Err(DenyReason::AddressDenied)),
            (
                &["1.1.1.1", "::ffff:203.1.2.3"],
                Err(DenyReason::AddressDenied),
            ),
            (&["10.9.1.1"], Err(DenyReason::AddressDenied)),
            (&[], Err(DenyReason::Unresolved)),
        ] {
            let wanted = wanted.map(|all| all.iter().map(|text| (*text).to_owned()).collect());
            assert_eq!(verdict("a.test:443", answers).await, wanted, "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_stated_address_is_for_its_name_only() {
        let one = |text: &str| Ok(vec![text.to_owned()]);
        assert_eq!(verdict("static.test:443", &[]).await, one("127.0.0.1:8443"));
        assert_eq!(verdict("static.test:80", &[]).await, one("192.168.7.7:80"));
        for (authority, answers, reason) in [
            ("192.168.7.7:80", &[][..], DenyReason::AddressNotAllowed),
            ("127.0.0.1:8443", &[], DenyReason::AddressNotAllowed),
            (
                "other.test:80",
                &["192.168.7.7"],
                DenyReason::AddressNotAllowed,
            ),
            // Not even the operator reaches metadata through a sandbox.
            ("metadata.test:80", &[], DenyReason::Metadata),
            // What the operator denies is denied by every way to it.
            ("denied.test:80", &[], DenyReason::AddressDenied),
            ("203.1.2.3:80", &[], DenyReason::AddressDenied),
        ] {
            assert_eq!(
                verdict(authority, answers).await,
                Err(reason),
                "{authority}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_server_that_fails_or_is_silent_is_no_answer() {
        struct Silent;
        #[async_trait]
        impl Resolver for Silent {
            async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
                std::future::pending().await
            }
        }
        let destination = Destination::tunnel("a.test:443").unwrap();
        let failing = Answers(Err(io::ErrorKind::NotFound.into()));
        let resolvers: [&dyn Resolver; 2] = [&failing, &Silent];
        for resolver in resolvers {
            let before = tokio::time::Instant::now();
            let found = Candidates::find(&destination, &config(), resolver).await;
            assert_eq!(found, Err(DenyReason::Unresolved));
            assert!(before.elapsed() <= Duration::from_secs(10));
        }
    }

    #[tokio::test]
    async fn the_system_knows_localhost() {
        let answers = SystemResolver::default()
            .resolve("localhost")
            .await
            .unwrap();
        assert!(answers.iter().all(IpAddr::is_loopback), "{answers:?}");
    }
}
