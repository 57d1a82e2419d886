//! What a fuzzer throws at the parts that read what a sandbox says. Each function panics when a promise is broken.

use std::sync::{Arc, LazyLock};

use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, Destination, EgressPolicy, HeaderPlace, MARKER,
    MintKey, Placeholder, Places,
};
use astrabox_sandbox::CredentialValues;
use astrabox_types::{SandboxId, Secret, SessionId};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::audit::AuditSender;
use crate::config::EgressConfig;
use crate::credentials::Credentials;
use crate::http::framing;
use crate::http::head::{RequestHead, find_end};
use crate::http::request::{Forward, Request, inside};
use crate::http::upstream::{Terms, UpstreamHead};
use crate::inject::Injection;
use crate::intercept::{Tunnel, http2 as intercepted};
use crate::record::Ledger;
use crate::resolve::SystemResolver;
use crate::services::Services;
use crate::tls::Interception;
use crate::workload::Workload;

/// The value of the one credential, which may stand in the header `x-key` to `good.test` and nowhere else.
const CANARY: &[u8] = b"canary-0f3b1c9d-value";

/// The placeholder of the one credential, for those who write inputs.
#[must_use]
pub fn placeholder() -> String {
    Placeholder::mint(&MintKey::new([7; 32]), "sbx", "key").to_string()
}

/// The input is a request head, read as one to the proxy and as one inside of a tunnel to `good.test:443`.
///
/// # Panics
/// When what goes upstream could be read as something else than what was judged.
pub fn request_head(data: &[u8]) {
    let whole = find_end(data, 0);
    for at in [data.len() / 3, data.len() / 2] {
        let in_two = match find_end(&data[..at], 0) {
            Ok(None) => find_end(data, at),
            found => found,
        };
        assert_eq!(whole, in_two, "it ends elsewhere when it is cut");
    }
    let Ok(Some(end)) = whole else { return };
    let head = Bytes::copy_from_slice(&data[..end]);
    let parse = || RequestHead::parse(&head).ok();
    let tunnel = Destination::https("good.test").expect("a host");
    if let Some(Ok(Request::Forward(forward))) = parse().map(Request::interpret) {
        check_head(&forward);
    }
    if let Some(Ok(forward)) = parse().map(|head| inside(head, &tunnel)) {
        assert_eq!(forward.destination, tunnel);
        check_head(&forward);
    }
}

fn check_head(forward: &Forward) {
    let judged = Injection::judge(
        credentials(),
        &forward.destination,
        &forward.method,
        &forward.path,
        forward.fields.iter().map(|field| &field.name[..]),
    );
    let Ok(mut injection) = judged else { return };
    let Ok(head) = UpstreamHead::new(forward, &mut injection) else {
        return;
    };
    let sent = head.write(Terms {
        body: forward.body,
        expect: forward.expects_continue(),
        persistent: false,
    });
    let sent = Bytes::copy_from_slice(&sent);
    assert!(
        !holds(&sent, MARKER.as_bytes()),
        "a placeholder goes upstream"
    );
    assert_eq!(find_end(&sent, 0), Ok(Some(sent.len())));
    let Ok(read) = RequestHead::parse(&sent) else {
        panic!("what goes upstream is no head")
    };
    assert_eq!(read.method, forward.method);
    assert!(read.target.starts_with('/'));
    assert_eq!(framing::of_request(&read), Ok(forward.body));
    let hosts: Vec<_> = read.fields.all("host").collect();
    assert_eq!(hosts.len(), 1, "one host");
    for field in read.fields.iter() {
        let key = field.name.eq_ignore_ascii_case(b"x-key");
        assert!(
            key || !holds(&field.value, CANARY),
            "the value stands elsewhere"
        );
    }
}

/// The input is what a client sends after its preface and its settings, in a tunnel to `good.test:443`.
///
/// # Panics
/// When the upstream gets what it must not.
pub fn http2(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let workload = workload();
        let tunnel = Tunnel {
            destination: Destination::https("good.test").expect("a host"),
            addresses: Vec::new(),
            workload: &workload,
            services: &SERVICES,
        };
        let (client, far) = duplex(64 * 1024);
        let (upstream, server) = duplex(64 * 1024);
        let ledger = Ledger::default();
        let served = intercepted::run(client, upstream, None, Vec::new(), &tunnel, &ledger);
        tokio::select! {
            _ = served => {}
            () = async { tokio::join!(say(far, data), hear(server)); } => {}
        }
    });
}

