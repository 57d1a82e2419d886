//! Where a credential may stand, and that what is refused leaves nothing upstream.

use astrabox_egress::{BodyPlace, HeaderPlace};
use astrabox_egress_proxy::AuditKind;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::client::{Client, ask};
use crate::support::credentials::{CANARY, grant, in_body, placeholder, stand_for};
use crate::support::secure::{H1, Root, Secure};
use crate::support::upstream::Upstream;
use crate::support::{OK, Sandbox, Stand, hosts};

/// Sends each request on a connection of its own and gives what it came to.
async fn outcome(stand: &Stand, sandbox: &Sandbox, host: &str, request: &str) -> (u16, String) {
    let trusting = stand.trusting(&[H1]).await;
    let authority = format!("{host}:443");
    let mut client = trusting.client(sandbox.proxy, &authority, host).await;
    client.send(request).await;
    let answer = client.answer().await.unwrap();
    let reason = answer.reason().unwrap_or_default().to_owned();
    (answer.status, reason)
}

#[tokio::test]
async fn f_a_placeholder_that_may_not_stand_there_is_refused_and_nothing_goes_upstream() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let mut named = grant("named", &["good.test"]);
    named.places.header = HeaderPlace::Named("x-key".to_owned());
    let mut basic = grant("basic", &["good.test"]);
    basic.places.header = HeaderPlace::Basic {
        username: "git".to_owned(),
    };
    let elsewhere = grant("elsewhere", &["other.test"]);
    let mut methods = grant("methods", &["good.test"]);
    methods.methods = vec!["GET".to_owned()];
    let mut paths = grant("paths", &["good.test"]);
    paths.paths = vec!["/v1/**".parse().unwrap()];
    let grants = [named, basic, elsewhere, methods, paths];
    stand.grant(&sandbox, &grants, CANARY).await;
    let p = placeholder;
    let get = |path: &str, fields: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: good.test\r\n{fields}\r\n\r\n")
    };
    let x = |id: &str| format!("X-Key: {}", p(id));
    let coded = |text: String| format!("Authorization: Basic {}", STANDARD.encode(text));
    let escaped = p("named").replacen('a', "%61", 1);
    let stolen = format!("X-Key: {}", p("of another sandbox"));
    for (request, reason) in [
        (
            get("/", &format!("Cookie: k={}", p("named"))),
            "credential_place",
        ),
        (get("/", &format!("{}: v", p("named"))), "credential_place"),
        (get(&format!("/{}", p("named")), "X: y"), "credential_place"),
        (
            get(&format!("/?k={}", p("named")), "X: y"),
            "credential_place",
        ),
        (
            get(
                "/",
                &format!("Referer: https://good.test/?k={}", p("named")),
            ),
            "credential_place",
        ),
        (
            get("/", &format!("User-Agent: {}", p("named"))),
            "credential_place",
        ),
        (get("/", &format!("X-Key: {escaped}")), "credential_encoded"),
        (get(&format!("/?k={escaped}"), "X: y"), "credential_encoded"),
        (
            get("/", &coded(format!("{}:x", p("named")))),
            "credential_place",
        ),
        (
            get("/", &coded(format!("root:{}", p("basic")))),
            "credential_place",
        ),
        // A11, H6: another host's, and another sandbox's.
        (get("/", &x("elsewhere")), "credential_destination"),
        (get("/", &stolen), "credential_unknown"),
        (
            get("/v1", &x("methods")).replace("GET", "POST"),
            "credential_method",
        ),
        (
            get(
                "/v1",
                &format!("{}\r\nX-HTTP-Method-Override: DELETE", x("methods")),
            ),
            "credential_method",
        ),
        (get("/v2", &x("paths")), "credential_path"),
        (get("/v10/x", &x("paths")), "credential_path"),
        (get("/v1/../admin", &x("paths")), "credential_target"),
        (get("/v1/%2e%2e/admin", &x("paths")), "credential_target"),
        (
            get("/v1/%252e%252e/admin", &x("paths")),
            "credential_target",
        ),
        (get("/v1/..%2Fadmin", &x("paths")), "credential_target"),
        (get("/v1/a%2Fb", &x("paths")), "credential_target"),
        (get("/v1/a%5cb", &x("paths")), "credential_target"),
        (get("/v1\\admin", &x("paths")), "credential_target"),
        (get("/v1//x", &x("paths")), "credential_target"),
        (get("/v1/..;/admin", &x("paths")), "credential_target"),
        (get("/v1/x;a=b", &x("paths")), "credential_target"),
        (get("/v1/%ff", &x("paths")), "credential_target"),
        (get("/v1/%c0%ae", &x("paths")), "credential_target"),
        (get("/v1/%00", &x("paths")), "credential_target"),
    ] {
        let got = outcome(&stand, &sandbox, "good.test", &request).await;
        assert_eq!(got, (403, reason.to_owned()), "{request:?}");
    }
    assert_eq!(upstream.all(), "");
    let right = [
        (get("/", &x("named")), format!("X-Key: {CANARY}\r\n")),
        (
            get("/", &coded(format!("git:{}", p("basic")))),
            format!(
                "Authorization: Basic {}\r\n",
                STANDARD.encode(format!("git:{CANARY}"))
            ),
        ),
        (get("/", &x("methods")), format!("X-Key: {CANARY}\r\n")),
        // E8: the canonical form goes upstream.
        (
            get("/v1/%7ex?a=1&a=2&b=%26+c", &x("paths")),
            "GET /v1/~x?a=1&a=2&b=%26+c HTTP/1.1\r\n".to_owned(),
        ),
    ];
    for (request, sent) in &right {
        let got = outcome(&stand, &sandbox, "good.test", request).await;
        assert_eq!(got.0, 200, "{request:?}");
        let last = upstream.received().pop().unwrap();
        assert!(last.contains(sent), "{last:?}");
    }
    for event in stand.finish().await {
        let line = serde_json::to_string(&event).unwrap();
        assert!(
            !line.contains(CANARY) && !line.contains("admin") && !line.contains("%2"),
            "{line}"
        );
        if event.event == AuditKind::Deny && event.reason == "credential_destination" {
            assert_eq!(event.credentials, ["elsewhere"]);
        }
    }
}

