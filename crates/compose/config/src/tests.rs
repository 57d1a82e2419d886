use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn host() -> Host {
    Host::new(1000, |name| match name {
        "HOME" => Some(PathBuf::from("/home/somebody")),
        "XDG_RUNTIME_DIR" => Some(PathBuf::from("/run/user/1000")),
        _ => None,
    })
}

fn inputs() -> Inputs {
    Inputs {
        host: host(),
        ..Inputs::default()
    }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn with_file(text: &str) -> (tempfile::TempDir, Inputs) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.toml");
    std::fs::write(&file, text).expect("it is written");
    (
        folder,
        Inputs {
            file: Some(file),
            ..inputs()
        },
    )
}

fn refused(inputs: &Inputs) -> String {
    inputs.load().expect_err("it is refused").to_string()
}

/// The paths of all leaves.
fn leaves(prefix: &str, value: &Value, paths: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                leaves(&path, value, paths);
            }
        }
        _ => {
            paths.insert(prefix.to_owned());
        }
    }
}

#[test]
fn the_table_of_keys_and_the_types_are_the_same() {
    let config = serde_json::to_value(Config::defaults(&host())).expect("it is JSON");
    let mut typed = BTreeSet::new();
    leaves("", &config, &mut typed);
    let listed: BTreeSet<_> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(listed.len(), KEYS.len());
    assert_eq!(typed, listed);
}

