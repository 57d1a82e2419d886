//! The suites over what this crate registers: what `cargo xtask conformance --crate` runs.

use std::process::ExitCode;

use astrabox_conformance::Filter;
use astrabox_conformance::linked::{ModelSettings, Settings, run_and_print};
use serde_json::json;
use third_party as _;

fn main() -> ExitCode {
    let mut settings = Settings::default();
    let shelf = ModelSettings {
        config: Some(json!({"base_url": "https://models.test"})),
        plaintext: Some(json!({"base_url": "http://models.test", "require_https": true})),
        model: None,
    };
    settings.model.insert("shelf".to_owned(), shelf);
    match run_and_print(
        &settings,
        &Filter::all(),
        Vec::new(),
        &mut std::io::stdout(),
    ) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}
