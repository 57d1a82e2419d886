//! Generates the committed protobuf code and descriptor sets.
//!
//! Invariant: nothing is built from `.proto` files outside this program, so no other build needs a
//! protobuf compiler or a build script.
//!
//! Run it as `cargo xtask codegen [--check]`. It is a program of its own, so that the everyday
//! `cargo xtask` does not compile a protobuf compiler.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program reports to its terminal"
)]

mod generate;
mod output;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use generate::Target;

/// Every package whose code is committed.
const TARGETS: &[Target] = &[
    Target {
        package: "astrabox.v1",
        folder: "astrabox/v1",
        out: "crates/edge/proto/src/gen",
        // The public API: a client must not pay for the server, nor a server for the client.
        server_feature: Some("server"),
        client_feature: Some("client"),
        descriptor: true,
    },
    Target {
        package: "astrabox.runner.v1",
        folder: "astrabox/runner/v1",
        out: "crates/core/runner-protocol/src/gen",
        server_feature: None,
        client_feature: None,
        descriptor: false,
    },
];

fn main() -> ExitCode {
    match generate_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn generate_all() -> Result<()> {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => bail!("expected nothing or --check, got {other:?}"),
    };
    let root = workspace_root()?;
    let mut failures = Vec::new();
    for target in TARGETS {
        match run(&root, target, check) {
            Ok(summary) => println!("{}: {summary}", target.package),
            Err(error) => failures.push(format!("{}: {error:#}", target.package)),
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

/// Generates one package and writes it, or compares it with what is committed.
fn run(root: &Path, target: &Target, check: bool) -> Result<String> {
    let files = generate::generate(&root.join("proto"), target)?;
    let out = root.join(target.out);
    if check {
        let differences = output::differences(&out, &files)?;
        if !differences.is_empty() {
            bail!(
                "in {}: {}; run `cargo xtask codegen` and commit the result",
                target.out,
                differences.join(", ")
            );
        }
        return Ok(format!("{} files up to date", files.len()));
    }
    let changed = output::write(&out, &files)?;
    Ok(format!("{} files, {changed} changed", files.len()))
}

fn workspace_root() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .context("xtask/codegen lies two folders below the workspace root")
}
