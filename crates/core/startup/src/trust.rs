//! The authority that signs for the hosts at which credentials are put in: every program in the sandbox trusts it,
//! besides those that it trusts anyway.

use std::collections::BTreeMap;

use astrabox_sandbox::{BoxPath, ErrorKind, HOME, Result, Workload, WriteOptions};
use bytes::Bytes;

use crate::java;

/// Where the base keeps the authorities that it trusts: Debian's place, then Fedora's, then Alpine's.
const OWN_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The largest bundle that is read (4 MiB); real ones have some 200 KiB.
const MAX_BUNDLE: u64 = 4 << 20;

/// How much is read at once.
const CHUNK: u64 = 256 << 10;

/// Below [`HOME`].
const FOLDER: &str = ".astrabox";

/// Where the files are.
pub(crate) struct Trust {
    /// The authority alone.
    authority: String,
    /// The authority after those of the base.
    bundle: String,
    /// The same for Java, where there is one.
    java: Option<String>,
}

/// Writes the files. The workload could change them: it would only mistrust, or be lied to, by its own doing.
///
/// # Errors
/// What the sandbox says.
pub(crate) async fn install(workload: &dyn Workload, authority: &str) -> Result<Trust> {
    let java = java::is_there(workload).await;
    let trust = Trust {
        authority: format!("{HOME}/{FOLDER}/authority.pem"),
        bundle: format!("{HOME}/{FOLDER}/authorities.pem"),
        java: java.then(|| format!("{HOME}/{FOLDER}/authorities.jks")),
    };
    let mut bundle = own_bundle(workload).await?;
    if !bundle.is_empty() && !bundle.ends_with(b"\n") {
        bundle.push(b'\n');
    }
    bundle.extend_from_slice(authority.as_bytes());
    let store = trust
        .java
        .iter()
        .map(|path| (path, java::trust_store(&bundle)));
    let store: Vec<_> = store.collect();
    let files = [
        (&trust.authority, authority.as_bytes().to_vec()),
        (&trust.bundle, bundle),
    ];
    for (path, content) in files.into_iter().chain(store) {
        let path = path_of(path)?;
        let options = WriteOptions::default();
        workload
            .write_file(&path, Bytes::from(content), options)
            .await?;
    }
    Ok(trust)
}

async fn own_bundle(workload: &dyn Workload) -> Result<Vec<u8>> {
    for path in OWN_BUNDLES {
        let path = path_of(path)?;
        let mut content = Vec::new();
        loop {
            match workload.read_file(&path, content.len() as u64, CHUNK).await {
                Ok(chunk) if chunk.is_empty() => break,
                Ok(chunk) => content.extend_from_slice(&chunk),
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
            if content.len() as u64 > MAX_BUNDLE {
                content.clear();
                break;
            }
        }
        if !content.is_empty() {
            return Ok(content);
        }
    }
    Ok(Vec::new())
}

fn path_of(path: &str) -> Result<BoxPath> {
    BoxPath::new(path).map_err(|error| {
        astrabox_sandbox::Error::new(ErrorKind::Invalid, "trust", error.to_string())
    })
}

impl Trust {
    /// The variables by which programs find it. Those that replace a program's own list name the whole bundle.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let whole = [
            // OpenSSL, Go, Rust's native roots, Python's ssl.
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "GIT_SSL_CAINFO",
            "PIP_CERT",
            "CARGO_HTTP_CAINFO",
            "AWS_CA_BUNDLE",
            "NPM_CONFIG_CAFILE",
            "npm_config_cafile",
            "CODEX_CA_CERTIFICATE",
            "DENO_CERT",
        ];
        let mut variables: BTreeMap<_, _> = whole
            .into_iter()
            .map(|name| (name.to_owned(), self.bundle.clone()))
            .collect();
        // Node adds these to its own.
        variables.insert("NODE_EXTRA_CA_CERTS".to_owned(), self.authority.clone());
        if let Some(store) = &self.java {
            variables.insert(java::VARIABLE.to_owned(), java::options(store));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_finds_the_whole_list_and_node_the_addition() {
        let mut trust = Trust {
            authority: "/a".into(),
            bundle: "/b".into(),
            java: None,
        };
        let variables = trust.variables();
        assert!(!variables.contains_key(java::VARIABLE));
        trust.java = Some("/j".into());
        assert!(trust.variables()[java::VARIABLE].contains("trustStore=/j "));
        assert_eq!(variables["SSL_CERT_FILE"], "/b");
        assert_eq!(variables["NODE_EXTRA_CA_CERTS"], "/a");
    }
}
