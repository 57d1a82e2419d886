//! Placeholders in headers.

use astrabox_egress::{
    BodyPlace, HeaderPlace, InvalidValue, MOST_VALUE_BYTES, Place, RefusalReason, RequestRules,
    check_value,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};

use crate::support::{Lent, POST, Request, grant, header, placeholder, plan, stolen};

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

/// The rules for a request for which one credential may be used in these headers.
fn rules(place: HeaderPlace) -> RequestRules {
    let mut grant = grant("vcrd_a", "api.test");
    grant.places.header = place;
    grant.places.body = BodyPlace::Refuse;
    POST.rules(&plan(vec![grant]))
}

#[test]
fn eg15_a_credential_stands_in_its_headers_only() {
    let sent = placeholder("vcrd_a").to_string();
    let values = Lent::of(&[("vcrd_a", "s3cret")]);
    let named = || HeaderPlace::Named("x-api-key".into());
    let user = || HeaderPlace::Basic {
        username: "git".into(),
    };
    let refused = || Err(RefusalReason::Place);
    let bearer = format!("Bearer {sent}");
    let cookie = format!("a=b; token={sent}; c=d");
    let twice = format!("{sent},{sent}x");
    let undecoded = format!("git:{sent}");
    for (place, name, value, wanted) in [
        (
            HeaderPlace::Any,
            "authorization",
            bearer.as_str(),
            Ok("Bearer s3cret"),
        ),
        (HeaderPlace::Any, "X-Anything", &sent, Ok("s3cret")),
        (
            HeaderPlace::Any,
            "cookie",
            &cookie,
            Ok("a=b; token=s3cret; c=d"),
        ),
        (HeaderPlace::Any, "referer", &twice, Ok("s3cret,s3cretx")),
        (HeaderPlace::Any, "host", &sent, refused()),
        (HeaderPlace::Any, "Connection", &sent, refused()),
        (HeaderPlace::Any, "Content-Length", &sent, refused()),
        (HeaderPlace::Any, "Transfer-Encoding", &sent, refused()),
        (HeaderPlace::Refuse, "x-api-key", &sent, refused()),
        (named(), "x-api-key", &sent, Ok("s3cret")),
        (named(), "X-Api-Key", &sent, Ok("s3cret")),
        (named(), "x-api-key2", &sent, refused()),
        (named(), "authorization", &bearer, refused()),
        (user(), "authorization", &bearer, refused()),
        (user(), "authorization", &sent, refused()),
        (user(), "authorization", &undecoded, refused()),
        (user(), "x-api-key", &sent, refused()),
    ] {
        let shown = format!("{place:?} {name}");
        let found = header(&rules(place), name, value, &values);
        assert_eq!(found, wanted.map(|text| Some(text.to_owned())), "{shown}");
    }
}

#[test]
fn eg17_basic_credentials_are_decoded_and_encoded() {
    let sent = placeholder("vcrd_a").to_string();
    let values = Lent::of(&[("vcrd_a", "s3cret:\u{e4}")]);
    let named = |name: &str| HeaderPlace::Named(name.into());
    let user = |username: &str| HeaderPlace::Basic {
        username: username.into(),
    };
    let password = format!("git:{sent}");
    let done = || Ok("git:s3cret:\u{e4}");
    let refused = || Err(RefusalReason::Place);
    for (place, name, text, wanted) in [
        (HeaderPlace::Any, "authorization", password.clone(), done()),
        (
            HeaderPlace::Any,
            "Authorization",
            format!("{sent}:"),
            Ok("s3cret:\u{e4}:"),
        ),
        (
            HeaderPlace::Any,
            "proxy-authorization",
            password.clone(),
            done(),
        ),
        (
            HeaderPlace::Any,
            "authorization",
            format!("git:x{sent}y"),
            Ok("git:xs3cret:\u{e4}y"),
        ),
        (
            named("authorization"),
            "authorization",
            password.clone(),
            done(),
        ),
        (
            named("x-api-key"),
            "authorization",
            password.clone(),
            refused(),
        ),
        (
            HeaderPlace::Refuse,
            "authorization",
            password.clone(),
            refused(),
        ),
        (user("git"), "authorization", password.clone(), done()),
        (
            user("git"),
            "proxy-authorization",
            password.clone(),
            refused(),
        ),
        (user("other"), "authorization", password.clone(), refused()),
        (user("gi"), "authorization", password.clone(), refused()),
        (
            user("git"),
            "authorization",
            format!("git:x{sent}"),
            refused(),
        ),
        (
            user("git"),
            "authorization",
            format!("git:{sent}x"),
            refused(),
        ),
        (
            user("git"),
            "authorization",
            format!("{sent}:git"),
            refused(),
        ),
        (
            user("git"),
            "authorization",
            format!("{sent}:{sent}"),
            refused(),
        ),
        (
            user(""),
            "authorization",
            format!(":{sent}"),
            Ok(":s3cret:\u{e4}"),
        ),
        (
            HeaderPlace::Any,
            "authorization",
            format!("git:{}", stolen("vcrd_a")),
            Err(RefusalReason::Unknown),
        ),
        (
            HeaderPlace::Any,
            "authorization",
            format!("git:{}", sent.replace('-', "%2D")),
            Err(RefusalReason::Encoded),
        ),
        // Nothing but a coding of a coding: it is seen, and not put in.
        (
            HeaderPlace::Any,
            "authorization",
            STANDARD.encode(&password),
            Err(RefusalReason::Encoded),
        ),
    ] {
        let shown = format!("{place:?} {name} {text}");
        let found = header(&rules(place), name, &basic(&text), &values);
        assert_eq!(found, wanted.map(|text| Some(basic(text))), "{shown}");
    }
}

