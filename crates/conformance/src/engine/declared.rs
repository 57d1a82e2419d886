//! EN1, EN2 and EN14 without a program: what an adapter says about itself is constant, sane and kept.

use std::collections::{BTreeMap, BTreeSet};

use astrabox_engine::{
    EngineCapabilities, ErrorKind, PermissionMode, SandboxRequestContext, check_options,
};
use astrabox_sandbox::{BoxPath, HOME};
use astrabox_types::{Json, PermissionLevel};
use serde_json::{Map, Value};

use super::EngineBench;
use crate::case::{check, check_eq, refused};
use crate::sample::sample_program;
use crate::suite::cases;
use crate::{Case, Checked, Doing as _};

pub(super) fn cases() -> Vec<Case<EngineBench>> {
    cases![
        the_kind_is_a_plain_name [EN1],
        what_is_declared_is_the_same_at_every_look [EN1 EN2],
        the_declared_lists_are_sane [EN2],
        the_default_mode_is_one_of_the_modes [EN2],
        unknown_options_are_refused [EN2],
        protected_options_are_refused_in_every_form [EN2],
        a_sandbox_can_be_asked_for_at_every_level [EN2],
        the_startup_material_is_sane [EN2],
    ]
}

async fn the_kind_is_a_plain_name(bench: &EngineBench) -> Checked {
    let kind = bench.adapter().kind();
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    check!(
        (1..=64).contains(&kind.len()) && kind.bytes().all(plain),
        "the kind {kind:?} is not 1 to 64 of a-z, 0-9 and _"
    );
    Ok(())
}

async fn what_is_declared_is_the_same_at_every_look(bench: &EngineBench) -> Checked {
    let adapter = bench.adapter();
    let (kind, capabilities) = (adapter.kind(), adapter.capabilities());
    let (recipe, material) = (adapter.image_recipe(), adapter.startup_material_request());
    for _ in 0..3 {
        check_eq!(adapter.kind(), kind, "the kind");
        check_eq!(adapter.capabilities(), capabilities, "the capabilities");
        check_eq!(adapter.image_recipe(), recipe, "the recipe");
        check_eq!(adapter.startup_material_request(), material, "the material");
        for context in contexts(&capabilities) {
            let (one, two) = (
                adapter.sandbox_request(&context).doing("sandbox request")?,
                adapter.sandbox_request(&context).doing("sandbox request")?,
            );
            check_eq!(one, two, "the sandbox request");
        }
    }
    Ok(())
}

fn contexts(capabilities: &EngineCapabilities) -> Vec<SandboxRequestContext> {
    let levels = [PermissionLevel::Default, PermissionLevel::Advanced];
    capabilities
        .session_kinds
        .iter()
        .flat_map(|kind| {
            levels.map(|permission_level| SandboxRequestContext {
                session_kind: *kind,
                permission_level,
                program: sample_program(capabilities),
            })
        })
        .collect()
}

fn no_doubles<'a>(names: impl Iterator<Item = &'a str>, what: &str) -> Checked {
    let mut seen = BTreeSet::new();
    for name in names {
        check!(!name.trim().is_empty(), "one of the {what} has no name");
        check!(seen.insert(name), "{what}: {name:?} is there twice");
    }
    Ok(())
}

async fn the_declared_lists_are_sane(bench: &EngineBench) -> Checked {
    let declared = bench.adapter().capabilities();
    check!(!declared.display_name.trim().is_empty(), "no display name");
    let kinds = declared.session_kinds;
    check!(!kinds.is_empty(), "no kind of session");
    no_doubles(kinds.iter().map(|kind| kind.as_str()), "session kinds")?;
    let types = declared.input_content_types;
    no_doubles(types.iter().copied(), "input content types")?;
    check!(types.contains(&"text"), "inputs cannot be text");
    for kind in types {
        check!(
            ["text", "image"].contains(kind),
            "there is no input type {kind:?}"
        );
    }
    let modes = declared.permission_modes;
    no_doubles(modes.iter().map(|mode| mode.name), "permission modes")?;
    let blocks = declared.option_blocks;
    no_doubles(blocks.iter().map(|block| block.name), "option blocks")?;
    for (name, description) in modes
        .iter()
        .map(|mode| (mode.name, mode.description))
        .chain(blocks.iter().map(|block| (block.name, block.description)))
    {
        check!(!description.trim().is_empty(), "{name:?} is not described");
    }
    Ok(())
}

