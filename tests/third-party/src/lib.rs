//! An engine and a model endpoint provider of somebody else, as small as they can be.
//!
//! Invariant: names the crates of two seams and of the types, and nothing that is behind them.
//!
//! `parrot` is an agent program that speaks lines of text: `hello KEY` when it is there, then for every line `say
//! ID TEXT` the lines `heard ID`, `said TEXT` and `over`. Lines that it does not know are kept.

mod models;
mod parrot;
mod protocol;

pub use models::Shelf;
pub use parrot::Parrot;

astrabox_engine::registry::inventory::submit! {
    astrabox_engine::Registration::new("parrot", "repeats what it hears", env!("CARGO_PKG_NAME"), &Parrot)
}

astrabox_model::registry::inventory::submit! {
    astrabox_model::Registration::new::<Shelf>(env!("CARGO_PKG_NAME"))
}
