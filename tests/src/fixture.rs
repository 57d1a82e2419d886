//! The fault engine as the stand-in that the conformance suite wants of an engine's program.

use astrabox_conformance::doubles::{Program, program};
use astrabox_conformance::engine::{Deed, EngineFixture, Quirk};
use astrabox_sandbox::BoxPath;
use astrabox_testkit::fault_engine::{self, Protocol, run, state_file};
use bytes::Bytes;

use crate::MemoryHost;

/// A program of this protocol, in memory.
#[derive(Debug, Clone, Copy)]
pub struct FaultFixture(pub Protocol);

impl EngineFixture for FaultFixture {
    fn program(&self, quirk: Quirk) -> Option<Program> {
        let protocol = self.0;
        let quirk = match quirk {
            Quirk::Faithful => fault_engine::Quirk::Faithful,
            Quirk::OtherConversation => fault_engine::Quirk::OtherConversation,
        };
        Some(program(move |io| async move {
            let arguments = io.argv.get(1..).unwrap_or_default().to_vec();
            let mut host = MemoryHost::fixed(io, "1");
            run(&mut host, protocol, quirk, &arguments).await
        }))
    }

    fn prompt(&self, deed: Deed, word: &str) -> Option<String> {
        Some(match deed {
            Deed::Answer => format!("SAY: {word} \u{1f600}\u{fc}"),
            Deed::Hold => format!("SAY: holding {word}\nHOLD"),
            Deed::Die => format!("HALF: dying {word}\nSTDERR: a fault on purpose\nEXIT: 3"),
            Deed::Ask => format!("CALL: {word}\nASK"),
            // It has no children.
            Deed::Child if self.0 == Protocol::Pi => return None,
            Deed::Child => format!("CHILD: {word}"),
            Deed::Strange => format!("STRANGE: {word}"),
            Deed::Request => format!("REQUEST: {word}"),
        })
    }

    fn native_state(&self, native_key: &str) -> Vec<(BoxPath, Bytes)> {
        let path = BoxPath::new(state_file(self.0, native_key));
        let path = path.expect("a native key is a plain name");
        let record = match self.0 {
            Protocol::Pi => format!(
                "{{\"type\":\"session\",\"version\":3,\"id\":\"{native_key}\",\"cwd\":\"/workspace\"}}\n"
            ),
            _ => format!("{{\"conversation\":\"{native_key}\"}}\n"),
        };
        vec![(path, record.into())]
    }
}