#[test]
fn the_defaults_in_the_table_are_the_real_ones() {
    let config = serde_json::to_value(Config::defaults(&host())).expect("it is JSON");
    for key in KEYS {
        let Some(told) = key
            .default
            .strip_prefix('`')
            .and_then(|text| text.strip_suffix('`'))
        else {
            continue;
        };
        if told.contains('`') {
            continue;
        }
        let pointer = format!("/{}", key.path.replace('.', "/"));
        let real = match config.pointer(&pointer).expect("it exists") {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        assert_eq!(told, real, "{}", key.path);
    }
}

/// Another value than the default, as it is written in a file.
fn other_value(key: &Key) -> (&'static str, Value) {
    match (key.kind, key.path) {
        (_, "log.format") => ("\"json\"", json!("json")),
        (Kind::Text, _) => ("\"other-1\"", json!("other-1")),
        (Kind::Path, _) => ("\"/srv/other\"", json!("/srv/other")),
        (Kind::Address, _) => ("\"127.0.0.1:7400\"", json!("127.0.0.1:7400")),
        (Kind::Duration, _) => ("\"1m 30s\"", json!("1m 30s")),
        (Kind::Number, _) => ("123456789", json!(123_456_789)),
        (Kind::Flag, _) => ("true", json!(true)),
    }
}

#[test]
fn every_key_can_be_set_in_every_layer_and_survives_a_dump() {
    for key in KEYS {
        let (text, value) = other_value(key);
        let pointer = format!("/{}", key.path.replace('.', "/"));
        let plain = text.trim_matches('"');
        let line = match key.path.split_once('.') {
            None => format!("{} = {text}", key.path),
            Some((table, name)) => format!("[{table}]\n{name} = {text}"),
        };
        let (_folder, from_file) = with_file(&line);
        let name = format!("ASTRABOX_{}", key.path.replace('.', "__").to_uppercase());
        let from_variable = Inputs {
            variables: variables(&[(&name, plain)]),
            ..inputs()
        };
        let from_override = Inputs {
            overrides: vec![format!("{}={plain}", key.path)],
            ..inputs()
        };
        for inputs in [&from_file, &from_variable, &from_override] {
            let config = inputs
                .load()
                .unwrap_or_else(|error| panic!("{}: {error}", key.path));
            let json = serde_json::to_value(&config).expect("it is JSON");
            assert_eq!(json.pointer(&pointer), Some(&value), "{}", key.path);
            let (_folder, dumped) = with_file(&config.dump());
            let again = dumped
                .load()
                .unwrap_or_else(|error| panic!("{}: {error}", key.path));
            assert_eq!(again.dump(), config.dump(), "{}", key.path);
            let json = serde_json::to_value(&again).expect("it is JSON");
            assert_eq!(json.pointer(&pointer), Some(&value), "{}", key.path);
        }
    }
}

#[test]
fn a_later_layer_wins_setting_by_setting() {
    let (_folder, mut inputs) = with_file(
        "[sessions]\nstart_timeout = \"1s\"\nstall_timeout = \"1s\"\nidle_timeout = \"1s\"\n\
         [sandbox.local]\nbase = \"host\"\npool = 3\n",
    );
    inputs.variables = variables(&[
        ("ASTRABOX_SESSIONS__STALL_TIMEOUT", "2s"),
        ("ASTRABOX_SESSIONS__IDLE_TIMEOUT", "2s"),
        ("ASTRABOX_SANDBOX__LOCAL__POOL", "4"),
    ]);
    inputs.overrides = vec!["sessions.idle_timeout=3s".to_owned()];
    let config = inputs.load().expect("it is fine");
    let seconds = |duration: Duration| duration.as_secs();
    let sessions = &config.sessions;
    let told = [
        sessions.start_timeout,
        sessions.stall_timeout,
        sessions.idle_timeout,
        sessions.interrupt_timeout,
    ];
    assert_eq!(told.map(seconds), [1, 2, 3, 5]);
    assert_eq!(
        config.sandbox.providers["local"].value(),
        json!({ "base": "host", "pool": 4 })
    );
}

#[test]
fn an_unknown_key_is_refused_with_its_source_and_what_there_is() {
    for (text, parts) in [
        (
            "[server]\nsokcet = \"/x\"",
            &["`server.sokcet`", "config.toml", "socket, tcp"][..],
        ),
        ("sevrer = 1", &["`sevrer`", "state_dir, run_dir"]),
        (
            "[sandbox]\nrot_id = \"x\"",
            &[
                "`sandbox.rot_id`",
                "root_id, default and the providers' own tables",
            ],
        ),
        ("server = 1", &["`server`", "must be a table"]),
    ] {
        let (_folder, inputs) = with_file(text);
        let error = refused(&inputs);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let error = refused(&Inputs {
        variables: variables(&[("ASTRABOX_SERVER__SOKCET", "/x")]),
        ..inputs()
    });
    assert!(
        error.contains("the variable ASTRABOX_SERVER__SOKCET"),
        "{error}"
    );
    let error = refused(&Inputs {
        overrides: vec!["log.levle=debug".to_owned()],
        ..inputs()
    });
    assert!(error.contains("`log.levle` in the command line"), "{error}");
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_source_and_is_not_repeated() {
    let (_folder, file) = with_file("[sessions]\nmax_queued_inputs = \"hunter2\"");
    let variable = Inputs {
        variables: variables(&[("ASTRABOX_SERVER__ALLOW_PLAINTEXT", "hunter2")]),
        ..inputs()
    };
    let duration = Inputs {
        overrides: vec!["server.drain_timeout=".to_owned()],
        ..inputs()
    };
    let format = Inputs {
        overrides: vec!["log.format=hunter2".to_owned()],
        ..inputs()
    };
    for (inputs, parts) in [
        (&file, ["`sessions.max_queued_inputs`", "config.toml"]),
        (
            &variable,
            [
                "`server.allow_plaintext`",
                "the variable ASTRABOX_SERVER__ALLOW_PLAINTEXT",
            ],
        ),
        (&duration, ["`server.drain_timeout`", "the command line"]),
        (&format, ["`log.format`", "text, json"]),
    ] {
        let error = refused(inputs);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_file_that_is_named_must_be_there_and_be_toml() {
    let gone = Inputs {
        file: Some(PathBuf::from("/nowhere/config.toml")),
        ..inputs()
    };
    assert!(matches!(gone.load(), Err(ConfigError::Unreadable { .. })));
    let by_variable = Inputs {
        variables: variables(&[("ASTRABOX_CONFIG", "/nowhere/config.toml")]),
        ..inputs()
    };
    assert!(matches!(
        by_variable.load(),
        Err(ConfigError::Unreadable { .. })
    ));
    let (_folder, inputs) = with_file("a = 1\nb = hunter2\n");
    let error = refused(&inputs);
    assert!(
        error.contains("line 2") && !error.contains("hunter2"),
        "{error}"
    );
}

#[test]
fn variables_of_other_programs_are_no_settings() {
    let names = [
        "ASTRABOX_RUNNER",
        "ASTRABOX_SOCKET",
        "ASTRABOX_SERVER",
        "ASTRABOX_TOKEN_FILE",
    ];
    let pairs: Vec<_> = names.iter().map(|name| (*name, "/x")).collect();
    let config = Inputs {
        variables: variables(&pairs),
        ..inputs()
    }
    .load()
    .expect("it is fine");
    assert_eq!(config, Config::defaults(&host()));
}

#[test]
fn blocks_of_others_are_carried_as_they_stand() {
    let (_folder, mut inputs) = with_file(
        "[egress]\norphan_grace = \"1m\"\nallow_private = [\"10.0.0.0/8\"]\n\
         [egress.static_hosts]\n\"model.internal\" = \"127.0.0.1\"\n[model.direct]\nbase_url = \"http://x.test\"\n",
    );
    inputs.overrides = vec![
        "model.direct.models=[\"a\", \"b\"]".to_owned(),
        "egress.static_hosts={ \"model.internal:80\" = \"127.0.0.1:8080\" }".to_owned(),
    ];
    let config = inputs.load().expect("it is fine");
    assert_eq!(
        config.model.providers["direct"].value(),
        json!({ "base_url": "http://x.test", "models": ["a", "b"] })
    );
    let hosts = json!({ "model.internal": "127.0.0.1", "model.internal:80": "127.0.0.1:8080" });
    let egress =
        json!({ "orphan_grace": "1m", "allow_private": ["10.0.0.0/8"], "static_hosts": hosts });
    assert_eq!(config.egress.proxy.value(), egress);
}

#[test]
fn a_dump_shows_no_secret() {
    let overrides = vec![
        "model.direct.api_key=hunter2".to_owned(),
        "identity.local.token_file=/etc/t".to_owned(),
    ];
    let dump = Inputs {
        overrides,
        ..inputs()
    }
    .load()
    .expect("it is fine")
    .dump();
    assert!(
        !dump.contains("hunter2") && dump.contains("/etc/t"),
        "{dump}"
    );
}

#[test]
fn everything_that_cannot_be_meant_is_told_at_once() {
    let overrides = [
        "state_dir=here",
        "server.tcp=0.0.0.0:1",
        "limits.pids=1",
        "sessions.idle_timeout=0s",
        "sandbox.root_id=A/B",
        "sessions.max_queued_inputs=0",
    ];
    let overrides: Vec<_> = overrides.into_iter().map(str::to_owned).collect();
    let error = refused(&Inputs {
        overrides,
        ..inputs()
    });
    for key in [
        "state_dir:",
        "server.tcp:",
        "limits.pids:",
        "idle_timeout:",
        "root_id:",
        "max_queued_inputs:",
    ] {
        assert!(error.contains(key), "{key} in {error}");
    }
    let long = format!("run_dir=/{}", "x".repeat(60));
    assert!(
        refused(&Inputs {
            overrides: vec![long],
            ..inputs()
        })
        .contains("run_dir:")
    );
    let open = [
        "server.tcp=0.0.0.0:1".to_owned(),
        "server.allow_plaintext=true".to_owned(),
    ];
    Inputs {
        overrides: open.into(),
        ..inputs()
    }
    .load()
    .expect("it is said twice");
}

#[test]
fn folders_follow_the_user() {
    let root = Config::defaults(&Host::new(0, |name| {
        (name == "HOME").then(|| PathBuf::from("/home/root"))
    }));
    assert_eq!(root.state_dir, Path::new("/var/lib/astrabox"));
    assert_eq!(root.socket(), Path::new("/run/astrabox/astrabox.sock"));
    assert_eq!(
        root.images.cache_dir,
        Path::new("/home/root/.cache/astrabox/images")
    );
    let user = Config::defaults(&host());
    assert_eq!(
        user.state_dir,
        Path::new("/home/somebody/.local/state/astrabox")
    );
    assert_eq!(
        user.store_path(),
        Path::new("/home/somebody/.local/state/astrabox/astrabox.db")
    );
    assert_eq!(
        user.socket(),
        Path::new("/run/user/1000/astrabox/astrabox.sock")
    );
    let homeless = Config::defaults(&Host::new(7, |_| Some(PathBuf::from("relative"))));
    homeless.check().expect("it still works");
    assert!(homeless.run_dir.ends_with("astrabox-7/run"));
}

#[test]
fn a_root_follows_its_state_and_no_other() {
    let one = Config::below(Path::new("/srv/one"), &host());
    let two = Config::below(Path::new("/srv/two"), &host());
    assert_eq!(
        one.root_id(),
        Config::below(Path::new("/srv/one"), &host()).root_id()
    );
    assert_ne!(one.root_id(), two.root_id());
    one.check().expect("it has the right form");
}

#[test]
fn the_documentation_has_the_table_of_settings() {
    let document = include_str!("../../../../docs/configuration.md");
    assert!(
        document.contains(&reference()),
        "docs/configuration.md must hold this table:\n{}",
        reference()
    );
}
