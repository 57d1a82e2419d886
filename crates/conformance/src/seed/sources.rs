//! What an engine's source must not have: an entry point of its own, a second set of emissions, a place for runtimes.

use std::fmt;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item};

/// Functions by which something else than the platform would run turns.
const ENTRY_POINTS: [&str; 2] = ["start_runtime", "turn_transport"];
/// The types that only the engine seam defines.
const SEAM_TYPES: [&str; 8] = [
    "Emission",
    "EmissionKind",
    "Emitter",
    "EventDraft",
    "DeltaDraft",
    "InteractionDraft",
    "Step",
    "Terminal",
];
/// Places in which a runtime could be kept for the whole process.
const GLOBALS: [&str; 7] = [
    "OnceLock",
    "OnceCell",
    "LazyLock",
    "LazyCell",
    "Lazy",
    "thread_local",
    "lazy_static",
];

/// Something in an engine's source that must not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFinding {
    /// The file, below the directory that was looked at.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is there.
    pub what: String,
}

impl fmt::Display for SourceFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Looks through every Rust file below the `src` directory of an engine's crate. Code for tests is left out.
///
/// # Errors
/// When the directory cannot be read, or holds no Rust.
pub fn check_engine_sources(src: &Path) -> std::io::Result<Vec<SourceFinding>> {
    let (mut findings, mut open, mut files) = (Vec::new(), vec![src.to_owned()], 0);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let tests = path.file_stem().is_some_and(|stem| stem == "tests");
            if path.extension().is_none_or(|extension| extension != "rs") || tests {
                continue;
            }
            files += 1;
            let below = path.strip_prefix(src).unwrap_or(&path);
            let text = std::fs::read_to_string(&path)?;
            findings.extend(check_engine_source(&below.to_string_lossy(), &text));
        }
    }
    if files == 0 {
        let text = "the directory holds no Rust";
        return Err(std::io::Error::new(std::io::ErrorKind::NotFound, text));
    }
    findings.sort_by(|one, two| (&one.file, one.line).cmp(&(&two.file, two.line)));
    Ok(findings)
}

/// Looks through the text of one file.
#[must_use]
pub fn check_engine_source(file: &str, text: &str) -> Vec<SourceFinding> {
    let parsed = match syn::parse_file(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            return vec![SourceFinding {
                file: file.to_owned(),
                line: error.span().start().line,
                what: format!("it is no Rust: {error}"),
            }];
        }
    };
    let mut look = Look {
        file,
        findings: Vec::new(),
    };
    look.visit_file(&parsed);
    look.findings
}

struct Look<'a> {
    file: &'a str,
    findings: Vec<SourceFinding>,
}

impl Look<'_> {
    fn find(&mut self, at: proc_macro2::Span, what: String) {
        let line = at.start().line;
        let file = self.file.to_owned();
        // A macro is seen as a whole and by its tokens.
        if !self
            .findings
            .iter()
            .any(|f| f.line == line && f.what == what)
        {
            self.findings.push(SourceFinding { file, line, what });
        }
    }

    fn function(&mut self, name: &syn::Ident) {
        if ENTRY_POINTS.iter().any(|entry| name == entry) {
            self.find(
                name.span(),
                format!("it defines `{name}`: turns are run by the platform alone"),
            );
        }
    }

    fn type_name(&mut self, name: &syn::Ident) {
        if SEAM_TYPES.iter().any(|known| name == known) {
            self.find(
                name.span(),
                format!("it defines its own `{name}`: emissions are the seam's"),
            );
        }
    }

    fn global(&mut self, at: proc_macro2::Span, what: &str) {
        self.find(
            at,
            format!("it has a {what}: everything about a conversation is in its client"),
        );
    }

    /// The tokens of a macro, which nothing else looks into.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut after_quote = false;
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Punct(punct) => {
                    after_quote = punct.as_char() == '\'';
                    continue;
                }
                TokenTree::Ident(ident) => {
                    if ident == "static" && !after_quote {
                        self.global(ident.span(), "`static` in a macro");
                    }
                    self.ident(&ident);
                }
                TokenTree::Literal(_) => {}
            }
            after_quote = false;
        }
    }

    fn ident(&mut self, ident: &syn::Ident) {
        if let Some(name) = GLOBALS.iter().find(|name| ident == *name) {
            self.global(ident.span(), &format!("`{name}`"));
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && list.is_ok_and(|list| list.tokens.to_string() == "test"))
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Fn(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Look<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes_of(item)) {
            return;
        }
        match item {
            Item::Struct(item) => self.type_name(&item.ident),
            Item::Enum(item) => self.type_name(&item.ident),
            Item::Union(item) => self.type_name(&item.ident),
            Item::Type(item) => self.type_name(&item.ident),
            Item::Trait(item) => self.type_name(&item.ident),
            Item::Static(item) => self.global(item.static_token.span, "`static`"),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.function(&signature.ident);
        visit::visit_signature(self, signature);
    }

    fn visit_ident(&mut self, ident: &'ast syn::Ident) {
        self.ident(ident);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::check_engine_source;

    #[test]
    fn what_an_engine_must_not_have_is_found() {
        for (source, text) in [
            ("pub fn start_runtime() {}", "start_runtime"),
            (
                "impl X { async fn turn_transport(&self) {} }",
                "turn_transport",
            ),
            ("trait X { fn start_runtime(&self); }", "start_runtime"),
            ("enum EmissionKind { A }", "EmissionKind"),
            ("struct Emission;", "Emission"),
            ("type Terminal = u8;", "Terminal"),
            ("static LIVE: Mutex<()> = Mutex::new(());", "`static`"),
            ("fn f() { static LIVE: u8 = 0; }", "`static`"),
            ("mod inner { static mut LIVE: u8 = 0; }", "`static`"),
            (
                "const LIVE: std::sync::OnceLock<u8> = std::sync::OnceLock::new();",
                "OnceLock",
            ),
            ("use std::sync::LazyLock;", "LazyLock"),
            ("thread_local! { static LIVE: u8 = 0; }", "thread_local"),
            ("make! { static LIVE: u8 = 0; }", "`static` in a macro"),
            (
                "macro_rules! m { () => { static LIVE: u8 = 0; } }",
                "`static` in a macro",
            ),
            ("fn f( {", "no Rust"),
        ] {
            let findings = check_engine_source("x.rs", source);
            assert!(
                findings.iter().any(|finding| finding.what.contains(text)),
                "{source}: {findings:?}"
            );
            assert!(findings.iter().all(|finding| finding.line == 1));
        }
    }

    #[test]
    fn what_an_engine_may_have_is_left_alone() {
        for source in [
            "const MODES: &[&'static str] = &[];",
            "inventory::submit!(Registration::new(\"a\", \"b\", env!(\"X\"), &Codex));",
            "fn f(x: &'static str) -> Step { Step::default() }",
            "use astrabox_engine::{Emission, EmissionKind, Terminal};",
            "struct EmissionLog; enum Steps { Terminal }",
            "fn f() { log!(\"{x:?}\", name: &'static str, 'a'); }",
            "#[cfg(test)] mod tests { static LIVE: u8 = 0; fn start_runtime() {} }",
            "#[test] fn start_runtime() {}",
        ] {
            assert_eq!(check_engine_source("x.rs", source), [], "{source}");
        }
    }
}
