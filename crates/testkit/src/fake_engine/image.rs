//! The image of the fake engine: a directory with its program.

use std::fs;
use std::io;
use std::path::Path;

/// Makes an image tree at `root` out of the binary `fake-engine`. The program needs the C library of the base.
///
/// # Errors
/// When the binary cannot be read or the tree cannot be written.
pub fn image(program: &Path, root: &Path) -> io::Result<()> {
    let bin = root.join("bin");
    fs::create_dir_all(&bin)?;
    fs::copy(program, bin.join("fake-engine"))?;
    Ok(())
}
