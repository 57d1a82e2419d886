//! From `.proto` files to formatted Rust, in memory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use protox::Compiler;

/// One protobuf package and where its generated code belongs.
pub(crate) struct Target {
    /// The protobuf package; the generated file is `<package>.rs`.
    pub(crate) package: &'static str,
    /// Folder of its `.proto` files, relative to `proto/`.
    pub(crate) folder: &'static str,
    /// Folder of the generated files, relative to the workspace root.
    pub(crate) out: &'static str,
    /// Cargo feature that the server code is behind, if any.
    pub(crate) server_feature: Option<&'static str>,
    /// Cargo feature that the client code is behind, if any.
    pub(crate) client_feature: Option<&'static str>,
    /// Whether `descriptor.bin` (the descriptor set with imports, for reflection) is written.
    pub(crate) descriptor: bool,
}

/// Messages with secrets, which nobody can print: what has no Debug gets into no log.
const SECRET_MESSAGES: [&str; 3] = [
    ".astrabox.v1.CredentialSecret",
    ".astrabox.v1.CreateVaultCredentialRequest",
    ".astrabox.v1.UpdateVaultCredentialRequest",
];

/// File name to content, in name order.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Generates all files of `target` from the `.proto` files under `proto`.
pub(crate) fn generate(proto: &Path, target: &Target) -> Result<Files> {
    let sources = proto_files(proto, target.folder)?;
    let mut files = Files::new();
    let name = format!("{}.rs", target.package);
    let code = rust_code(proto, &sources, target, &name)?;
    files.insert(name, code.into_bytes());
    if target.descriptor {
        let mut compiler = compiler(proto, &sources, false)?;
        compiler.include_imports(true);
        files.insert(
            "descriptor.bin".to_owned(),
            compiler.encode_file_descriptor_set(),
        );
    }
    Ok(files)
}

/// The `.proto` files of one folder, sorted, relative to `proto` (so that descriptors hold no
/// path of the machine).
fn proto_files(proto: &Path, folder: &str) -> Result<Vec<PathBuf>> {
    let dir = proto.join(folder);
    let mut sources = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list proto/{folder}"))? {
        let name = PathBuf::from(entry?.file_name());
        if name
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            sources.push(Path::new(folder).join(name));
        }
    }
    ensure!(!sources.is_empty(), "proto/{folder} holds no .proto file");
    sources.sort();
    Ok(sources)
}

fn compiler(proto: &Path, sources: &[PathBuf], comments: bool) -> Result<Compiler> {
    let mut compiler = Compiler::new([proto])?;
    compiler.include_source_info(comments);
    for source in sources {
        // The absolute path: a relative one would be looked up from the current folder.
        compiler
            .open_file(proto.join(source))
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
    }
    Ok(compiler)
}

fn rust_code(proto: &Path, sources: &[PathBuf], target: &Target, name: &str) -> Result<String> {
    let mut compiler = compiler(proto, sources, true)?;
    compiler.include_imports(true);
    let scratch = tempfile::tempdir()?;
    let mut builder = tonic_prost_build::configure()
        .out_dir(scratch.path())
        .emit_rerun_if_changed(false)
        // Clients are made from a channel (a unix socket needs its own connector), so the
        // generated `connect` would only add a dependency.
        .build_transport(false)
        .bytes(".");
    builder = builder.skip_debug(SECRET_MESSAGES);
    if let Some(feature) = target.server_feature {
        builder = builder.server_mod_attribute(".", cfg_feature(feature));
    }
    if let Some(feature) = target.client_feature {
        builder = builder.client_mod_attribute(".", cfg_feature(feature));
    }
    builder
        .compile_fds(compiler.file_descriptor_set())
        .context("code generation failed")?;
    only_file(scratch.path(), name)?;
    let body = fs::read_to_string(scratch.path().join(name))?;
    rustfmt(&format!("{}{body}", header(target)))
}

fn cfg_feature(feature: &str) -> String {
    format!("#[cfg(feature = \"{feature}\")]")
}

/// Refuses messages of another package: they would be generated into a file nobody includes.
fn only_file(dir: &Path, name: &str) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let other = entry.file_name();
        if other == *name || entry.metadata()?.len() == 0 {
            continue;
        }
        let other = other.to_string_lossy().into_owned();
        let package = other.trim_end_matches(".rs");
        bail!("imports messages of package {package}, which has no target in xtask-codegen");
    }
    Ok(())
}

fn header(target: &Target) -> String {
    format!(
        "// @generated by `cargo xtask codegen` from proto/{folder}. Do not edit.\n\
         #![allow(\n\
         clippy::all,\n\
         missing_docs,\n\
         unreachable_pub,\n\
         rustdoc::all,\n\
         reason = \"generated: which of these fire depends on the messages, so no lint can be \
         expected here\"\n\
         )]\n\n",
        folder = target.folder
    )
}

/// Formats as `cargo fmt` does, so that the formatting check and this generator agree.
fn rustfmt(code: &str) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rustfmt: install it with `rustup component add rustfmt`")?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let code = code.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(code.as_bytes()));
    let output = child.wait_with_output()?;
    writer
        .join()
        .map_err(|_| anyhow::anyhow!("the writer to rustfmt panicked"))??;
    ensure!(output.status.success(), "rustfmt: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests;
