//! The environment that every process in a sandbox begins with.

use std::collections::BTreeMap;

use astrabox_egress::{CredentialGrant, CredentialPlan, HeaderPlace};
use astrabox_sandbox::{EGRESS_PROXY_PORT, HOME, IMAGE_ROOT};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Home, path, locale and the way out. Nothing of the host's environment is in it.
pub(crate) fn base_environment() -> BTreeMap<String, String> {
    let proxy = format!("http://127.0.0.1:{EGRESS_PROXY_PORT}");
    // The sandbox's own loopback: an exception here opens nothing outside.
    let direct = "localhost,127.0.0.1,::1".to_owned();
    let path = format!("{HOME}/.local/bin:{IMAGE_ROOT}/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        env.insert(name.to_owned(), value.to_owned());
    };
    set("HOME", HOME);
    set("USER", "agent");
    set("LOGNAME", "agent");
    set("SHELL", "/bin/sh");
    set("PATH", &path);
    set("LANG", "C.UTF-8");
    set("TZ", "UTC");
    set("TERM", "dumb");
    set("TMPDIR", "/tmp");
    // Programs differ in which case they read.
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        set(name, &proxy);
    }
    for name in ["no_proxy", "NO_PROXY"] {
        set(name, &direct);
    }
    env
}

/// The variables in which programs find their placeholders: each credential of an environment by its own name, and
/// those of repositories as settings of git.
pub(crate) fn credential_environment(plan: &CredentialPlan) -> BTreeMap<String, String> {
    let mut env: BTreeMap<_, _> = plan
        .environment
        .iter()
        .map(|grant| (grant.handle.clone(), grant.placeholder.to_string()))
        .collect();
    let repositories: Vec<_> = plan.http_basic.iter().filter_map(git_setting).collect();
    if !repositories.is_empty() {
        env.insert(
            "GIT_CONFIG_COUNT".to_owned(),
            repositories.len().to_string(),
        );
        // Nobody is there to be asked for a password.
        env.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
    }
    for (at, (key, value)) in repositories.into_iter().enumerate() {
        env.insert(format!("GIT_CONFIG_KEY_{at}"), key);
        env.insert(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
    env
}

/// Git shows this header for the repository's URL and what is below it.
fn git_setting(grant: &CredentialGrant) -> Option<(String, String)> {
    let HeaderPlace::Basic { username } = &grant.places.header else {
        return None;
    };
    let pair = BASE64.encode(format!("{username}:{}", grant.placeholder));
    Some((
        format!("http.{}.extraHeader", grant.handle),
        format!("Authorization: Basic {pair}"),
    ))
}

#[cfg(test)]
mod tests {
    use astrabox_egress::{BodyPlace, MintKey, Placeholder, Places};

    use super::*;

    #[test]
    fn programs_find_placeholders_by_their_own_names() {
        let grant = |handle: &str, header| CredentialGrant {
            credential_id: "vcrd_1".to_owned(),
            handle: handle.to_owned(),
            placeholder: Placeholder::mint(&MintKey::new([1; 32]), "sbx", handle),
            hosts: Vec::new(),
            anywhere: false,
            methods: Vec::new(),
            paths: Vec::new(),
            places: Places {
                header,
                body: BodyPlace::Refuse,
                websocket: false,
            },
            cleartext: false,
        };
        let username = "me".to_owned();
        let plan = CredentialPlan {
            environment: vec![grant("API_KEY", HeaderPlace::Any)],
            http_basic: vec![grant(
                "https://git.test/a/b",
                HeaderPlace::Basic { username },
            )],
            ..CredentialPlan::default()
        };
        let env = credential_environment(&plan);
        assert_eq!(env["API_KEY"], plan.environment[0].placeholder.as_str());
        assert_eq!(env["GIT_CONFIG_COUNT"], "1");
        assert_eq!(
            env["GIT_CONFIG_KEY_0"],
            "http.https://git.test/a/b.extraHeader"
        );
        let pair = env["GIT_CONFIG_VALUE_0"].strip_prefix("Authorization: Basic ");
        let pair = BASE64.decode(pair.expect("a header")).expect("base64");
        let wanted = format!("me:{}", plan.http_basic[0].placeholder);
        assert_eq!(String::from_utf8(pair).as_deref(), Ok(wanted.as_str()));
        assert!(credential_environment(&CredentialPlan::default()).is_empty());
    }
}
