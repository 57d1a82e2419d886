//! A registration comes from its constructor, which checks that the adapter has no state.

use astrabox_engine::EngineAdapter;

mod own {
    pub(crate) struct Registration {
        pub(crate) kind: &'static str,
        pub(crate) summary: &'static str,
        pub(crate) origin: &'static str,
        pub(crate) adapter: &'static dyn super::EngineAdapter,
    }
}

fn register(adapter: &'static dyn EngineAdapter) {
    let _ = own::Registration {
        kind: "mine",
        summary: "",
        origin: "",
        adapter,
    };
}

fn main() {
    let _ = register as fn(&'static dyn EngineAdapter);
}
