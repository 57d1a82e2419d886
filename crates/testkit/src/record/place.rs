//! A root folder laid out as a sandbox is: `home/agent` and `workspace`.

use std::fs;
use std::path::{Path, PathBuf};

use super::Error;
use super::tape::Scrub;
use crate::model::ScriptedModel;

/// The program's MCP server: one tool, `say`.
const ECHO_MCP: &str = include_str!("echo_mcp.py");

/// The folders of one scenario; gone when dropped.
pub(super) struct Place {
    root: tempfile::TempDir,
}

impl Place {
    pub(super) fn new(scratch: &Path) -> Result<Self, Error> {
        fs::create_dir_all(scratch).map_err(Error::io("make the scratch folder"))?;
        let root = tempfile::Builder::new()
            .prefix("record-")
            .tempdir_in(scratch)
            .map_err(Error::io("make a folder in the scratch folder"))?;
        let place = Self { root };
        for dir in [place.codex_home(), place.workspace()] {
            fs::create_dir_all(dir).map_err(Error::io("lay out the program's folders"))?;
        }
        Ok(place)
    }

    pub(super) fn home(&self) -> PathBuf {
        self.root.path().join("home/agent")
    }

    pub(super) fn codex_home(&self) -> PathBuf {
        self.home().join(".codex")
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// Writes the configuration, with the MCP server if wanted.
    pub(super) fn configure(&self, model: &ScriptedModel, mcp: bool) -> Result<(), Error> {
        let mut config = format!(
            r#"model = "scripted-model"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "Scripted"
base_url = "{}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
request_max_retries = 1
stream_max_retries = 1
"#,
            model.base_url()
        );
        if mcp {
            let server = self.home().join("echo_mcp.py");
            fs::write(&server, ECHO_MCP).map_err(Error::io("write the MCP server"))?;
            config.push_str(&format!(
                "\n[mcp_servers.echo]\ncommand = \"python3\"\nargs = [{:?}]\n",
                server.display().to_string()
            ));
        }
        fs::write(self.codex_home().join("config.toml"), config)
            .map_err(Error::io("write the configuration"))
    }

    /// Leaves of the program's home nothing but the conversation's own file.
    pub(super) fn keep_only_rollouts(&self) -> Result<(), Error> {
        self.keep_only(".codex/sessions")
    }

    /// Leaves of the program's home nothing but this directory.
    pub(super) fn keep_only(&self, state: &str) -> Result<(), Error> {
        let failed = || Error::io("move the conversation's files");
        let state = self.home().join(state);
        let kept = self.root.path().join("kept");
        fs::rename(&state, &kept).map_err(failed())?;
        fs::remove_dir_all(self.home()).map_err(failed())?;
        if let Some(above) = state.parent() {
            fs::create_dir_all(above).map_err(failed())?;
        }
        fs::rename(&kept, &state).map_err(failed())
    }

    /// What of a recording depends on this machine, for programs that run out of an image.
    pub(super) fn scrub_image(&self, image: &Path, model: &ScriptedModel) -> Scrub {
        Scrub::new([
            (self.root.path().display().to_string(), String::new()),
            (
                image.display().to_string(),
                "/opt/astrabox/image".to_owned(),
            ),
            (model.base_url(), "http://127.0.0.1:4000".to_owned()),
        ])
    }

    /// What of a recording depends on this machine.
    pub(super) fn scrub(&self, program: &Path, model: &ScriptedModel) -> Scrub {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let program = program.parent().map(|dir| dir.display().to_string());
        Scrub::new([
            (self.root.path().display().to_string(), String::new()),
            (program.unwrap_or_default(), "/opt/codex/bin".to_owned()),
            (model.base_url(), "http://127.0.0.1:4000".to_owned()),
            (
                format!(r#""serverName":"{}""#, host.trim()),
                r#""serverName":"host""#.to_owned(),
            ),
        ])
    }
}
