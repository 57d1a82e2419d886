//! Every setting, as data: what the documentation, the checks and the types agree on.

use std::fmt::Write as _;

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name, as `server.drain_timeout`.
    pub path: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// Its default, for people.
    pub default: &'static str,
    /// What it does.
    pub summary: &'static str,
}

/// What the value of a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// An absolute path.
    Path,
    /// An IP address and a port.
    Address,
    /// A duration, as `30s`, `10m`, `1h 30m`.
    Duration,
    /// A whole number.
    Number,
    /// `true` or `false`.
    Flag,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Path => "path",
            Self::Address => "address",
            Self::Duration => "duration",
            Self::Number => "number",
            Self::Flag => "flag",
        }
    }

    /// Whether a variable's text is the value as it stands, also when it looks like a number.
    pub(crate) fn is_text(self) -> bool {
        match self {
            Self::Text | Self::Path | Self::Address | Self::Duration => true,
            Self::Number | Self::Flag => false,
        }
    }
}

/// Tables in which other components' keys may stand: any table, or any key at all.
pub(crate) const OPEN_TABLES: &[&str] = &["sandbox", "model", "identity", "secrets"];

/// The table whose unknown keys go to the egress proxy, which checks them.
pub(crate) const EGRESS: &str = "egress";

macro_rules! keys {
    ($($path:literal $kind:ident $default:literal $summary:literal;)*) => {
        /// Every setting, in the order of the documentation.
        pub const KEYS: &[Key] = &[$(Key {
            path: $path,
            kind: Kind::$kind,
            default: $default,
            summary: $summary,
        },)*];
    };
}

keys! {
    "state_dir" Path "root: `/var/lib/astrabox`; else `$XDG_STATE_HOME/astrabox` (`~/.local/state/astrabox`)"
        "Durable state: the store, the sandboxes' volumes, the audit log. One server at a time.";
    "run_dir" Path "root: `/run/astrabox`; else `$XDG_RUNTIME_DIR/astrabox`"
        "Sockets and locks. Short: at most 60 bytes. Emptied by a reboot.";
    "cache_dir" Path "root: `/var/cache/astrabox`; else `$XDG_CACHE_HOME/astrabox` (`~/.cache/astrabox`)"
        "What can be made again.";

    "server.socket" Path "`astrabox.sock` in `run_dir`"
        "The unix socket of the API, mode 0600 in a folder of mode 0700.";
    "server.tcp" Address "none"
        "An address to listen at as well, as `127.0.0.1:7400`. Only when the identity provider takes tokens.";
    "server.allow_plaintext" Flag "`false`"
        "Lets `server.tcp` be other than loopback. Nothing encrypts it: put something in front that does.";
    "server.callback_address" Text "none"
        "Where programs in sandboxes can call back; only engines that say so need it.";
    "server.drain_timeout" Duration "`30s`"
        "How long running calls get when the server ends.";

    "store.path" Path "`astrabox.db` in `state_dir`"
        "The SQLite database.";

    "sandbox.root_id" Text "made from `state_dir`"
        "What this server owns on a shared host: 1 to 32 of `a-z`, `0-9`, `-`. Two servers never share one.";
    "sandbox.default" Text "`local`"
        "The sandbox provider of environments that name none.";

    "model.default" Text "`direct`"
        "The model endpoint provider of environments that name none.";

    "identity.provider" Text "`local`"
        "The identity provider.";

    "secrets.provider" Text "`local`"
        "The store of the secrets in vaults.";

    "egress.program" Path "the server's own program"
        "The program that runs the egress role; it is called with `egress`.";

    "sessions.start_timeout" Duration "`1m`"
        "How long a start may take until the engine's conversation is bound.";
    "sessions.stall_timeout" Duration "`10m`"
        "How long a turn may be silent before it fails as `engine_stalled`. A line that is still coming is no silence.";
    "sessions.interrupt_timeout" Duration "`5s`"
        "How long each step of an interrupt may take: the program's own way, a signal, a kill.";
    "sessions.idle_timeout" Duration "`30m`"
        "How long a session may be idle before its sandbox is released.";
    "sessions.interaction_timeout" Duration "`24h`"
        "How long an interaction may wait for an answer.";
    "sessions.max_queued_inputs" Number "`100`"
        "How many inputs may wait in one session.";

    "limits.memory_bytes" Number "`4294967296`"
        "Memory of a sandbox whose environment does not say, bytes.";
    "limits.pids" Number "`512`"
        "Its processes and threads.";
    "limits.cpu_millis" Number "`4000`"
        "Its CPU time, thousandths of one core.";
    "limits.disk_bytes" Number "`10737418240`"
        "Its volume, bytes.";
    "limits.wall_seconds" Number "`0`"
        "How long one engine process may live, seconds; 0 means no limit.";

    "images.cache_dir" Path "`$XDG_CACHE_HOME/astrabox/images` (`~/.cache/astrabox/images`)"
        "Where built images are, for the server and for `astrabox image`.";

    "log.level" Text "`info`"
        "A level, or levels by target, as `warn,astrabox_platform=debug`.";
    "log.format" Text "`text`"
        "`text` for people, `json` for machines: one object a line, on standard error.";
}

/// The table of all settings, in Markdown, for `docs/configuration.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in KEYS {
        let Key {
            path,
            kind,
            default,
            summary,
        } = key;
        let kind = kind.name();
        let _ = writeln!(text, "| `{path}` | {kind} | {default} | {summary} |");
    }
    text
}

/// The setting of this name.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Whether this is the name of a table.
pub(crate) fn is_table(path: &str) -> bool {
    KEYS.iter().any(|key| {
        key.path
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// What stands directly in this table; the empty name is the root.
pub(crate) fn members(table: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = KEYS
        .iter()
        .filter_map(|key| match table {
            "" => Some(key.path),
            _ => key.path.strip_prefix(table)?.strip_prefix('.'),
        })
        .map(|rest| rest.split('.').next().unwrap_or(rest))
        .collect();
    names.dedup();
    names
}
