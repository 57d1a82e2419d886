//! A secret is not compared, which would take a time that tells of it.

fn compared<T: PartialEq>() {}

fn main() {
    compared::<astrabox_secrets::Secret>();
}
