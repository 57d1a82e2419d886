//! What the platform holds, its live sessions among it, is reached by nobody.

struct Own {
    manager: (),
}

use astrabox_platform::Platform;

fn reach(platform: &Platform) {
    let _ = &platform.manager;
}

fn main() {
    let _ = reach as fn(_);
    let _ = None::<(Platform, Own)>;
}
