//! The suites as tests of somebody else's crate, one line each.

use astrabox_conformance::doubles::{Program, ProgramIo, program};
use astrabox_conformance::engine::{Deed, EngineFixture, Quirk};
use astrabox_conformance::model::RegisteredModels;
use astrabox_conformance::sandbox::MemoryFixture;
use serde_json::json;
use third_party::{Parrot, Shelf};

astrabox_conformance::engine_conformance!(the_adapter_conforms, Parrot);
astrabox_conformance::engine_conformance!(whole_conversations_conform, Parrot, Cage);
astrabox_conformance::provider_conformance!(MemoryFixture::new());
astrabox_conformance::model_conformance!(RegisteredModels {
    registration: astrabox_model::Registration::new::<Shelf>("third-party"),
    configured: Some(json!({"base_url": "https://models.test"})),
    plaintext: Some(json!({"base_url": "http://models.test", "require_https": true})),
    model: "any".to_owned(),
});

/// The program of `parrot`.
struct Cage;

impl EngineFixture for Cage {
    fn program(&self, quirk: Quirk) -> Option<Program> {
        Some(program(move |io| live(io, quirk)))
    }

    fn prompt(&self, deed: Deed, word: &str) -> Option<String> {
        match deed {
            Deed::Answer => Some(format!("answer {word}")),
            Deed::Hold => Some(format!("hold {word}")),
            Deed::Die => Some(format!("die {word}")),
            Deed::Strange => Some(format!("squawk {word}")),
            Deed::Ask | Deed::Child | Deed::Request => None,
        }
    }
}

async fn live(mut io: ProgramIo, quirk: Quirk) -> i32 {
    let resumed = io
        .argv
        .iter()
        .find_map(|part| part.strip_prefix("--resume="));
    io.print(match (resumed, quirk) {
        (Some(key), Quirk::Faithful) => format!("hello {key}\n"),
        (Some(_), Quirk::OtherConversation) => "hello nobody\n".to_owned(),
        (None, _) => "hello polly\n".to_owned(),
    });
    while let Some(line) = io.line().await {
        let mut words = line.splitn(4, ' ');
        if words.next() != Some("say") {
            continue;
        }
        let [id, deed, word] =
            [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
        io.print(format!("heard {id}\n"));
        match deed {
            "hold" => {
                io.print(format!("said {word}\n"));
                while io.line().await.is_some_and(|line| line != "hush") {}
                io.print("hush\n");
            }
            "die" => {
                io.print(format!("said {word}"));
                io.eprint("a cat\n");
                return 9;
            }
            "squawk" => io.print(format!("squawk {word}\nover\n")),
            _ => io.print(format!("said {word} and {word} again \u{1f99c}\nover\n")),
        }
    }
    0
}

#[test]
fn what_is_registered_is_found_by_its_name() {
    let linked = astrabox_conformance::linked::Linked::new().expect("every name is there once");
    assert!(linked.engines.get("parrot").is_some());
    assert!(linked.models.get("shelf").is_some());
    assert!(linked.origins().into_iter().eq(["third-party"]));
}
