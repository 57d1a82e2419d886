//! The pinned members of the traits between platform and engines, checked against their source text.

use std::collections::BTreeSet;

use syn::{GenericParam, Item, ItemTrait, TraitItem, TraitItemFn, TypeParamBound};

/// What the startup line asks of a platform.
pub const ENGINE_PLATFORM_MEMBERS: &[&str] = &[
    "deployment_settings",
    "resolve_model_access",
    "resolve_sandbox_backend_secret",
    "resolve_session_egress_credentials",
    "resolve_session_mcp_credentials",
    "record_startup_allocation",
    "record_attached_runtime_identity",
    "connect_sandbox_only",
    "clone_default_repo",
    "mount_assistant_workspace_storage",
    "prepare_workspace_storage",
    "resolve_runtime_sandbox_backend",
];

/// What an engine is.
pub const ENGINE_ADAPTER_MEMBERS: &[&str] = &[
    "kind",
    "capabilities",
    "image_recipe",
    "sandbox_request",
    "startup_material_request",
    "prepare",
    "activate",
];

/// What a bound conversation can do.
pub const ENGINE_CLIENT_MEMBERS: &[&str] = &[
    "bind_conversation",
    "deliver",
    "turn_events",
    "checkpoint",
    "committed",
    "interrupt",
    "capabilities",
    "close",
    "interactions",
    "permission_modes",
    "child_run_control",
    "exit",
    "server_info",
];

/// Supertraits without members of their own.
const MARKERS: [&str; 3] = ["Send", "Sync", "Sized"];

/// Compares the trait `name` in this source text with its pinned members. Every difference is a text: a member too
/// many or too few, a default body, a supertrait with members, a generic trait or method, an associated type or
/// constant. No text means that the trait is as pinned.
#[must_use]
pub fn check_members(source: &str, name: &str, members: &[&str]) -> Vec<String> {
    let file = match syn::parse_file(source) {
        Ok(file) => file,
        Err(error) => return vec![format!("the source is no Rust: {error}")],
    };
    let mut found = Vec::new();
    find(&file.items, name, &mut found);
    let [item] = found.as_slice() else {
        return vec![format!("{} traits are called {name}", found.len())];
    };
    let mut differences = shape(item);
    let mut there = BTreeSet::new();
    for item in &item.items {
        match item {
            TraitItem::Fn(function) => {
                let name = function.sig.ident.to_string();
                differences.extend(method(&name, function));
                if !there.insert(name.clone()) {
                    differences.push(format!("`{name}` is there twice"));
                }
            }
            TraitItem::Const(item) => {
                differences.push(format!("it has the constant `{}`", item.ident));
            }
            TraitItem::Type(item) => differences.push(format!("it has the type `{}`", item.ident)),
            _ => differences.push("it has a member that cannot be read, as a macro".to_owned()),
        }
    }
    let pinned: BTreeSet<_> = members.iter().map(|name| (*name).to_owned()).collect();
    let more = there.difference(&pinned);
    differences.extend(more.map(|name| format!("`{name}` is not pinned")));
    let less = pinned.difference(&there);
    differences.extend(less.map(|name| format!("`{name}` is missing")));
    differences
}

fn find<'a>(items: &'a [Item], name: &str, found: &mut Vec<&'a ItemTrait>) {
    for item in items {
        match item {
            Item::Trait(item) if item.ident == name => found.push(item),
            Item::Mod(module) => {
                if let Some((_, items)) = &module.content {
                    find(items, name, found);
                }
            }
            _ => {}
        }
    }
}

fn shape(item: &ItemTrait) -> Vec<String> {
    let mut differences = Vec::new();
    if !item.generics.params.is_empty() || item.generics.where_clause.is_some() {
        differences.push("the trait is generic".to_owned());
    }
    for bound in &item.supertraits {
        match bound {
            TypeParamBound::Lifetime(_) => {}
            TypeParamBound::Trait(bound)
                if bound
                    .path
                    .segments
                    .last()
                    .is_some_and(|last| MARKERS.iter().any(|marker| last.ident == marker)) => {}
            _ => differences.push("it has a supertrait that may have members".to_owned()),
        }
    }
    differences
}

fn method(name: &str, function: &TraitItemFn) -> Vec<String> {
    let mut differences = Vec::new();
    if function.default.is_some() {
        differences.push(format!("`{name}` has a default body"));
    }
    let typed = |param: &GenericParam| !matches!(param, GenericParam::Lifetime(_));
    let generics = &function.sig.generics;
    if generics.params.iter().any(typed) || generics.where_clause.is_some() {
        differences.push(format!("`{name}` is generic"));
    }
    if function.sig.receiver().is_none() {
        differences.push(format!("`{name}` is called without an instance"));
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::check_members;

    const GOOD: &str = "#[async_trait] pub trait T: Send + Sync + 'static { \
                        async fn a(&self) -> u8; fn b<'x>(&self, text: &'x str) -> &'x str; }";

    #[test]
    fn a_trait_as_pinned_has_no_difference() {
        assert_eq!(check_members(GOOD, "T", &["b", "a"]), [""; 0]);
        let inner = format!("mod inner {{ {GOOD} }}");
        assert_eq!(check_members(&inner, "T", &["a", "b"]), [""; 0]);
    }

    #[test]
    fn every_way_out_of_the_pinned_members_is_named() {
        for (source, text) in [
            ("trait T { fn a(&self); }", "`b` is missing"),
            (
                "trait T { fn a(&self); fn b(&self); fn c(&self); }",
                "`c` is not pinned",
            ),
            (
                "trait T { fn a(&self) {} fn b(&self); }",
                "`a` has a default body",
            ),
            ("trait T: Other { fn a(&self); fn b(&self); }", "supertrait"),
            (
                "trait T: ?Sized + Send + Any { fn a(&self); fn b(&self); }",
                "supertrait",
            ),
            (
                "trait T<X> { fn a(&self); fn b(&self); }",
                "the trait is generic",
            ),
            (
                "trait T where Self: Any { fn a(&self); fn b(&self); }",
                "the trait is generic",
            ),
            (
                "trait T { fn a<X>(&self, x: X); fn b(&self); }",
                "`a` is generic",
            ),
            (
                "trait T { fn a(&self) where Self: Sized; fn b(&self); }",
                "`a` is generic",
            ),
            ("trait T { fn a(); fn b(&self); }", "without an instance"),
            (
                "trait T { const C: u8; fn a(&self); fn b(&self); }",
                "constant `C`",
            ),
            ("trait T { type X; fn a(&self); fn b(&self); }", "type `X`"),
            (
                "trait T { more!(); fn a(&self); fn b(&self); }",
                "cannot be read",
            ),
            ("trait U { fn a(&self); fn b(&self); }", "0 traits"),
            ("trait T { fn a(", "no Rust"),
        ] {
            let differences = check_members(source, "T", &["a", "b"]);
            assert!(
                differences.len() == 1 && differences[0].contains(text),
                "{source}: {differences:?}"
            );
        }
    }
}
