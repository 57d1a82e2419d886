//! A secret has no `Debug`, so that no log and no panic can show it.

fn show(secret: &astrabox_secrets::Secret) -> String {
    format!("{secret:?}")
}

fn main() {
    let _ = show as fn(_) -> _;
}
