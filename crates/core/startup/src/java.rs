//! What a Java runtime has to be told: it goes by none of the variables and files that other programs go by.

use astrabox_sandbox::{BoxPath, EGRESS_PROXY_PORT, IMAGE_ROOT, Workload};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

/// The variable whose options every Java runtime takes, whoever starts it (JVM tool interface, "Tool Interface
/// Options").
pub(crate) const VARIABLE: &str = "JAVA_TOOL_OPTIONS";

/// What protects nothing: the password of every trust store that comes with a JDK.
const PASSWORD: &str = "changeit";

/// The words of a `.jks` file (OpenJDK 17, `sun.security.provider.JavaKeyStore`).
const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const WHITENER: &[u8] = b"Mighty Aphrodite";

/// Whether programs in the sandbox find a Java runtime.
pub(crate) async fn is_there(workload: &dyn Workload) -> bool {
    for folder in ["/usr", IMAGE_ROOT] {
        if let Ok(path) = BoxPath::new(format!("{folder}/bin/java"))
            && workload.read_file(&path, 0, 1).await.is_ok()
        {
            return true;
        }
    }
    false
}

/// The options: whom to trust, and the way out.
pub(crate) fn options(trust_store: &str) -> String {
    let mut options = vec![
        format!("-Djavax.net.ssl.trustStore={trust_store}"),
        "-Djavax.net.ssl.trustStoreType=jks".to_owned(),
    ];
    for scheme in ["http", "https"] {
        options.push(format!("-D{scheme}.proxyHost=127.0.0.1"));
        options.push(format!("-D{scheme}.proxyPort={EGRESS_PROXY_PORT}"));
    }
    // The sandbox's own loopback; it counts for https as well.
    options.push("-Dhttp.nonProxyHosts=localhost|127.*|[::1]".to_owned());
    options.join(" ")
}

/// The certificates of a bundle in PEM as a trust store; what is no certificate is left out.
pub(crate) fn trust_store(bundle: &[u8]) -> Vec<u8> {
    let certificates = certificates(bundle);
    let mut store = Vec::new();
    let word = |store: &mut Vec<u8>, word: usize| {
        let word = u32::try_from(word).unwrap_or(u32::MAX);
        store.extend_from_slice(&word.to_be_bytes());
    };
    let text = |store: &mut Vec<u8>, text: &str| {
        let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        store.extend_from_slice(&length.to_be_bytes());
        store.extend_from_slice(text.as_bytes());
    };
    store.extend_from_slice(&MAGIC.to_be_bytes());
    store.extend_from_slice(&VERSION.to_be_bytes());
    word(&mut store, certificates.len());
    for (number, certificate) in certificates.iter().enumerate() {
        store.extend_from_slice(&TRUSTED_CERTIFICATE.to_be_bytes());
        text(&mut store, &format!("authority-{number}"));
        // When it was added: nobody asks.
        store.extend_from_slice(&0_u64.to_be_bytes());
        text(&mut store, "X.509");
        word(&mut store, certificate.len());
        store.extend_from_slice(certificate);
    }
    let mut digest = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for unit in PASSWORD.encode_utf16() {
        digest.update(&unit.to_be_bytes());
    }
    digest.update(WHITENER);
    digest.update(&store);
    store.extend_from_slice(digest.finish().as_ref());
    store
}

fn certificates(bundle: &[u8]) -> Vec<Vec<u8>> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let bundle = String::from_utf8_lossy(bundle);
    let blocks = bundle.split(BEGIN).skip(1);
    blocks
        .filter_map(|block| {
            let coded: String = block.split_once(END)?.0.split_whitespace().collect();
            BASE64.decode(coded).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_each_certificate_of_the_bundle_and_a_digest() {
        let pem = |text: &str| {
            let coded = BASE64.encode(text);
            format!("# {text}\n-----BEGIN CERTIFICATE-----\n{coded}\n-----END CERTIFICATE-----\n")
        };
        let broken = "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n";
        let store = trust_store(
            [pem("one"), broken.to_owned(), pem("two")]
                .concat()
                .as_bytes(),
        );
        assert_eq!(
            store[..12],
            [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 2]
        );
        let end = |text: &[u8]| store.windows(text.len()).any(|part| part == text);
        assert!(end(
            b"\0\x0bauthority-0\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x03one"
        ));
        assert!(end(
            b"\0\x0bauthority-1\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x03two"
        ));
        assert_eq!(store.len(), 12 + 2 * (4 + 13 + 8 + 7 + 4 + 3) + 20);
    }

    #[test]
    fn the_options_name_the_store_and_the_proxy_for_both_schemes() {
        let options = options("/store");
        for part in [
            "-Djavax.net.ssl.trustStore=/store ",
            "-Dhttp.proxyPort=3128 ",
            "-Dhttps.proxyHost=127.0.0.1 ",
        ] {
            assert!(options.contains(part), "{options}");
        }
    }
}
