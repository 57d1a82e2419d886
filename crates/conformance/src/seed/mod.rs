//! The contract that the project grew from: the platform's members, what adapters may not do, and a start that goes
//! down to the provider boundary and no further.

mod boundary;
mod fixtures;
mod members;
mod platform;
mod sources;
mod startup;

pub use boundary::{Boundary, BoundaryLog};
pub use fixtures::{CALLBACK_ENGINE, CallbackEngine, fixture_engines};
pub use members::{
    ENGINE_ADAPTER_MEMBERS, ENGINE_CLIENT_MEMBERS, ENGINE_PLATFORM_MEMBERS, check_members,
};
pub use platform::SpecPlatform;
pub use sources::{SourceFinding, check_engine_source, check_engine_sources};
pub use startup::{SeedBench, spec_request, suite};
