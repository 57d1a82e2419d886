//! What a caller shows holds a token, and has no `Debug`.

fn show(evidence: &astrabox_identity::Actor) -> String {
    format!("{evidence:?}")
}

fn main() {
    let _ = show as fn(_) -> _;
}