#[tokio::test]
async fn a13_two_credentials_that_both_fit_are_refused_and_one_that_fits_is_taken() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test", "other.test"]).await;
    let known = [("good.test", &upstream), ("other.test", &upstream)];
    let stand = stand_for(&root, &known).await;
    let sandbox = stand.sandbox(&[]).await;
    let one = grant("one", &["good.test", "other.test"]);
    let mut other = grant("other", &["good.test"]);
    other.placeholder = one.placeholder.clone();
    stand.grant(&sandbox, &[one, other], CANARY).await;
    let key = placeholder("one");
    for (host, wanted) in [
        ("good.test", (403, "credential_ambiguous")),
        ("other.test", (200, "")),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: {key}\r\n\r\n");
        let got = outcome(&stand, &sandbox, host, &request).await;
        assert_eq!((got.0, &*got.1), wanted, "{host}");
    }
}

#[tokio::test]
async fn b11_plain_http_is_looked_through_as_well_and_gets_values_only_where_its_owner_said_so() {
    let upstream = Upstream::answering(OK).await;
    let stand = Stand::start(hosts(&[
        ("good.test", upstream.address),
        ("open.test", upstream.address),
    ]))
    .await;
    let sandbox = stand.sandbox(&["good.test", "open.test"]).await;
    let mut open = in_body(grant("open", &["open.test"]), BodyPlace::Replace);
    open.cleartext = true;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"]), open], CANARY)
        .await;
    let get = |host: &str, field: &str| {
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX: {field}\r\n\r\n")
    };
    for (request, reason) in [
        (
            get("good.test", &placeholder("key")),
            "credential_cleartext",
        ),
        (
            get("good.test", &placeholder("open")),
            "credential_destination",
        ),
        (
            get("open.test", &placeholder("stolen")),
            "credential_unknown",
        ),
        (get("evil.test", &placeholder("key")), "host_not_allowed"),
        (
            get("good.test", &placeholder("key").replacen('a', "\\u0061", 1)),
            "credential_encoded",
        ),
    ] {
        let answer = ask(sandbox.proxy, &request).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (403, Some(reason)),
            "{request:?}"
        );
    }
    // A body with a placeholder is found out before a byte goes upstream.
    let body = format!("a={}", placeholder("key"));
    let post = format!(
        "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = ask(sandbox.proxy, &post).await;
    assert_eq!(
        (answer.status, answer.reason()),
        (403, Some("credential_cleartext"))
    );
    assert_eq!(upstream.received().concat(), "");
    let answer = ask(sandbox.proxy, get("open.test", &placeholder("open"))).await;
    assert_eq!(answer.status, 200);
    let sent =
        format!("GET / HTTP/1.1\r\nhost: open.test\r\nX: {CANARY}\r\nconnection: close\r\n\r\n");
    assert_eq!(upstream.received().concat(), sent);
}

