//! A program for engines whose environment names it.

use std::collections::BTreeMap;

use astrabox_engine::EngineCapabilities;
use astrabox_engine::sandbox::IMAGE_ROOT;
use astrabox_types::ProgramSpec;

/// A program that an environment could name; none for an engine that brings its own.
pub(crate) fn sample_program(capabilities: &EngineCapabilities) -> Option<ProgramSpec> {
    capabilities.names_program.then(|| ProgramSpec {
        command: format!("{IMAGE_ROOT}/bin/program"),
        arguments: vec!["--serve".to_owned()],
        env: BTreeMap::new(),
        model_wire: capabilities.model_wire.as_str().to_owned(),
        state_directory: None,
    })
}
