//! Which credential may go with which request.

use astrabox_egress::{
    BodyLength, BodyPlace, BodyTreatment, Doubt, InvalidTarget, Place, RefusalReason,
    RequestScheme, holds_placeholder, overrides_method,
};

use crate::support::{Lent, POST, Request, grant, header, placeholder, plan, stolen};

const HTTP: Request = Request {
    scheme: RequestScheme::Http,
    port: 80,
    ..POST
};

#[test]
fn eg11_eg12_eg13_every_rule_must_allow() {
    use RefusalReason::{Cleartext, Destination, Method, Path};
    let mut narrow = grant("vcrd_a", "api.test");
    narrow.methods = vec!["GET".into(), "POST".into()];
    narrow.paths = vec![
        "/v1/**".parse().expect("a path"),
        "/x/*".parse().expect("a path"),
    ];
    let mut clear = grant("vcrd_a", "api.test");
    clear.cleartext = true;
    let wide = grant("vcrd_a", "api.test");
    let other_port = grant("vcrd_a", "api.test:8443");
    let below = grant("vcrd_a", "*.api.test");
    for (what, grant, request, wanted) in [
        ("all fits", &narrow, POST, Ok(())),
        (
            "another path",
            &narrow,
            Request {
                target: "/v2/x",
                ..POST
            },
            Err(Path),
        ),
        (
            "a sibling",
            &narrow,
            Request {
                target: "/v1-other",
                ..POST
            },
            Err(Path),
        ),
        (
            "a second path",
            &narrow,
            Request {
                target: "/x/y",
                ..POST
            },
            Ok(()),
        ),
        (
            "too deep",
            &narrow,
            Request {
                target: "/x/y/z",
                ..POST
            },
            Err(Path),
        ),
        (
            "upper case",
            &narrow,
            Request {
                target: "/V1/x",
                ..POST
            },
            Err(Path),
        ),
        (
            "another method",
            &narrow,
            Request {
                method: "DELETE",
                ..POST
            },
            Err(Method),
        ),
        (
            "lower case method",
            &narrow,
            Request {
                method: "post",
                ..POST
            },
            Err(Method),
        ),
        (
            "unknown method",
            &narrow,
            Request {
                method: "BREW",
                ..POST
            },
            Err(Method),
        ),
        (
            "override",
            &narrow,
            Request {
                overrides_method: true,
                ..POST
            },
            Err(Method),
        ),
        (
            "override, any method",
            &wide,
            Request {
                overrides_method: true,
                ..POST
            },
            Ok(()),
        ),
        (
            "any method",
            &wide,
            Request {
                method: "BREW",
                ..POST
            },
            Ok(()),
        ),
        (
            "another host",
            &wide,
            Request {
                host: "evil.test",
                ..POST
            },
            Err(Destination),
        ),
        (
            "a subdomain",
            &wide,
            Request {
                host: "x.api.test",
                ..POST
            },
            Err(Destination),
        ),
        ("the apex", &below, POST, Err(Destination)),
        (
            "below",
            &below,
            Request {
                host: "x.api.test",
                ..POST
            },
            Ok(()),
        ),
        (
            "another port",
            &wide,
            Request { port: 8443, ..POST },
            Err(Destination),
        ),
        (
            "its port",
            &other_port,
            Request { port: 8443, ..POST },
            Ok(()),
        ),
        ("not its port", &other_port, POST, Err(Destination)),
        ("cleartext", &wide, HTTP, Err(Cleartext)),
        ("cleartext by consent", &clear, HTTP, Ok(())),
        (
            "cleartext on 443",
            &wide,
            Request { port: 443, ..HTTP },
            Err(Cleartext),
        ),
        (
            "cleartext to another host",
            &clear,
            Request {
                host: "evil.test",
                ..HTTP
            },
            Err(Destination),
        ),
    ] {
        let rules = request.rules(&plan(vec![grant.clone()]));
        let values = Lent::of(&[("vcrd_a", "s3cret")]);
        let sent = placeholder("vcrd_a").to_string();
        let found = header(&rules, "x-key", &sent, &values);
        assert_eq!(found, wanted.map(|()| Some("s3cret".to_owned())), "{what}");
        assert_eq!(
            rules.usable().count(),
            usize::from(wanted.is_ok()),
            "{what}"
        );
    }
}

