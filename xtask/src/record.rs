//! `cargo xtask record`: what an engine's program says to the scripted model, recorded anew for the tests of its
//! translator.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::process::{cargo, passthrough};
use crate::test::{self, BIN_DIR, Mode};
use crate::tree;

/// Record an engine's program at the version that its recipe pins; builds its image where it is missing. Afterwards the
/// engine's tests compare what they translate with the snapshots; `UPDATE_EXPECT=1` writes those anew.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The engine's kind, as codex.
    engine: String,
    /// The recordings to make; all without any.
    recordings: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let name = args.engine.replace('_', "-");
    let out = tree::root().join(format!("crates/engines/{name}/tests/recordings"));
    ensure!(
        out.is_dir(),
        "crates/engines has no `{name}` with tests/recordings: name an engine's kind"
    );
    let context = test::prepare(&["bins"], Mode::Local)?;
    let astrabox = context.target.join("debug/astrabox");
    let mut build = Command::new(&astrabox);
    build.args(["image", "build", &args.engine]);
    ensure!(build.status()?.success(), "the image is not built");
    let mut command = cargo(&tree::root());
    command.args(["run", "--package", "astrabox-testkit", "--bin"]);
    command.arg(format!("record-{name}")).arg("--");
    command.arg(image_root(&astrabox, &args.engine)?).arg(out);
    command.args(args.recordings);
    context.prepare(&mut command);
    command.env_remove(BIN_DIR);
    passthrough(command)
}

/// Where the newest image of an engine is.
fn image_root(astrabox: &Path, engine: &str) -> Result<PathBuf> {
    // Building an image that is there tells which one it is.
    let built = Command::new(astrabox)
        .args(["--json", "image", "build", engine])
        .output()?;
    let told: Value = serde_json::from_slice(&built.stdout).context("what the build tells")?;
    let root = told.pointer("/root").and_then(Value::as_str);
    root.map(PathBuf::from).context("the image's root")
}
