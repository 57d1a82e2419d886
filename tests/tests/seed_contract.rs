//! The seed contract over everything that the product links.

#[path = "../src/bin/conformance/tree.rs"]
mod tree;

use std::collections::BTreeSet;

use astrabox_builtin as _;
use astrabox_conformance::linked::Linked;
use astrabox_conformance::{Filter, seed};

fn linked() -> Linked {
    Linked::new().expect("every name is registered once")
}

#[test]
fn the_contracts_and_the_engines_sources_are_as_pinned() {
    let report = tree::report("seed contract, sources", tree::source_cases());
    assert_eq!(report.passed(), 4, "{report}");
    report.assert_passed();
}

#[test]
fn every_adapter_of_the_tree_is_linked_and_nothing_else() {
    tree::report("linked", tree::linked_cases(&linked().origins())).assert_passed();
}

#[test]
fn an_adapter_that_is_not_named_is_missed() {
    let linked = linked();
    let origins = linked.origins();
    for missing in &origins {
        let fewer: BTreeSet<_> = origins.iter().copied().filter(|o| o != missing).collect();
        let report = tree::report("linked", tree::linked_cases(&fewer));
        assert_eq!(report.failures(), ["every_adapter_of_the_tree_is_linked"]);
        assert!(report.to_string().contains(missing), "{report}");
    }
    let more: BTreeSet<_> = origins.iter().copied().chain(["stranger"]).collect();
    let report = tree::report("linked", tree::linked_cases(&more));
    assert_eq!(report.failures(), ["nothing_else_is_linked"]);
}

#[tokio::test]
async fn every_linked_engine_starts_as_far_as_every_linked_provider() {
    let linked = linked();
    let providers: Vec<_> = linked.sandboxes.names().map(str::to_owned).collect();
    assert!(!providers.is_empty(), "no sandbox provider is linked");
    assert!(!linked.engines.is_empty(), "no engine is linked");
    for engine in linked.engines.iter() {
        seed::suite(*engine, providers.clone())
            .run(&Filter::all())
            .await
            .assert_passed();
    }
}
