//! The runtime manager is private, also to those who depend on the platform.

mod own {
    pub(crate) mod manager {
        pub(crate) struct Manager;
    }
}

use own::manager::Manager;

fn main() {
    let _ = None::<(Manager, own::manager::Manager)>;
}