#[test]
fn eg17_basic_is_read_as_clients_write_it() {
    let text = format!("git:{}", placeholder("vcrd_a"));
    let values = Lent::of(&[("vcrd_a", "s3cret")]);
    let rules = rules(HeaderPlace::Any);
    // The last digit has two bits to spare.
    let mut stray = STANDARD_NO_PAD.encode(&text).into_bytes();
    *stray.last_mut().expect("it is long") += 1;
    for value in [
        basic(&text),
        format!("basic  {}", STANDARD.encode(&text)),
        format!(" BASIC {} ", STANDARD.encode(&text)),
        format!("Basic {}", STANDARD_NO_PAD.encode(&text)),
        format!("Basic {}", String::from_utf8(stray).expect("it is ASCII")),
    ] {
        let found = header(&rules, "authorization", &value, &values);
        assert_eq!(found, Ok(Some(basic("git:s3cret"))), "{value}");
    }
    // Without a placeholder every byte stays, however it is coded.
    for value in [
        "Basic dXNlcjpwYXNzd29yZA",
        "Basic !!!!!!!!!!!!!!!!!!!",
        "Basic",
        "Basicdm",
        "B",
    ] {
        assert_eq!(header(&rules, "authorization", value, &values), Ok(None));
    }
    // Another alphabet does not decode, and is seen all the same.
    let strange = format!("Basic {}", URL_SAFE.encode(format!("\u{ff}~?{text}")));
    let found = header(&rules, "authorization", &strange, &values);
    assert_eq!(found, Err(RefusalReason::Encoded), "{strange}");
}

#[test]
fn eg16_escaped_placeholders_are_refused_in_headers() {
    let own = placeholder("vcrd_a").to_string();
    let values = Lent::of(&[("vcrd_a", "s3cret")]);
    let rules = rules(HeaderPlace::Any);
    let each = |escape: fn(u8) -> String| own.bytes().map(escape).collect::<String>();
    let base64 = |before: &str| STANDARD.encode(format!("{before}{own}"));
    for value in [
        each(|byte| format!("%{byte:02X}")),
        each(|byte| format!("%{byte:02x}")),
        each(|byte| format!("%25{byte:02x}")),
        each(|byte| format!("\\u{byte:04x}")),
        each(|byte| format!("\\x{byte:02x}")),
        each(|byte| format!("&#{byte};")),
        each(|byte| format!("&#x{byte:x};")),
        each(|byte| format!("&#x{byte:06X};")),
        format!("%61{}", &own[1..]),
        format!("a\\u0073{}", &own[2..]),
        format!("key={}", own.replace('-', "&#45;")),
        own.replace("cred-", "cred%2d"),
        own.replacen("x-", "\\u0078%2D", 1),
        base64(""),
        base64("x"),
        base64("xy"),
        format!("Bearer {}", base64("token=")),
        format!("{own} {}", own.replace('-', "%2d")),
    ] {
        let found = header(&rules, "x-key", &value, &values);
        assert_eq!(found, Err(RefusalReason::Encoded), "{value}");
    }
    let wide: Vec<u8> = own.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let found = rules.header("x-key", &wide, &values).map(|_| ());
    assert_eq!(
        found.map_err(|refusal| refusal.reason),
        Err(RefusalReason::Encoded)
    );
    for value in [
        "astrabox-cred",
        "astrabox%2dcre",
        "%61%73%74%72%61%62%6f%78%2d%63%72%65%64",
        "100% & more \\ \\u00 &#; &#x; %zz %",
        "astrabox-cred&#45",
        "astrabox-cred&#451;",
        // In base64: the marker but for its first or its last character.
        "YXN0cmFib3gtY3JlZCBhYmM=",
        "eHFzdHJhYm94LWNyZWQtYWJj",
        "eHlBc3RyYWJveC1jcmVkLWFiYw==",
        "eHlhc3RyYWJveC1jcmVkLmFiYw==",
        "ASTRABOX-CRED-AAAA",
    ] {
        assert_eq!(header(&rules, "x-key", value, &values), Ok(None), "{value}");
    }
}

