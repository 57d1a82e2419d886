//! Behind its workload an engine finds no provider.

use std::any::Any;
use std::sync::Arc;

use astrabox_sandbox::Workload;

trait Open: Any {}

fn open(workload: Arc<dyn Workload>) -> Arc<dyn Any> {
    workload
}

fn main() {
    let _ = open as fn(_) -> _;
    let _ = None::<(&dyn Workload, &dyn Open)>;
}
