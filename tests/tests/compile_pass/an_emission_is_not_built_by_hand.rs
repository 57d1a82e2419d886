//! Only the seam builds emissions: their one field is private.

use astrabox_engine::EmissionKind;

mod own {
    pub(crate) struct Emission {
        pub(crate) kind: super::EmissionKind,
    }
}

fn main() {
    let kind = EmissionKind::BackgroundOpened;
    let _ = own::Emission { kind };
}