async fn say(client: DuplexStream, data: &[u8]) {
    let (mut read, mut write) = tokio::io::split(client);
    let speak = async {
        // An empty SETTINGS frame (RFC 9113, section 6.5).
        let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        let _ = write.write_all(begin).await;
        let _ = write.write_all(data).await;
        let _ = write.shutdown().await;
    };
    let listen = async {
        let mut sink = [0; 4096];
        while read.read(&mut sink).await.is_ok_and(|read| read > 0) {}
    };
    tokio::join!(speak, listen);
}

async fn hear(upstream: DuplexStream) {
    let Ok(mut connection) = h2::server::handshake(upstream).await else {
        return;
    };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        check_stream(&request);
        let _ = respond.send_response(http::Response::new(()), true);
    }
}

fn check_stream(request: &http::Request<h2::RecvStream>) {
    let uri = request.uri();
    assert_eq!(uri.scheme_str(), Some("https"));
    assert_eq!(uri.authority().map(|name| name.as_str()), Some("good.test"));
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    assert!(!holds(target.as_bytes(), MARKER.as_bytes()));
    for (name, value) in request.headers() {
        let value = value.as_bytes();
        assert!(name != "host" && !holds(value, MARKER.as_bytes()), "{name}");
        assert!(name == "x-key" || !holds(value, CANARY), "{name}");
    }
}

fn holds(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn credentials() -> Credentials {
    let grant = CredentialGrant {
        credential_id: "key".to_owned(),
        handle: "KEY".to_owned(),
        placeholder: placeholder().parse().expect("a placeholder"),
        hosts: vec!["good.test".parse().expect("a pattern")],
        anywhere: false,
        methods: Vec::new(),
        paths: Vec::new(),
        places: Places {
            header: HeaderPlace::Named("x-key".to_owned()),
            body: BodyPlace::Refuse,
            websocket: false,
        },
        cleartext: true,
    };
    let mut values = CredentialValues::default();
    values.insert("key", Secret::new(CANARY.to_vec()));
    let plan = CredentialPlan {
        environment: vec![grant],
        ..CredentialPlan::default()
    };
    Credentials::new(plan, values)
}

fn workload() -> Arc<Workload> {
    let workload = Workload::new(SandboxId::new(), SessionId::new(), EgressPolicy::default());
    // It has nothing open that could leave.
    drop(workload.set(None, Some(credentials())));
    workload
}

static SERVICES: LazyLock<Arc<Services>> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("astrabox-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir(&folder).expect("a folder");
    let directory = std::fs::File::open(&folder).expect("it is there").into();
    let interception = Interception::load(&directory).expect("an authority");
    // Everything is in memory now.
    std::fs::remove_dir_all(&folder).expect("it is there");
    Services::new(
        EgressConfig::default(),
        Arc::new(SystemResolver::default()),
        AuditSender::nowhere(),
        interception,
    )
});

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Runs a target over its committed corpus, over what comes of it by chance, and over what is no corpus at all.
    fn replay(name: &str, target: fn(&[u8]), rounds: usize) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../fuzz/corpus")
            .join(name);
        let files = std::fs::read_dir(&folder).unwrap();
        let corpus: Vec<Vec<u8>> = files
            .map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect();
        assert!(corpus.len() >= 12, "{name} has {} inputs", corpus.len());
        target(b"");
        corpus.iter().for_each(|input| target(input));
        let mut chance = Chance(1);
        for _ in 0..rounds {
            let mut input = corpus[chance.below(corpus.len())].clone();
            let other = &corpus[chance.below(corpus.len())];
            for _ in 0..=chance.below(4) {
                let at = chance.below(input.len());
                match chance.below(4) {
                    0 => input[at] = chance.below(256) as u8,
                    1 => input.insert(at, chance.below(256) as u8),
                    2 => input.extend_from_slice(&other[chance.below(other.len())..]),
                    _ => {
                        input.remove(at);
                    }
                }
                if input.is_empty() {
                    break;
                }
            }
            target(&input);
        }
    }

    /// The same numbers in each run (Knuth's linear congruential generator).
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % limit.max(1)
        }
    }

    #[test]
    fn request_heads_of_the_corpus_keep_their_promises() {
        replay("request_head", super::request_head, 5000);
    }

    #[test]
    fn streams_of_the_corpus_keep_their_promises() {
        replay("http2", super::http2, 500);
    }
}
