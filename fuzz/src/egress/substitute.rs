use std::sync::{Arc, LazyLock};

use astrabox_egress::{
    BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, Host, MintKey, Placeholder, Places,
    Refusal, RequestFacts, RequestRules, RequestScheme, Surface, Values, holds_placeholder,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

const VALUE: &[u8] = b"V4lue of the credential";

/// Bytes of the input that stand for what a fuzzer does not find by itself.
const OWN: u8 = 1;
const FOREIGN: u8 = 2;
const STOLEN: u8 = 3;
const MARKER: u8 = 4;

static OWN_TEXT: LazyLock<Placeholder> = LazyLock::new(|| mint("sbx_1", "vcrd_own"));
static FOREIGN_TEXT: LazyLock<Placeholder> = LazyLock::new(|| mint("sbx_1", "vcrd_foreign"));
static STOLEN_TEXT: LazyLock<Placeholder> = LazyLock::new(|| mint("sbx_2", "vcrd_own"));

fn mint(sandbox: &str, credential_id: &str) -> Placeholder {
    Placeholder::mint(&MintKey::new([7; 32]), sandbox, credential_id)
}

struct Lent;

impl Values for Lent {
    fn value(&self, credential_id: &str) -> Option<&[u8]> {
        (credential_id == "vcrd_own").then_some(VALUE)
    }
}

/// The input is a byte of options, a header's name, a line feed, and its value.
pub fn header(data: &[u8]) {
    let Some((options, rest)) = data.split_first() else {
        return;
    };
    let end = rest.iter().position(|byte| *byte == b'\n');
    let (name, value) = rest.split_at(end.unwrap_or(0));
    let Ok(name) = std::str::from_utf8(name) else {
        return;
    };
    let text = expand(value.strip_prefix(b"\n").unwrap_or(value));
    let place = match options & 3 {
        0 => HeaderPlace::Any,
        1 => HeaderPlace::Named("x-key".into()),
        2 => HeaderPlace::Refuse,
        _ => HeaderPlace::Basic {
            username: "git".into(),
        },
    };
    let rules = rules(place.clone());
    let basic = options & 4 != 0;
    let value = match basic {
        true => format!("Basic {}", STANDARD.encode(&text)).into_bytes(),
        false => text.clone(),
    };
    match rules.header(name, &value, &Lent) {
        Ok(None) => {
            assert!(!holds_placeholder(&value) && !holds_placeholder(name.as_bytes()));
            assert!(!contains(&text, OWN_TEXT.as_str()) || !basic);
        }
        Ok(Some(replaced)) => {
            assert_eq!(replaced.used, ["vcrd_own"]);
            assert_ne!(place, HeaderPlace::Refuse);
            let out = if basic {
                let coded = replaced
                    .value
                    .strip_prefix(b"Basic ")
                    .expect("it stays Basic");
                STANDARD.decode(coded).expect("it is encoded")
            } else {
                replaced.value.to_vec()
            };
            // A value that was no Basic credential can look like one.
            if basic
                || !value
                    .to_ascii_lowercase()
                    .trim_ascii()
                    .starts_with(b"basic")
            {
                assert_eq!(out, model(&text));
            }
            assert!(!contains(&out, OWN_TEXT.as_str()));
        }
        Err(refusal) => says_nothing(&refusal),
    }
}

/// The input is a byte of options, two bytes that say how the body is cut, and the body.
pub fn body(data: &[u8]) {
    let [options, one, other, body @ ..] = data else {
        return;
    };
    let body = expand(body);
    let surface = match options & 3 {
        0 | 1 => Surface::Body,
        2 => Surface::Message,
        _ => Surface::BinaryMessage,
    };
    let sizes = [usize::from(*one) + 1, usize::from(*other % 16) + 1];
    let cut = rewrite(surface, &body, &sizes);
    let whole = rewrite(surface, &body, &[usize::MAX]);
    match (cut, whole) {
        (Ok((cut, used)), Ok((whole, _))) => {
            assert_eq!(cut, whole);
            assert_eq!(cut, model(&body));
            assert!(!contains(&cut, OWN_TEXT.as_str()));
            assert_eq!(used, contains(&body, OWN_TEXT.as_str()));
            if !used {
                assert!(!holds_placeholder(&body));
            }
        }
        (Err(cut), Err(whole)) => {
            assert!(holds_placeholder(&body));
            says_nothing(&cut);
            says_nothing(&whole);
        }
        (cut, whole) => panic!("cut {:?}, whole {:?}", cut.err(), whole.err()),
    }
}

/// The output, and whether a credential is in it.
fn rewrite(surface: Surface, body: &[u8], sizes: &[usize]) -> Result<(Vec<u8>, bool), Refusal> {
    let mut rest = Bytes::copy_from_slice(body);
    let mut rewriter = ANY_PLACE.rewriter(surface);
    let mut out: Vec<Bytes> = Vec::new();
    let mut given = 0;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let piece = rest.split_to(rest.len().min(*size));
        given += piece.len();
        rewriter.push(piece, &Lent, &mut out)?;
        if rewriter.used().is_empty() {
            let held = given - out.iter().map(Bytes::len).sum::<usize>();
            assert!(held < OWN_TEXT.as_str().len());
        }
    }
    rewriter.finish(&mut out)?;
    Ok((out.concat(), !rewriter.used().is_empty()))
}

static ANY_PLACE: LazyLock<RequestRules> = LazyLock::new(|| rules(HeaderPlace::Any));

fn rules(header: HeaderPlace) -> RequestRules {
    let grant = |id: &str, placeholder: &Placeholder, host: &str| CredentialGrant {
        credential_id: id.into(),
        handle: String::new(),
        placeholder: placeholder.clone(),
        hosts: vec![host.parse().expect("a host")],
        anywhere: false,
        methods: Vec::new(),
        paths: Vec::new(),
        places: Places {
            header: header.clone(),
            body: BodyPlace::Replace,
            websocket: true,
        },
        cleartext: false,
    };
    let plan = Arc::new(CredentialPlan {
        environment: vec![
            grant("vcrd_own", &OWN_TEXT, "api.test"),
            grant("vcrd_foreign", &FOREIGN_TEXT, "other.test"),
        ],
        ..CredentialPlan::default()
    });
    let facts = RequestFacts {
        scheme: RequestScheme::Https,
        host: &Host::Name("api.test".into()),
        port: 443,
        method: "POST",
        target: "/",
        overrides_method: false,
    };
    plan.judge(&facts).expect("no placeholder stands in it")
}

fn expand(text: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    for byte in text {
        match *byte {
            OWN => whole.extend_from_slice(OWN_TEXT.as_str().as_bytes()),
            FOREIGN => whole.extend_from_slice(FOREIGN_TEXT.as_str().as_bytes()),
            STOLEN => whole.extend_from_slice(STOLEN_TEXT.as_str().as_bytes()),
            MARKER => whole.extend_from_slice(astrabox_egress::MARKER.as_bytes()),
            byte => whole.push(byte),
        }
    }
    whole
}

/// The slow and plain way to replace.
fn model(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = match rest.strip_prefix(OWN_TEXT.as_str().as_bytes()) {
            Some(behind) => {
                out.extend_from_slice(VALUE);
                behind
            }
            None => {
                out.push(*first);
                behind
            }
        };
    }
    out
}

fn contains(text: &[u8], wanted: &str) -> bool {
    text.windows(wanted.len())
        .any(|window| window == wanted.as_bytes())
}

fn says_nothing(refusal: &Refusal) {
    let said = format!("{refusal} {refusal:?}");
    assert!(!said.contains("V4lue"), "{said}");
}
