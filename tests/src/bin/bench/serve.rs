//! This program as a server: `astraboxd` with the fake engine of the test kit besides the linked ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use astrabox_config::Inputs;
use astrabox_platform::Images;
use astrabox_server::{App, Registries};
use astrabox_testkit::fake_engine;
use tokio::signal::unix::{SignalKind, signal};

/// Serves until it is told to end.
pub(crate) fn run(config: &Path) -> Result<()> {
    let mut inputs = Inputs::of_process();
    inputs.file = Some(config.to_owned());
    let config = inputs.load()?;
    let image = image(&config.state_dir)?;
    let app = App::builder(config)
        .registries(Registries::linked()?.with_engine(fake_engine::registration())?)
        .images(Arc::new(OneImage(image)))
        .build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let running = app.spawn().await?;
        let mut terminate = signal(SignalKind::terminate())?;
        terminate.recv().await;
        running.shutdown().await;
        anyhow::Ok(())
    })
}

/// The image of the fake engine, of the program beside this one.
fn image(state_dir: &Path) -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("fake-engine");
    let root = state_dir.with_file_name("image");
    fake_engine::image(&program, &root)
        .with_context(|| format!("make an image of {}", program.display()))?;
    Ok(root)
}

struct OneImage(PathBuf);

impl Images for OneImage {
    fn name_for(&self, engine: &'static str) -> String {
        format!("{engine}:1")
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        (name == "fake:1").then(|| self.0.clone())
    }

    fn build_command(&self, _: &'static str) -> String {
        "cargo xtask bench".to_owned()
    }
}
