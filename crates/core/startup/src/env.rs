//! The environment that every process in a sandbox begins with.

use std::collections::BTreeMap;

use astrabox_sandbox::{EGRESS_PROXY_PORT, HOME, IMAGE_ROOT};

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
