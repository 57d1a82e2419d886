//! A stage whose engine's program is the fault engine.

use std::ops::{Deref, DerefMut};

use anyhow::{Context as _, Result, ensure};
use astrabox_client::v1;
use astrabox_testkit::fault_engine::{ACP_STATE, FaultImage, ImageCache, Protocol};
use astrabox_testkit::model::ScriptedModel;
use astrabox_testkit::server::{ServerOptions, bin_dir};

use crate::{Conversation, Stage};

/// Watchdogs that fit a test. Silence is cut at a time that a busy machine does not need for anything else.
const SETTINGS: &[&str] = &[
    "sessions.stall_timeout = \"2s\"",
    "sessions.interrupt_timeout = \"500ms\"",
];

/// A server, an agent, and images whose program is the fault engine.
pub struct FaultStage {
    stage: Stage,
    image: FaultImage,
    cache: ImageCache,
    _folder: tempfile::TempDir,
}

impl Deref for FaultStage {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl DerefMut for FaultStage {
    fn deref_mut(&mut self) -> &mut Stage {
        &mut self.stage
    }
}

impl FaultStage {
    /// A stage with a program that does what prompts say.
    ///
    /// # Errors
    /// When something of it does not come up.
    pub async fn of(protocol: Protocol) -> Result<Self> {
        Self::with(FaultImage::of(protocol), &[]).await
    }

    /// A stage with this image, and settings that come after the usual ones.
    ///
    /// # Errors
    /// As `of`.
    pub async fn with(image: FaultImage, settings: &[&str]) -> Result<Self> {
        let program = bin_dir()?.join("astrabox-fault-engine");
        ensure!(
            program.is_file(),
            "the fault engine is not built: run `cargo build -p astrabox-testkit --bins`"
        );
        let folder = tempfile::Builder::new().prefix("ab-").tempdir()?;
        let cache = ImageCache::create(&folder.path().join("images"), &program, &[image])
            .context("the images")?;
        let model = ScriptedModel::builder().start().await?;
        let mut options = ServerOptions::with_model(model.address());
        let name = |line: &str| line.split(" = ").next().map(str::to_owned);
        let usual = SETTINGS
            .iter()
            .filter(|line| !settings.iter().any(|other| name(other) == name(line)));
        options.settings = usual
            .chain(settings)
            .map(|line| (*line).to_owned())
            .collect();
        options.settings.push(cache.setting());
        let environment = v1::EnvironmentSpec {
            engine: image.protocol.kind().to_owned(),
            image: image.name(),
            program: program_of(image.protocol),
            ..Default::default()
        };
        let agent = v1::AgentSpec::default();
        Ok(Self {
            stage: Stage::over(model, &options, environment, agent).await?,
            image,
            cache,
            _folder: folder,
        })
    }

    /// A new conversation whose engine is ready.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn talk(&self) -> Result<Conversation> {
        self.stage.conversation("").await
    }

    /// Makes the program odd, or not any more, from its next start on.
    ///
    /// # Errors
    /// When the image cannot be written.
    pub fn change(&self, change: impl FnOnce(&mut FaultImage)) -> Result<()> {
        let mut image = self.image;
        change(&mut image);
        Ok(self.cache.change(self.image, image)?)
    }

    /// Removes every session and ends server and model in order.
    ///
    /// # Errors
    /// When something is left.
    pub async fn clear(self) -> Result<()> {
        self.stage.clear().await
    }
}

/// What an environment says of the program, for an engine that runs any program of its protocol.
fn program_of(protocol: Protocol) -> Option<v1::ProgramSpec> {
    (protocol == Protocol::Acp).then(|| v1::ProgramSpec {
        command: protocol.program().to_owned(),
        model_wire: "anthropic_messages".to_owned(),
        state_directory: ACP_STATE.to_owned(),
        ..Default::default()
    })
}
