//! What the fuzzer has found and was given holds on every toolchain.

use std::fs;
use std::path::Path;

#[path = "../../../../fuzz/src/egress/mod.rs"]
#[expect(
    unreachable_pub,
    reason = "the fuzz crate, whose file it is, exports it"
)]
mod egress;

/// Runs a target over its committed corpus, and over what is no corpus at all.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../fuzz/corpus")
        .join(name);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the corpus is committed") {
        target(&fs::read(entry.expect("an entry").path()).expect("a file"));
        count += 1;
    }
    assert!(count >= 12, "{name} has {count} inputs");
    target(b"");
}

#[test]
fn hosts_of_the_corpus_keep_their_promises() {
    replay("host", egress::host);
}

#[test]
fn paths_of_the_corpus_keep_their_promises() {
    replay("path", egress::path);
}

#[test]
fn headers_of_the_corpus_keep_their_promises() {
    replay("header", egress::header);
}

#[test]
fn bodies_of_the_corpus_keep_their_promises() {
    replay("body", egress::body);
}