#[test]
fn eg8_eg9_a_doubtful_target_gets_no_credential() {
    let wide = grant("vcrd_a", "api.test");
    let mut narrow = wide.clone();
    narrow.paths = vec!["/**".parse().expect("a path")];
    let dots = RefusalReason::Target(InvalidTarget::DotSegment);
    for (target, with_paths, without) in [
        (
            "/projects/mine%2F..%2Fvictim%2Fsecrets",
            Err(dots),
            Err(dots),
        ),
        ("/v1/../admin", Err(dots), Err(dots)),
        ("/v1/%252e%252e/admin", Err(dots), Err(dots)),
        (
            "/projects/group%2Fproject",
            Err(RefusalReason::Doubt(Doubt::EscapedSlash)),
            Ok(()),
        ),
        (
            "//v1",
            Err(RefusalReason::Doubt(Doubt::EmptySegment)),
            Ok(()),
        ),
        ("/v1/x", Ok(()), Ok(())),
        (
            "*",
            Err(RefusalReason::Target(InvalidTarget::NotOriginForm)),
            Err(RefusalReason::Target(InvalidTarget::NotOriginForm)),
        ),
    ] {
        for (grant, wanted) in [(&narrow, with_paths), (&wide, without)] {
            let rules = Request { target, ..POST }.rules(&plan(vec![grant.clone()]));
            let values = Lent::of(&[("vcrd_a", "s3cret")]);
            let sent = placeholder("vcrd_a").to_string();
            let found = header(&rules, "x-key", &sent, &values);
            assert_eq!(
                found,
                wanted.map(|()| Some("s3cret".to_owned())),
                "{target}"
            );
            // Without a placeholder it is nobody's business.
            assert_eq!(
                header(&rules, "x-key", "a plain value, long enough", &values),
                Ok(None)
            );
        }
    }
}

#[test]
fn eg7_the_target_that_was_matched_goes_upstream() {
    let wide = grant("vcrd_a", "api.test");
    let mut narrow = wide.clone();
    narrow.paths = vec!["/v1/**".parse().expect("a path")];
    for (what, grant, sent, upstream) in [
        (
            "matched",
            &narrow,
            "/v1/%7ea%c3%a9?q=%7e",
            "/v1/~a%C3%A9?q=%7e",
        ),
        ("not matched", &narrow, "/v2/%7ea%c3%a9", "/v2/%7ea%c3%a9"),
        ("no rule", &wide, "/v1/%7ea%c3%a9", "/v1/%7ea%c3%a9"),
        ("doubtful", &narrow, "/v1/../%7ea", "/v1/../%7ea"),
    ] {
        let rules = POST
            .with_target(sent, &plan(vec![grant.clone()]))
            .expect(what);
        assert_eq!(rules.target(), upstream, "{what}");
    }
}

#[test]
fn eg15_eg16_no_placeholder_stands_in_method_or_target() {
    let plan = plan(vec![grant("vcrd_a", "api.test")]);
    let own = placeholder("vcrd_a").to_string();
    let foreign = stolen("vcrd_a").to_string();
    let escaped: String = own.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let id = Some("vcrd_a".to_owned());
    for (target, reason, credential_id) in [
        (format!("/v1/{own}"), RefusalReason::Place, id.clone()),
        (format!("/v1?key={own}"), RefusalReason::Place, id),
        (format!("/v1?key={foreign}"), RefusalReason::Unknown, None),
        (
            "/v1?key=astrabox-cred-".to_owned(),
            RefusalReason::Unknown,
            None,
        ),
        (format!("/v1?key={escaped}"), RefusalReason::Encoded, None),
        (
            format!("/{}", own.replace('-', "%2d")),
            RefusalReason::Encoded,
            None,
        ),
        (
            format!("/{}", own.replace('-', "%252D")),
            RefusalReason::Encoded,
            None,
        ),
    ] {
        let refusal = POST.with_target(&target, &plan).expect_err(&target);
        assert_eq!(refusal.reason, reason, "{target}");
        assert_eq!(refusal.place, Place::Target, "{target}");
        assert_eq!(refusal.credential_id, credential_id, "{target}");
    }
    let method: &'static str = Box::leak(own.into_boxed_str());
    let refusal = Request { method, ..POST }
        .judged(&plan)
        .expect_err("it is in the method");
    assert_eq!(refusal.place, Place::Method);
}

