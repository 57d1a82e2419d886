//! Rules of a single Rust file.

use crate::finding::Finding;
use crate::source::{Item, items};

/// What one file may do.
pub(super) struct Limits {
    pub(super) max_lines: usize,
    pub(super) may_be_unsafe: bool,
}

pub(super) fn check(path: &str, text: &str, limits: &Limits) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > limits.max_lines {
        let max = limits.max_lines;
        let message = format!("has {lines} lines, the limit is {max}: split it by concern");
        findings.push(Finding::new(path, message));
    }
    let Some(items) = items(text) else {
        findings.push(Finding::new(path, "is no Rust that can be read"));
        return findings;
    };
    for (line, item) in items {
        let message = match &item {
            Item::Ident(name) if name == "unsafe" && !limits.may_be_unsafe => {
                Some("unsafe code belongs in the runner or in sandbox-local".to_owned())
            }
            Item::Macro(name) if matches!(&**name, "todo" | "unimplemented" | "dbg") => {
                Some(format!("{name}! is for unfinished code"))
            }
            Item::Attribute(tokens) => attribute(tokens).map(str::to_owned),
            _ => None,
        };
        findings.extend(message.map(|message| Finding::at(path, line, message)));
    }
    findings
}

/// What is wrong with an attribute, given its tokens as text with single spaces.
fn attribute(tokens: &str) -> Option<&'static str> {
    let calls = |name: &str| {
        let call = format!("{name} (");
        tokens.starts_with(&call) || tokens.contains(&format!(", {call}"))
    };
    let reasoned = tokens.contains("reason =");
    if calls("allow") {
        Some("use #[expect(lint, reason = \"..\")], which ends with its cause")
    } else if calls("expect") && !reasoned {
        Some("an expected lint needs a reason")
    } else if tokens == "ignore" || tokens.ends_with(", ignore)") {
        Some("an ignored test needs a reason: #[ignore = \"..\"]")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, check};

    fn messages(code: &str, may_be_unsafe: bool) -> Vec<String> {
        let limits = Limits {
            max_lines: 5,
            may_be_unsafe,
        };
        check("x.rs", code, &limits)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn each_rule_is_said_with_its_line() {
        let cases = [
            ("fn f() {\n    todo!()\n}", "x.rs:2: todo!"),
            ("fn f() { dbg!(1); }", "x.rs:1: dbg!"),
            ("fn f() { unimplemented!() }", "x.rs:1: unimplemented!"),
            ("\n#[allow(dead_code)]\nfn f() {}", "x.rs:2: use #[expect"),
            ("#![allow(dead_code)]", "x.rs:1: use #[expect"),
            (
                "#[cfg_attr(test, allow(dead_code))] fn f() {}",
                "use #[expect",
            ),
            ("#[expect(dead_code)] fn f() {}", "needs a reason"),
            ("#[test]\n#[ignore]\nfn f() {}", "x.rs:2: an ignored test"),
            ("#[cfg_attr(miri, ignore)] fn f() {}", "an ignored test"),
            ("fn f() { unsafe { g() } }", "x.rs:1: unsafe code"),
            ("unsafe impl Send for X {}", "x.rs:1: unsafe code"),
            ("\n\n\n\n\n\n", "x.rs: has 6 lines, the limit is 5"),
            ("fn f( {", "x.rs: is no Rust"),
        ];
        for (code, expected) in cases {
            let said = messages(code, false);
            assert_eq!(said.len(), 1, "{code}: {said:?}");
            assert!(said[0].contains(expected), "{code}: {said:?}");
        }
    }

    #[test]
    fn what_keeps_the_rules_is_not_named() {
        let cases = [
            "#[expect(dead_code, reason = \"because\")] fn f() {}",
            "#[ignore = \"needs root\"] fn f() {}",
            "// unsafe todo!()\nconst A: &str = \"dbg!(1) #[allow(x)]\";",
            "fn todo() { todo(); allow(1); }",
            "#[serde(default, deny_unknown_fields)] struct S;",
        ];
        for code in cases {
            assert_eq!(messages(code, false), Vec::<String>::new(), "{code}");
        }
        assert!(messages("fn f() { unsafe { g() } }", true).is_empty());
    }
}