#[tokio::test]
async fn h8_a_credential_without_a_value_refuses_the_requests_that_use_it() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    let plan = astrabox_egress::CredentialPlan {
        mcp: vec![grant("key", &["good.test"])],
        ..astrabox_egress::CredentialPlan::default()
    };
    let none = astrabox_sandbox::CredentialValues::default();
    astrabox_sandbox::EgressCredentials::set_credentials(&stand.gate, sandbox.id, plan, none)
        .await
        .unwrap();
    let request = |field: &str| format!("GET / HTTP/1.1\r\nHost: good.test\r\nX: {field}\r\n\r\n");
    let got = outcome(&stand, &sandbox, "good.test", &request(&placeholder("key"))).await;
    assert_eq!(got, (403, "credential_unavailable".to_owned()));
    assert_eq!(upstream.all(), "");
    let got = outcome(&stand, &sandbox, "good.test", &request("y")).await;
    assert_eq!(got.0, 200);
    // F6: a value that could begin a header of its own.
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], "a\r\nX-Evil: b")
        .await;
    let got = outcome(&stand, &sandbox, "good.test", &request(&placeholder("key"))).await;
    assert_eq!(got, (403, "credential_unsafe".to_owned()));
    assert!(!upstream.all().contains("X-Evil"));
}

#[tokio::test]
async fn f6_a_value_that_holds_a_placeholder_is_not_looked_at_again() {
    let root = Root::new();
    let upstream = Secure::answering(&root, &["good.test"]).await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&[]).await;
    let value = format!("x{}x", placeholder("key"));
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], &value)
        .await;
    let request = format!(
        "GET / HTTP/1.1\r\nHost: good.test\r\nX: {}\r\n\r\n",
        placeholder("key")
    );
    assert_eq!(
        outcome(&stand, &sandbox, "good.test", &request).await.0,
        200
    );
    assert!(upstream.all().contains(&format!("X: {value}\r\n")));
}

#[tokio::test]
async fn g_what_the_upstream_answers_comes_back_untouched_but_for_what_leads_away() {
    let root = Root::new();
    // An echo, a redirect and an advert all at once; the value it echoes is the upstream's own affair to keep.
    let answer = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://evil.test/?k={}\r\nalt-svc: h3=\":443\"\r\n\
         Set-Cookie: a=b\r\nX-AstraBox-Egress-Reason: none\r\ncontent-length: 4\r\n\r\n\x1f\u{0}ab",
        placeholder("key")
    );
    let upstream = Secure::start(&root, &["good.test"], &[H1], move |mut conversation| {
        let answer = answer.clone();
        async move {
            conversation.request().await?;
            conversation
                .write("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
                .await?;
            conversation.write(answer).await?;
            conversation.drain().await
        }
    })
    .await;
    let stand = stand_for(&root, &[("good.test", &upstream)]).await;
    let sandbox = stand.sandbox(&["evil.test"]).await;
    stand
        .grant(&sandbox, &[grant("key", &["good.test"])], CANARY)
        .await;
    let trusting = stand.trusting(&[H1]).await;
    let mut client = trusting
        .client(sandbox.proxy, "good.test:443", "good.test")
        .await;
    client
        .send("GET / HTTP/1.1\r\nHost: good.test\r\n\r\n")
        .await;
    let answer = client.answer().await.unwrap();
    assert_eq!(
        answer.head,
        format!(
            "HTTP/1.1 302 Found\r\nLocation: http://evil.test/?k={}\r\nSet-Cookie: a=b\r\n\
             content-length: 4\r\n\r\n",
            placeholder("key")
        )
    );
    assert_eq!(answer.body, b"\x1f\0ab");
    // G3: the hop that a client makes of it is judged by itself.
    let mut hop = Client::connect(sandbox.proxy).await;
    let field = placeholder("key");
    hop.send(format!(
        "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nX: {field}\r\n\r\n"
    ))
    .await;
    let denied = hop.answer().await.unwrap();
    assert!(matches!(denied.status, 403 | 502), "{denied:?}");
}
