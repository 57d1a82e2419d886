//! The tempting ways past the contract do not compile, and for the reason that is meant.
//!
//! Each case in `compile_fail/` has its pinned error beside it, and in `compile_pass/` a twin that differs in one
//! token and compiles as a part of this program: so it is that token that the compiler refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::{TokenStream, TokenTree};

/// Compiles the twins.
macro_rules! twins {
    ($($name:ident = $path:literal,)*) => {
        $(
            #[path = $path]
            #[expect(unused, reason = "it only has to compile")]
            mod $name;
        )*

        const TWINS: &[&str] = &[$(stringify!($name)),*];
    };
}

twins! {
    a_client_is_not_downcast = "compile_pass/a_client_is_not_downcast.rs",
    a_platform_is_not_downcast = "compile_pass/a_platform_is_not_downcast.rs",
    a_registration_is_not_a_literal = "compile_pass/a_registration_is_not_a_literal.rs",
    a_runtime_is_not_put_into_the_live_map = "compile_pass/a_runtime_is_not_put_into_the_live_map.rs",
    a_secret_is_not_compared = "compile_pass/a_secret_is_not_compared.rs",
    a_secret_is_not_copied = "compile_pass/a_secret_is_not_copied.rs",
    a_secret_is_not_shown = "compile_pass/a_secret_is_not_shown.rs",
    a_secret_is_not_written = "compile_pass/a_secret_is_not_written.rs",
    a_workload_is_not_downcast = "compile_pass/a_workload_is_not_downcast.rs",
    an_adapter_has_no_state = "compile_pass/an_adapter_has_no_state.rs",
    an_emission_is_not_built_by_hand = "compile_pass/an_emission_is_not_built_by_hand.rs",
    evidence_is_not_shown = "compile_pass/evidence_is_not_shown.rs",
    the_manager_is_not_named = "compile_pass/the_manager_is_not_named.rs",
}

/// Cases whose errors point into the standard library: with its sources installed they read differently.
const SHOWS_THE_LIBRARY: &[&str] = &["an_adapter_has_no_state"];

#[test]
fn what_must_not_compile_does_not() {
    let sources = library_sources_are_installed();
    let cases = trybuild::TestCases::new();
    for name in names("compile_fail", "rs") {
        if sources && SHOWS_THE_LIBRARY.contains(&name.as_str()) {
            println!("skipped {name}: its error is pinned without the component rust-src");
        } else {
            cases.compile_fail(format!("tests/compile_fail/{name}.rs"));
        }
    }
    // The cases run when this is dropped.
    drop(cases);
    // An error that is not pinned is put here.
    let wip = folder("").join("../wip");
    assert!(!wip.exists(), "an error is not pinned: see the folder wip");
}

fn library_sources_are_installed() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let told = Command::new(rustc).args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(told.expect("rustc runs").stdout).expect("it is a path");
    Path::new(sysroot.trim())
        .join("lib/rustlib/src/rust")
        .exists()
}

#[test]
fn every_case_has_a_pinned_error_and_a_twin() {
    let cases = names("compile_fail", "rs");
    assert_eq!(
        cases,
        names("compile_fail", "stderr"),
        "cases and their errors"
    );
    assert_eq!(cases, names("compile_pass", "rs"), "cases and their twins");
    let compiled: BTreeSet<_> = TWINS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(cases, compiled, "cases and the twins that are compiled");
    for name in &cases {
        let error = read("compile_fail", name, "stderr");
        assert!(error.contains("error"), "{name} has no error");
    }
}

#[test]
fn a_twin_differs_in_one_token() {
    for name in names("compile_fail", "rs") {
        let case = tokens(&read("compile_fail", &name, "rs"));
        let twin = tokens(&read("compile_pass", &name, "rs"));
        assert_eq!(case.len(), twin.len(), "{name} and its twin");
        let differences = case.iter().zip(&twin).filter(|(one, two)| one != two);
        assert_eq!(differences.count(), 1, "differences of {name}");
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn names(directory: &str, extension: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder(directory)).expect("the folder is there");
    entries
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| {
            let stem = path.file_stem().expect("it has a name");
            stem.to_string_lossy().into_owned()
        })
        .collect()
}

fn read(directory: &str, name: &str, extension: &str) -> String {
    let path = folder(directory).join(format!("{name}.{extension}"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The tokens of a source text, comments aside; a group is its delimiters and what is between them.
fn tokens(source: &str) -> Vec<String> {
    let stream: TokenStream = source.parse().expect("it is Rust");
    let mut flat = Vec::new();
    flatten(stream, &mut flat);
    flat
}

fn flatten(stream: TokenStream, flat: &mut Vec<String>) {
    for token in stream {
        match token {
            TokenTree::Group(group) => {
                flat.push(format!("{:?}", group.delimiter()));
                flatten(group.stream(), flat);
                flat.push("end".to_owned());
            }
            other => flat.push(other.to_string()),
        }
    }
}
