//! What is written down, and what never is.

use astrabox_egress_proxy::AuditEvent;

use crate::support::client::{Client, ask, connect_to, get, tunnel};
use crate::support::upstream::Upstream;
use crate::support::{Stand, hosts, until};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn ep7_each_decision_and_each_end_is_one_line() {
    let upstream = Upstream::answering(OK).await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    ask(sandbox.proxy, get("good.test", "/")).await;
    ask(sandbox.proxy, connect_to("evil.test:8443")).await;
    ask(sandbox.proxy, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let tunnel = tunnel(sandbox.proxy, "good.test:443").await;
    drop(tunnel);
    until("the end of the tunnel", async || {
        stand.gate.list().await.unwrap()[0].counts.open == 0
    })
    .await;
    let events = stand.finish().await;
    let told: Vec<_> = events.iter().map(tell).collect();
    assert_eq!(
        told,
        [
            "Allow Http GET good.test:80 allowed",
            "End Http GET good.test:80 completed",
            "Deny Tunnel CONNECT evil.test:8443 host_not_allowed",
            "Deny - GET -:0 not_a_proxy_request",
            "Allow Tunnel CONNECT good.test:443 allowed",
            "End Tunnel CONNECT good.test:443 completed",
        ]
    );
    let end = &events[1];
    assert_eq!(end.id, events[0].id);
    assert_eq!(end.address, Some(upstream.address));
    assert_eq!(end.bytes_up, upstream.received()[0].len() as u64);
    assert_eq!(end.bytes_down, OK.len() as u64);
    for event in &events {
        assert_eq!(
            (event.sandbox, event.session),
            (sandbox.id, sandbox.session)
        );
    }
    let mut ids: Vec<_> = events.iter().map(|event| event.id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

fn tell(event: &AuditEvent) -> String {
    format!(
        "{:?} {} {} {}:{} {}",
        event.event,
        event
            .scheme
            .map_or("-".to_owned(), |scheme| format!("{scheme:?}")),
        event.method.as_deref().unwrap_or("-"),
        event.host.as_deref().unwrap_or("-"),
        event.port.unwrap_or_default(),
        event.reason,
    )
}

#[tokio::test]
async fn i1_i3_nothing_secret_is_written_down_or_repeated() {
    let upstream = Upstream::answering(OK).await;
    let stand = Stand::start(hosts(&[("good.test", upstream.address)])).await;
    let sandbox = stand.sandbox(&["good.test"]).await;
    let field = "Authorization: Bearer CANARY\r\nX-CANARY: CANARY";
    let requests = [
        format!("GET http://good.test/CANARY?key=CANARY HTTP/1.1\r\nHost: good.test\r\n{field}\r\n\r\n"),
        format!("GET http://evil.test/CANARY?key=CANARY HTTP/1.1\r\nHost: evil.test\r\n{field}\r\n\r\n"),
        format!("CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n{field}\r\n\r\n"),
        format!("GET http://good.test/CANARY HTTP/1.1\r\nHost: CANARY.test\r\n{field}\r\n\r\n"),
        format!("GET http://CANARY:CANARY@good.test/ HTTP/1.1\r\nHost: good.test\r\n{field}\r\n\r\n"),
        format!("GET /CANARY HTTP/1.1\r\nHost: good.test\r\n{field}\r\n\r\n"),
        format!("CANARY http://good.test/ HTTP/1.1\r\nHost: good.test\r\n{field}\r\n\r\n"),
        format!("CANARY CANARY CANARY HTTP/1.1\r\nHost: good.test\r\n{field}\r\n\r\n"),
        format!("GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n{field}\r\nCANARY\r\n\r\n"),
        format!("CONNECT CANARY@good.test:443 HTTP/1.1\r\nHost: good.test\r\n{field}\r\n\r\n"),
        "POST http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 6\r\n\r\nCANARY".to_owned(),
        "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\nCANARY".to_owned(),
    ];
    for request in &requests {
        let mut client = Client::connect(sandbox.proxy).await;
        client.send(request).await;
        let answer = client.answer().await.unwrap();
        let text = format!("{}{}", answer.head, String::from_utf8_lossy(&answer.body));
        assert!(!text.contains("CANARY"), "{request:?}: {text}");
    }
    let log = stand.finish_raw().await;
    let decisions = log
        .lines()
        .filter(|line| !line.contains("\"event\":\"end\""));
    assert_eq!(decisions.count(), requests.len(), "{log}");
    assert!(!log.contains("CANARY") && !log.contains("canary"), "{log}");
}
