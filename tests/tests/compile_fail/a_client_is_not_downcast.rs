//! Behind a conversation nobody finds its engine's own type.

use std::any::Any;

use astrabox_engine::EngineClient;

trait Open: Any {}

fn open(client: Box<dyn EngineClient>) -> Box<dyn Any> {
    client
}

fn main() {
    let _ = open as fn(_) -> _;
    let _ = None::<(&dyn EngineClient, &dyn Open)>;
}
