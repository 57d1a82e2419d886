//! The settings as they are used, for people.

use crate::Config;

impl Config {
    /// All settings as TOML, with what was left out filled in and what looks like a secret replaced. As long as
    /// nothing was replaced, it can be read back as a file.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut shown = self.clone();
        shown.server.socket = Some(self.socket());
        shown.store.path = Some(self.store_path());
        shown.sandbox.root_id = Some(self.root_id());
        let blocks = [
            &mut shown.sandbox.providers,
            &mut shown.model.providers,
            &mut shown.identity.providers,
            &mut shown.secrets.providers,
        ];
        for block in blocks.into_iter().flat_map(|blocks| blocks.values_mut()) {
            block.redact();
        }
        shown.egress.proxy.redact();
        toml::to_string(&shown)
            .unwrap_or_else(|error| format!("# a setting cannot be shown as TOML: {error}\n"))
    }
}
