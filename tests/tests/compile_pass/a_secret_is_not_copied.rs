//! A secret is in one place: it has no `Clone`.

fn copied<T: Clone>() {}

fn main() {
    copied::<astrabox_secrets::SecretName>();
}
