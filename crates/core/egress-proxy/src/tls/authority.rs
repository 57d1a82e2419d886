//! The authority of this deployment: its key, which lies in a file that only the role's starter can read, and its
//! certificate.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use jiff::tz::Offset;
use jiff::{Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustix::fs::{Mode, OFlags};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

const KEY_FILE: &str = "authority.key";
const CERTIFICATE_FILE: &str = "authority.pem";

/// How long the certificate is valid. Only sandboxes of this deployment trust it, and none lives as long.
const YEARS: i64 = 20;

/// How far certificates are dated back, because the clock of a sandbox that was paused may be behind.
const BACKDATED_HOURS: i64 = 48;

/// Signs for the hosts at which TLS is ended.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Reads key and certificate; makes what is missing.
    pub(crate) fn load(directory: &OwnedFd) -> io::Result<Self> {
        let key = match read(directory, KEY_FILE)? {
            Some(text) => KeyPair::from_pem(&text).map_err(io::Error::other)?,
            None => {
                let key = KeyPair::generate().map_err(io::Error::other)?;
                write(directory, KEY_FILE, &Zeroizing::new(key.serialize_pem()))?;
                key
            }
        };
        let params = params(&key);
        let pem = match read(directory, CERTIFICATE_FILE)? {
            Some(pem) if belongs(&pem, &key) => (*pem).clone(),
            _ => {
                let certificate = params.self_signed(&key).map_err(io::Error::other)?;
                write(directory, CERTIFICATE_FILE, &certificate.pem())?;
                certificate.pem()
            }
        };
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// The certificate as PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// Signs a certificate for a leaf's key.
    pub(super) fn sign(
        &self,
        params: &CertificateParams,
        key: &KeyPair,
    ) -> io::Result<CertificateDer<'static>> {
        let certificate = params.signed_by(key, &self.issuer);
        Ok(certificate.map_err(io::Error::other)?.der().clone())
    }
}

/// What the certificate says besides its dates is the same whenever it is made: leaves name it by that.
fn params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key_raw());
    let short: String = digest.as_ref()[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    params.distinguished_name = DistinguishedName::new();
    // Two deployments have two names, so that a client that knows both finds the right one.
    let name = format!("AstraBox egress authority {short}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, Timestamp::now(), YEARS * 365 * 24);
    params
}

/// Valid from [`BACKDATED_HOURS`] before `now` for `hours` after it, both cut to whole days in UTC.
pub(super) fn set_validity(params: &mut CertificateParams, now: Timestamp, hours: i64) {
    let day = |hours: i64| {
        let moment = now.saturating_add(hours.hours()).unwrap_or(now);
        let date = Offset::UTC.to_datetime(moment).date();
        // Months and days are within their small ranges.
        let small = |number: i8| u8::try_from(number).unwrap_or(1);
        date_time_ymd(
            i32::from(date.year()),
            small(date.month()),
            small(date.day()),
        )
    };
    params.not_before = day(-BACKDATED_HOURS);
    params.not_after = day(hours);
}

fn belongs(pem: &str, key: &KeyPair) -> bool {
    let Ok(certificate) = CertificateDer::from_pem_slice(pem.as_bytes()) else {
        return false;
    };
    certified(certificate, key).is_ok_and(|certified| certified.keys_match().is_ok())
}

/// A certificate with its key, for rustls.
pub(super) fn certified(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
) -> io::Result<rustls::sign::CertifiedKey> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialized_der()));
    let key = rustls::crypto::ring::sign::any_ecdsa_type(&der).map_err(io::Error::other)?;
    Ok(rustls::sign::CertifiedKey::new(vec![certificate], key))
}

/// The whole file; nothing when there is none. A key that others could read is none.
fn read(directory: &OwnedFd, name: &str) -> io::Result<Option<Zeroizing<String>>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&file)?;
    let own = stat.st_uid == rustix::process::geteuid().as_raw();
    if !own || stat.st_mode & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the authority's files belong to or are open to other users; make them mode 0600 or remove them",
        ));
    }
    let mut text = Zeroizing::new(String::with_capacity(4096));
    File::from(file).take(4096).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Writes the file aside and renames it: it is there whole or not at all.
fn write(directory: &OwnedFd, name: &str, text: &str) -> io::Result<()> {
    let aside = format!("{name}.{}", uuid::Uuid::now_v7());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = File::from(rustix::fs::openat(directory, &aside, flags, mode)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    rustix::fs::renameat(directory, &aside, directory, name)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn open(folder: &tempfile::TempDir) -> OwnedFd {
        File::open(folder.path()).unwrap().into()
    }

    #[test]
    fn an_authority_stays_the_same_and_its_key_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::load(&open(&folder)).unwrap();
        let again = Authority::load(&open(&folder)).unwrap();
        assert_eq!(first.pem(), again.pem());
        let key = folder.path().join(KEY_FILE);
        assert_eq!(key.metadata().unwrap().mode() & 0o777, 0o600);
        let names = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "something was left behind");

        // Another key makes another certificate of the old one.
        std::fs::remove_file(&key).unwrap();
        let other = Authority::load(&open(&folder)).unwrap();
        assert_ne!(first.pem(), other.pem());
        let written = std::fs::read_to_string(folder.path().join(CERTIFICATE_FILE)).unwrap();
        assert_eq!(other.pem(), written);
    }

    #[test]
    fn h5_a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        Authority::load(&open(&folder)).unwrap();
        let key = folder.path().join(KEY_FILE);
        for mode in [0o640, 0o604, 0o666] {
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
            let error = Authority::load(&open(&folder)).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{mode:o}");
        }
    }
}