#[test]
fn eg13_a_placeholder_to_a_foreign_host_is_refused_also_in_the_clear() {
    let plan = plan(vec![grant("vcrd_a", "api.test")]);
    let values = Lent::of(&[("vcrd_a", "s3cret")]);
    for request in [
        Request {
            host: "evil.test",
            ..HTTP
        },
        Request {
            host: "evil.test",
            ..POST
        },
        Request {
            host: "10.0.0.1",
            ..HTTP
        },
    ] {
        let rules = request.rules(&plan);
        let sent = placeholder("vcrd_a").to_string();
        let found = header(&rules, "x-key", &sent, &values);
        assert_eq!(found, Err(RefusalReason::Destination));
        assert_eq!(rules.body(""), Ok(BodyTreatment::Scan));
        assert_eq!(rules.messages(), BodyTreatment::Scan);
    }
    let nothing = POST.rules(&self::plan(Vec::new()));
    let found = header(&nothing, "x-key", stolen("vcrd_a").as_str(), &values);
    assert_eq!(found, Err(RefusalReason::Unknown));
}

#[test]
fn eg14_one_placeholder_of_two_grants() {
    // A13: the one that is eligible is used, two that are make it ambiguous.
    let twin = |id: &str, host: &str| {
        let mut grant = grant(id, host);
        grant.placeholder = placeholder("shared");
        grant
    };
    let sent = placeholder("shared").to_string();
    let values = Lent::of(&[("vcrd_a", "value-a"), ("vcrd_b", "value-b")]);
    let mut named = twin("vcrd_b", "api.test");
    named.places.header = astrabox_egress::HeaderPlace::Named("x-other".into());
    for (what, grants, wanted) in [
        (
            "one host fits",
            vec![twin("vcrd_a", "other.test"), twin("vcrd_b", "api.test")],
            Ok(Some("value-b".to_owned())),
        ),
        (
            "one place fits",
            vec![twin("vcrd_a", "api.test"), named.clone()],
            Ok(Some("value-a".to_owned())),
        ),
        (
            "the wildcard means what is below",
            vec![twin("vcrd_a", "api.test"), twin("vcrd_b", "*.api.test")],
            Ok(Some("value-a".to_owned())),
        ),
        (
            "both fit",
            vec![twin("vcrd_a", "api.test"), twin("vcrd_b", "api.test")],
            Err(RefusalReason::Ambiguous),
        ),
        (
            "one credential twice",
            vec![twin("vcrd_a", "api.test"), twin("vcrd_a", "api.test:443")],
            Ok(Some("value-a".to_owned())),
        ),
        (
            "neither fits, the closer one is told",
            vec![twin("vcrd_a", "other.test"), named],
            Err(RefusalReason::Place),
        ),
    ] {
        let rules = POST.rules(&plan(grants));
        assert_eq!(header(&rules, "x-key", &sent, &values), wanted, "{what}");
    }
}

