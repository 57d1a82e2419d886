//! Tests wait for a condition, they do not sleep and hope.

use proc_macro2::Span;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprForLoop, ExprLoop, ExprWhile, ItemFn, ItemMod};

use crate::finding::Finding;

/// Names each sleep in test code that is not part of a loop that looks for something, and not on
/// a paused clock.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    let Ok(file) = syn::parse_file(text) else {
        // The other checks say so.
        return Vec::new();
    };
    let mut visitor = Sleeps {
        in_test: is_test_file(path),
        in_loop: false,
        found: Vec::new(),
    };
    visitor.visit_file(&file);
    let message = "a test sleeps outside of a polling loop: wait for the condition with a \
                   deadline, or use a paused clock";
    visitor
        .found
        .iter()
        .map(|span| Finding::at(path, span.start().line, message))
        .collect()
}

/// Whether all of a file is test code: it lies in a `tests` folder, or is a `tests.rs`. Programs of
/// the test package, as the bench that lets a server rest before it weighs it, are none.
fn is_test_file(path: &str) -> bool {
    let is_program = path.contains("/src/bin/");
    let in_tests = path
        .split('/')
        .any(|segment| segment == "tests" || segment == "tests.rs");
    in_tests && !is_program
}

struct Sleeps {
    in_test: bool,
    in_loop: bool,
    found: Vec<Span>,
}

impl Sleeps {
    fn with(&mut self, in_test: bool, in_loop: bool, visit: impl FnOnce(&mut Self)) {
        let before = (self.in_test, self.in_loop);
        (self.in_test, self.in_loop) = (in_test, in_loop);
        visit(self);
        (self.in_test, self.in_loop) = before;
    }
}

impl<'ast> Visit<'ast> for Sleeps {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let in_test = self.in_test || module.attrs.iter().any(is_cfg_test);
        self.with(in_test, self.in_loop, |this| {
            visit::visit_item_mod(this, module);
        });
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let excused = function
            .attrs
            .iter()
            .any(|attribute| has_paused_clock(attribute) || says_why(attribute));
        self.with(self.in_test && !excused, false, |this| {
            visit::visit_item_fn(this, function);
        });
    }

    fn visit_expr_loop(&mut self, node: &'ast ExprLoop) {
        self.with(self.in_test, true, |this| {
            visit::visit_expr_loop(this, node)
        });
    }

    fn visit_expr_while(&mut self, node: &'ast ExprWhile) {
        self.with(self.in_test, true, |this| {
            visit::visit_expr_while(this, node);
        });
    }

    fn visit_expr_for_loop(&mut self, node: &'ast ExprForLoop) {
        self.with(self.in_test, true, |this| {
            visit::visit_expr_for_loop(this, node);
        });
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if self.in_test && !self.in_loop && is_sleep(&call.func) {
            self.found.push(call.span());
        }
        visit::visit_expr_call(self, call);
    }
}

fn is_sleep(function: &Expr) -> bool {
    match function {
        Expr::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident == "sleep"),
        _ => false,
    }
}

fn is_cfg_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && tokens(attribute).contains("test")
}

fn has_paused_clock(attribute: &Attribute) -> bool {
    tokens(attribute).contains("start_paused")
}

/// That nothing happens is no condition to wait for: who must let time pass says so where the ban is lifted.
fn says_why(attribute: &Attribute) -> bool {
    let text = tokens(attribute);
    attribute.path().is_ident("expect")
        && text.contains("disallowed_methods")
        && text.contains("reason")
}

fn tokens(attribute: &Attribute) -> String {
    attribute
        .meta
        .require_list()
        .map(|list| list.tokens.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_bare_sleep_in_a_test_is_found_and_a_polling_one_is_not() {
        let bare = "async fn f() { tokio::time::sleep(d).await; }";
        let polling = "async fn f() { loop { if ready() { break } sleep(d).await; } }";
        let excused = "#[expect(clippy::disallowed_methods, reason = \"x\")] fn f() { sleep(d); }";
        let paused = "#[tokio::test(start_paused = true)] async fn f() { sleep(d).await; }";
        let inline = "fn g() { std::thread::sleep(d); }\n#[cfg(test)]\nmod tests {\n\
                      fn f() { std::thread::sleep(d); }\n}";
        let cases = [
            ("crates/x/src/a.rs", bare, &[][..]),
            ("crates/x/tests/a.rs", bare, &[1]),
            ("crates/x/src/a/tests.rs", bare, &[1]),
            ("crates/x/tests/a.rs", polling, &[]),
            ("crates/x/tests/a.rs", paused, &[]),
            ("crates/x/tests/a.rs", excused, &[]),
            ("crates/x/src/a.rs", inline, &[4]),
        ];
        for (path, code, lines) in cases {
            let found: Vec<_> = check(path, code).iter().filter_map(|f| f.line).collect();
            assert_eq!(found, lines, "{path}: {code}");
        }
    }
}