#[test]
fn eg13_what_is_no_placeholder_of_the_sandbox_is_refused() {
    let own = placeholder("vcrd_a").to_string();
    let values = Lent::of(&[("vcrd_a", "s3cret")]);
    let rules = rules(HeaderPlace::Any);
    for value in [
        stolen("vcrd_a").to_string(),
        placeholder("vcrd_unknown").to_string(),
        own[..own.len() - 1].to_owned(),
        "astrabox-cred-".to_owned(),
        format!("{own} {}", stolen("vcrd_a")),
        format!("astrabox-cred-{own}"),
    ] {
        let found = header(&rules, "x-key", &value, &values);
        assert_eq!(found, Err(RefusalReason::Unknown), "{value}");
    }
    // F6: all are of one length, so none begins another one; what follows is text.
    let found = header(&rules, "x-key", &format!("{own}abc"), &values);
    assert_eq!(found, Ok(Some("s3cretabc".to_owned())));
}

#[test]
fn eg15_no_placeholder_stands_in_a_header_name_or_trailer() {
    let own = placeholder("vcrd_a").to_string();
    let values = Lent::of(&[("vcrd_a", "s3cret")]);
    let rules = rules(HeaderPlace::Any);
    for name in [
        own.clone(),
        own.to_uppercase(),
        format!("x-{own}"),
        STANDARD_NO_PAD.encode(&own),
    ] {
        let Err(refusal) = rules.header(&name, b"x", &values) else {
            panic!("{name} was let through");
        };
        assert_eq!(refusal.place, Place::HeaderName);
        assert_eq!(
            rules.trailer(&name, b"x").expect_err(&name).place,
            Place::HeaderName
        );
    }
    for (value, reason) in [
        (own.clone(), RefusalReason::Place),
        (own.replace('-', "%2d"), RefusalReason::Encoded),
        (stolen("vcrd_a").to_string(), RefusalReason::Unknown),
    ] {
        let refusal = rules.trailer("x-end", value.as_bytes()).expect_err(&value);
        assert_eq!((refusal.place, refusal.reason), (Place::Trailer, reason));
    }
    assert_eq!(rules.trailer("grpc-status", b"0"), Ok(()));
}

#[test]
fn eg18_what_is_put_in_is_not_looked_at_again() {
    let own = placeholder("vcrd_a").to_string();
    let other = placeholder("vcrd_b").to_string();
    let plan = plan(vec![
        grant("vcrd_a", "api.test"),
        grant("vcrd_b", "api.test"),
    ]);
    let rules = POST.rules(&plan);
    for value in [
        other.clone(),
        own.clone(),
        "astrabox-cred-".into(),
        own.replace('-', "%2d"),
    ] {
        let values = Lent::of(&[("vcrd_a", &value), ("vcrd_b", "other")]);
        let found = header(&rules, "x-key", &format!("<{own}>"), &values);
        assert_eq!(found, Ok(Some(format!("<{value}>"))));
    }
    // Nor does a value complete what stands around it.
    let values = Lent::of(&[("vcrd_a", "strabox-cred-x")]);
    let found = header(&rules, "x-key", &format!("a{own}"), &values);
    assert_eq!(found, Ok(Some("astrabox-cred-x".to_owned())));
}

#[test]
fn eg20_values_that_would_break_a_header_are_refused() {
    let sent = placeholder("vcrd_a").to_string();
    let rules = rules(HeaderPlace::Any);
    let long = vec![b'x'; MOST_VALUE_BYTES + 1];
    for (value, why) in [
        (&b""[..], InvalidValue::Empty),
        (b"a\rb", InvalidValue::Control),
        (b"a\nb", InvalidValue::Control),
        (b"a\0b", InvalidValue::Control),
        (b"a\tb", InvalidValue::Control),
        (b"a\x7f", InvalidValue::Control),
        (&long, InvalidValue::TooLong),
    ] {
        assert_eq!(check_value(value), Err(why));
        let values = Lent::bytes([("vcrd_a", value)]);
        let found = header(&rules, "x-key", &sent, &values);
        assert_eq!(found, Err(RefusalReason::Unsafe));
    }
    for value in [&b"x"[..], b"a b", "\u{e4}\u{20ac}".as_bytes(), &long[1..]] {
        assert_eq!(check_value(value), Ok(()));
    }
    let found = header(&rules, "x-key", &sent, &Lent::default());
    assert_eq!(found, Err(RefusalReason::Unavailable));
}

#[test]
fn the_credentials_that_were_used_are_named() {
    let plan = plan(vec![
        grant("vcrd_a", "api.test"),
        grant("vcrd_b", "api.test"),
    ]);
    let rules = Request {
        method: "GET",
        ..POST
    }
    .rules(&plan);
    let values = Lent::of(&[("vcrd_a", "one"), ("vcrd_b", "two")]);
    let (a, b) = (placeholder("vcrd_a"), placeholder("vcrd_b"));
    let replaced = rules
        .header("x-key", format!("{b}{a}{b}").as_bytes(), &values)
        .expect("both may be used")
        .expect("both are there");
    assert_eq!(replaced.used, ["vcrd_b", "vcrd_a"]);
    assert_eq!(&replaced.value[..], b"twoonetwo");
}
