//! Behind the contract nobody finds the manager: the contract has no way to `Any`.

use std::any::Any;

use astrabox_startup::EnginePlatform;

trait Open: Any {}

fn open(platform: &'static dyn Open) -> &'static dyn Any {
    platform
}

fn main() {
    let _ = open as fn(_) -> _;
    let _ = None::<(&dyn EnginePlatform, &dyn Open)>;
}
