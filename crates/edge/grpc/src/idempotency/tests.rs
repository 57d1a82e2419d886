use astrabox_proto::v1;
use prost::Message as _;
use prost_reflect::DescriptorPool;

use super::*;

fn descriptor(name: &str) -> MessageDescriptor {
    let pool = DescriptorPool::decode(astrabox_proto::DESCRIPTOR_SET).expect("it is generated");
    pool.get_message_by_name(&format!("astrabox.v1.{name}"))
        .expect("the message exists")
}

fn create_agent(key: &str, name: &str, metadata: &[(&str, &str)]) -> Vec<u8> {
    v1::CreateAgentRequest {
        spec: Some(v1::AgentSpec {
            name: name.into(),
            metadata: metadata
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..Default::default()
        }),
        idempotency_key: key.into(),
    }
    .encode_to_vec()
}

fn of(bytes: &[u8]) -> RequestDigest {
    digest("/M", &descriptor("CreateAgentRequest"), bytes).expect("it can be decoded")
}

#[test]
fn the_digest_depends_on_every_field_but_the_key_and_not_on_the_encoding() {
    let pairs: Vec<(String, String)> = (0..12)
        .map(|n| (format!("k{n}"), format!("v{n}")))
        .collect();
    let forward: Vec<_> = pairs
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    let backward: Vec<_> = forward.iter().rev().copied().collect();
    let first = of(&create_agent("one", "a", &forward));
    for _ in 0..8 {
        assert_eq!(first, of(&create_agent("two", "a", &backward)));
    }
    assert_ne!(first, of(&create_agent("one", "b", &forward)));
    assert_ne!(first, of(&create_agent("one", "a", &forward[1..])));
    let other_method = digest(
        "/N",
        &descriptor("CreateAgentRequest"),
        &create_agent("one", "a", &forward),
    );
    assert_ne!(first, other_method.expect("it can be decoded"));
}

#[test]
fn neighbouring_texts_do_not_run_together() {
    let content = |texts: &[&str]| {
        let parts = texts
            .iter()
            .map(|text| v1::ContentPart {
                part: Some(v1::content_part::Part::Text((*text).into())),
            })
            .collect();
        let request = v1::SendInputRequest {
            content: parts,
            ..Default::default()
        };
        digest(
            "/M",
            &descriptor("SendInputRequest"),
            &request.encode_to_vec(),
        )
        .expect("it can be decoded")
    };
    assert_ne!(content(&["ab", "c"]), content(&["a", "bc"]));
    assert_ne!(content(&["ab"]), content(&["a", "b"]));
}

#[test]
fn every_mutating_request_takes_a_key_and_no_other_does() {
    let pool = DescriptorPool::decode(astrabox_proto::DESCRIPTOR_SET).expect("it is generated");
    for service in pool.services() {
        for method in service.methods() {
            let reads = ["Get", "List", "Watch", "Read", "Describe"];
            let mutates = !reads.iter().any(|verb| method.name().starts_with(verb));
            assert_eq!(
                takes_key(&method.input()),
                mutates,
                "{}",
                method.full_name()
            );
        }
    }
}

#[test]
fn a_key_is_short_printable_ascii() {
    let digest = RequestDigest("d".into());
    assert_eq!(key("", Some(&digest)).expect("none is fine"), None);
    let longest = "k".repeat(128);
    for good in ["a", "a b", "~", longest.as_str()] {
        let key = key(good, Some(&digest))
            .expect("it is fine")
            .expect("it is given");
        assert_eq!((key.key.as_str(), key.digest.as_str()), (good, "d"));
    }
    for wrong in ["ü", "a\n", "\u{7f}", &"k".repeat(129)] {
        assert!(key(wrong, Some(&digest)).is_err(), "{wrong:?}");
    }
}
