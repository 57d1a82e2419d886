//! A secret does not go into any text or file: it has no `Serialize`.

use astrabox_secrets::Secret;

fn written<T: serde::Serialize>() {}

fn main() {
    written::<Secret>();
    let _ = None::<Secret>;
}
