//! Rust source as tokens, so that comments and strings are never mistaken for code.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One thing of interest in a source file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// An identifier, keywords included.
    Ident(String),
    /// A macro call: `name!`.
    Macro(String),
    /// An attribute, with its tokens as text.
    Attribute(String),
    /// The value of a string literal that reads like a path, as in `#[serde(with = "a::b")]`.
    PathLiteral(String),
}

/// Everything of interest in `code`, with line numbers from 1; `None` when it is no Rust.
pub(crate) fn items(code: &str) -> Option<Vec<(usize, Item)>> {
    let code = code.strip_prefix('\u{feff}').unwrap_or(code);
    let stream: TokenStream = strip_shebang(code).parse().ok()?;
    let mut items = Vec::new();
    walk(stream, &mut items);
    Some(items)
}

fn strip_shebang(code: &str) -> &str {
    match code.strip_prefix("#!") {
        Some(rest) if !rest.trim_start().starts_with('[') => {
            rest.find('\n').map_or("", |end| &rest[end..])
        }
        _ => code,
    }
}

fn walk(stream: TokenStream, items: &mut Vec<(usize, Item)>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut index = 0;
    while let Some(tree) = trees.get(index) {
        let line = tree.span().start().line;
        match (attribute(&trees[index..]), tree) {
            (Some((length, content)), _) => {
                let text = content.to_string();
                // Documentation is prose, whatever words it uses.
                if !text.starts_with("doc =") {
                    walk(content, items);
                }
                items.push((line, Item::Attribute(text)));
                index += length;
                continue;
            }
            (None, TokenTree::Group(group)) => walk(group.stream(), items),
            (None, TokenTree::Ident(ident)) => {
                let name = ident.to_string();
                let name = name.strip_prefix("r#").unwrap_or(&name).to_owned();
                if is_macro_call(&trees[index + 1..]) {
                    items.push((line, Item::Macro(name.clone())));
                }
                items.push((line, Item::Ident(name)));
            }
            (None, TokenTree::Literal(literal)) => {
                if let Some(path) = path_literal(&literal.to_string()) {
                    items.push((line, Item::PathLiteral(path)));
                }
            }
            (None, TokenTree::Punct(_)) => {}
        }
        index += 1;
    }
}

/// `#[..]` or `#![..]` at the start of `trees`: how many trees it takes, and what is inside.
fn attribute(trees: &[TokenTree]) -> Option<(usize, TokenStream)> {
    let is = |tree: Option<&TokenTree>, c: char| matches!(tree, Some(TokenTree::Punct(p)) if p.as_char() == c);
    if !is(trees.first(), '#') {
        return None;
    }
    let at = if is(trees.get(1), '!') { 2 } else { 1 };
    match trees.get(at)? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
            Some((at + 1, group.stream()))
        }
        _ => None,
    }
}

/// Whether what follows an identifier makes it a macro call: `!` and then a group (`a != b` has
/// no group there).
fn is_macro_call(rest: &[TokenTree]) -> bool {
    matches!(
        rest,
        [TokenTree::Punct(bang), TokenTree::Group(_), ..] if bang.as_char() == '!'
    )
}

fn path_literal(literal: &str) -> Option<String> {
    let path = literal.strip_prefix('"')?.strip_suffix('"')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    (!path.is_empty() && path.chars().all(plain)).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Item, items};

    #[test]
    fn comments_strings_and_documentation_hold_no_code() {
        let code = r##"
            //! unsafe
            // unsafe
            /// unsafe
            const A: &str = "unsafe { }";
            const B: &str = r#"unsafe"#;
        "##;
        let idents: Vec<_> = items(code)
            .unwrap()
            .into_iter()
            .filter(|(_, item)| *item == Item::Ident("unsafe".into()))
            .collect();
        assert!(idents.is_empty(), "{idents:?}");
    }

    #[test]
    fn macros_attributes_and_path_literals_are_told_apart() {
        let code = "fn f(a: u8, b: u8) -> bool {\n todo!();\n a != (b) }\n#[serde(with = \"x::y\")]\nstruct S;";
        let found = items(code).unwrap();
        assert!(found.contains(&(2, Item::Macro("todo".into()))));
        assert!(!found.contains(&(3, Item::Macro("a".into()))));
        assert!(found.contains(&(4, Item::PathLiteral("x::y".into()))));
        assert!(found.contains(&(4, Item::Attribute("serde (with = \"x::y\")".into()))));
    }

    #[test]
    fn what_is_no_rust_gives_nothing() {
        assert!(items("fn f( {").is_none());
        assert!(items("#!/usr/bin/env run\nfn f() {}").is_some());
    }
}
