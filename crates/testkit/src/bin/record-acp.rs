//! Records two ACP programs for the tests of the engine `acp`.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

/// Records the programs of an image of kind `acp` against the scripted model.
#[derive(Parser)]
#[command(name = "record-acp", version)]
struct Arguments {
    /// The root of the image.
    image: PathBuf,
    /// The folder that gets the recordings.
    out: PathBuf,
    /// Scenarios to record; all without any.
    scenarios: Vec<String>,
    /// A folder for the programs' home, not under /tmp; by default a cache folder.
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let scratch = match arguments.scratch {
        Some(scratch) => scratch,
        None => cache().context("set --scratch, HOME or XDG_CACHE_HOME")?,
    };
    let written = astrabox_testkit::record::acp(
        &arguments.image,
        &arguments.out,
        &scratch,
        &arguments.scenarios,
    )
    .await?;
    for path in written {
        writeln!(io::stdout(), "{}", path.display())?;
    }
    Ok(())
}

fn cache() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.map(|cache| cache.join("astrabox"))
}