#[test]
fn eg23_eg24_what_becomes_of_a_body() {
    let replace = grant("vcrd_r", "api.test");
    let mut refuse = grant("vcrd_f", "api.test");
    refuse.places.body = BodyPlace::Refuse;
    refuse.places.websocket = false;
    let mut pass = grant("vcrd_p", "api.test");
    pass.places.body = BodyPlace::Pass;
    pass.methods = vec!["POST".into()];
    pass.paths = vec!["/v1/*".parse().expect("a path")];
    let elsewhere = Request {
        target: "/v2/x",
        ..POST
    };
    let get = Request {
        method: "GET",
        ..POST
    };
    use BodyTreatment::{Replace, Scan, Unseen};
    for (what, grants, request, coding, body, messages) in [
        ("none", vec![], POST, "", Some(Scan), Scan),
        ("refuse", vec![&refuse], POST, "gzip", Some(Scan), Scan),
        (
            "replace",
            vec![&refuse, &replace],
            POST,
            "",
            Some(Replace),
            Replace,
        ),
        (
            "identity",
            vec![&replace],
            POST,
            " Identity ,",
            Some(Replace),
            Replace,
        ),
        ("gzip", vec![&replace], POST, "gzip", None, Replace),
        (
            "two codings",
            vec![&replace],
            POST,
            "identity, br",
            None,
            Replace,
        ),
        (
            "another host",
            vec![&replace],
            Request {
                host: "b.test",
                ..POST
            },
            "br",
            Some(Scan),
            Scan,
        ),
        (
            "pass",
            vec![&replace, &pass],
            POST,
            "gzip",
            Some(Unseen),
            Unseen,
        ),
        (
            "pass, another path",
            vec![&replace, &pass],
            elsewhere,
            "",
            Some(Replace),
            Replace,
        ),
        (
            "pass, another method",
            vec![&refuse, &pass],
            get,
            "",
            Some(Scan),
            Scan,
        ),
    ] {
        let rules = request.rules(&plan(grants.into_iter().cloned().collect()));
        match (rules.body(coding), body) {
            (Ok(found), Some(wanted)) => assert_eq!(found, wanted, "{what}"),
            (Err(refusal), None) => {
                assert_eq!(refusal.reason, RefusalReason::ContentEncoding, "{what}");
                assert_eq!(refusal.credential_id.as_deref(), Some("vcrd_r"), "{what}");
            }
            (found, _) => panic!("{what}: {found:?}"),
        }
        assert_eq!(rules.messages(), messages, "{what}");
    }
}

#[test]
fn eg19_the_length_of_a_body_is_told_anew_only_when_it_may_change() {
    use BodyLength::{Collect, Keep, Stream};
    for (treatment, length, wanted) in [
        (BodyTreatment::Unseen, Some(10), Keep),
        (BodyTreatment::Scan, Some(1000), Keep),
        (BodyTreatment::Scan, Some(100), Collect),
        (BodyTreatment::Scan, None, Keep),
        (BodyTreatment::Replace, None, Keep),
        (BodyTreatment::Replace, Some(0), Keep),
        (BodyTreatment::Replace, Some(1), Collect),
        (BodyTreatment::Replace, Some(100), Collect),
        (BodyTreatment::Replace, Some(101), Stream),
        (BodyTreatment::Replace, Some(u64::MAX), Stream),
    ] {
        assert_eq!(
            treatment.length(length, 100),
            wanted,
            "{treatment:?} {length:?}"
        );
    }
}

#[test]
fn eg12_headers_that_override_the_method_are_known() {
    for (name, wanted) in [
        ("X-HTTP-Method-Override", true),
        ("x-http-method", true),
        ("X-METHOD-OVERRIDE", true),
        ("x-method", false),
        ("content-type", false),
    ] {
        assert_eq!(overrides_method(name), wanted, "{name}");
    }
}

#[test]
fn eg16_a_text_without_rules_is_looked_through_too() {
    // B12: the head of a CONNECT request.
    let own = placeholder("vcrd_a").to_string();
    for (text, wanted) in [
        (format!("X: {own}"), true),
        (own.replace('-', "%2d"), true),
        ("astrabox-cred".to_owned(), false),
        (String::new(), false),
    ] {
        assert_eq!(holds_placeholder(text.as_bytes()), wanted, "{text}");
    }
}

#[test]
fn a_refusal_names_the_credential_and_never_a_value() {
    let plan = plan(vec![grant("vcrd_a", "api.test")]);
    let values = Lent::of(&[("vcrd_a", "s3cret\nx: y")]);
    let rules = POST.rules(&plan);
    let sent = placeholder("vcrd_a").to_string();
    let Err(refusal) = rules.header("x-key", sent.as_bytes(), &values) else {
        panic!("the value holds a line feed");
    };
    assert_eq!(refusal.reason, RefusalReason::Unsafe);
    let text = format!("{refusal} {refusal:?}");
    assert!(
        text.contains("vcrd_a") && text.contains("a header"),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
}