async fn the_default_mode_is_one_of_the_modes(bench: &EngineBench) -> Checked {
    let declared = bench.adapter().capabilities();
    let modes: &[PermissionMode] = declared.permission_modes;
    let Some(default) = declared.default_permission_mode else {
        check!(modes.is_empty(), "it has modes and none is the default");
        return Ok(());
    };
    let Some(mode) = modes.iter().find(|mode| mode.name == default) else {
        check!(false, "the default mode {default:?} is not in the list");
        return Ok(());
    };
    check_eq!(
        mode.level,
        PermissionLevel::Default,
        "the permission level that the default mode needs"
    );
    Ok(())
}

fn options(block: &str, value: Value) -> BTreeMap<String, Json> {
    BTreeMap::from([(block.to_owned(), Json::from(value))])
}

async fn unknown_options_are_refused(bench: &EngineBench) -> Checked {
    let declared = bench.adapter().capabilities();
    check_options(&declared, &BTreeMap::new()).doing("no options")?;
    let unknown = options("no_such_block", Value::Object(Map::new()));
    let kinds = [ErrorKind::InvalidConfiguration];
    refused(
        check_options(&declared, &unknown),
        &kinds,
        "an unknown block",
    )?;
    for block in declared.option_blocks {
        check_options(&declared, &options(block.name, Value::Object(Map::new())))
            .doing(format!("an empty block `{}`", block.name))?;
        let no_object = options(block.name, Value::from(1));
        refused(
            check_options(&declared, &no_object),
            &kinds,
            "a block that is a number",
        )?;
    }
    Ok(())
}

async fn protected_options_are_refused_in_every_form(bench: &EngineBench) -> Checked {
    let declared = bench.adapter().capabilities();
    for block in declared.option_blocks {
        no_doubles(block.protected_keys.iter().copied(), "protected keys")?;
        for key in block.protected_keys {
            let parts: Vec<_> = key.split('.').collect();
            check!(
                parts.iter().all(|part| !part.trim().is_empty()),
                "the protected key {key:?} is not a dotted path"
            );
            let nested = parts.iter().rev().fold(Value::from(1), |inner, part| {
                Value::Object(Map::from_iter([((*part).to_owned(), inner)]))
            });
            let dotted = Value::Object(Map::from_iter([((*key).to_owned(), Value::from(1))]));
            for form in [nested, dotted] {
                let result = check_options(&declared, &options(block.name, form.clone()));
                let kinds = [ErrorKind::InvalidConfiguration];
                let error = refused(result, &kinds, &format!("{form} in `{}`", block.name))?;
                let text = error.to_string();
                check!(
                    text.contains(block.name) && text.contains(key),
                    "the refusal of {form} does not name `{}.{key}`: {text}",
                    block.name
                );
            }
        }
    }
    Ok(())
}

async fn a_sandbox_can_be_asked_for_at_every_level(bench: &EngineBench) -> Checked {
    let adapter = bench.adapter();
    let declared = adapter.capabilities();
    for context in contexts(&declared) {
        let request = adapter
            .sandbox_request(&context)
            .doing(format!("sandbox request for {context:?}"))?;
        check_eq!(request.model_wire, declared.model_wire, "the model wire");
        check!(!request.model_paths.is_empty(), "it calls no model");
        for call in request.model_paths {
            check!(
                ["GET", "POST"].contains(&call.method),
                "a model is not called by {}",
                call.method
            );
            let odd = ["..", "//", "?", "#", "*", " ", "\\", "%"];
            check!(
                call.path.starts_with('/')
                    && call.path.len() > 1
                    && !odd.iter().any(|part| call.path.contains(part)),
                "{:?} is not one path of an endpoint",
                call.path
            );
        }
    }
    Ok(())
}

async fn the_startup_material_is_sane(bench: &EngineBench) -> Checked {
    let material = bench.adapter().startup_material_request();
    let state = material.native_state;
    if state.directory.is_empty() {
        let named = bench.adapter().capabilities().names_program;
        check!(
            named,
            "the native state has no directory, and no environment gives one"
        );
        return Ok(());
    }
    BoxPath::new(format!("{HOME}/{}", state.directory)).doing(format!(
        "the native state's directory {:?}",
        state.directory
    ))?;
    check!(
        !state.files.is_empty(),
        "no kind of file is its native state"
    );
    for kind in state.files {
        check!(
            !kind.suffix.is_empty() && !kind.suffix.contains('/'),
            "{:?} is not the end of a file's name",
            kind.suffix
        );
    }
    no_doubles(material.secrets.iter().map(String::as_str), "secrets")?;
    for name in &material.secrets {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/');
        check!(
            name.len() <= 128 && name.bytes().all(plain),
            "{name:?} is not the name of a secret"
        );
    }
    Ok(())
}
