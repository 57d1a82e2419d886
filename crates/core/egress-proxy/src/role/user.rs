//! Who a role that root starts runs as.

use rustix::fs::{Gid, Uid};

/// The user that has no rights anywhere, by convention.
const NOBODY: u32 = 65_534;

/// A user and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: Uid,
    pub(super) gid: Gid,
}

impl Identity {
    fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
        }
    }
}

/// A user that the role cannot run as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("egress.user: `{user}` {why}")]
pub struct InvalidUser {
    user: String,
    why: &'static str,
}

/// Whom to become; nobody when the role was not started by root.
pub(super) fn choose(user: Option<&str>) -> Result<Option<Identity>, InvalidUser> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    match user {
        Some(user) => {
            let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            parse(user, &passwd).map(Some)
        }
        None => {
            // In a user namespace that maps fewer users there may be nobody else to become, and its root is an
            // ordinary user outside.
            let mapped = |map: &str| {
                std::fs::read_to_string(map).map_or(true, |map| is_mapped(&map, NOBODY))
            };
            let known = mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map");
            Ok(known.then(|| Identity::new(NOBODY, NOBODY)))
        }
    }
}

fn parse(user: &str, passwd: &str) -> Result<Identity, InvalidUser> {
    let invalid = |why| InvalidUser {
        user: user.to_owned(),
        why,
    };
    let number = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    let identity = match user.split_once(':') {
        Some((uid, gid)) => number(uid).zip(number(gid)),
        None => match number(user) {
            Some(uid) => Some((uid, uid)),
            None => look_up(user, passwd),
        },
    };
    match identity {
        None => Err(invalid(
            "is neither a uid, nor uid:gid, nor a name in /etc/passwd",
        )),
        Some((0, _) | (_, 0)) => Err(invalid("is root, or of root's group, which it must not be")),
        Some((uid, gid)) => Ok(Identity::new(uid, gid)),
    }
}

/// The uid and gid of a name, as passwd(5) has them.
fn look_up(name: &str, passwd: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some((uid, gid))
    })
}

/// Whether a uid_map or gid_map (user_namespaces(7)) has this id.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(first)), Some(_), Some(Ok(count))) => {
                (first..first.saturating_add(count)).contains(&u64::from(id))
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_number_a_pair_or_a_name() {
        let passwd = "root:x:0:0::/root:/bin/sh\negress:x:990:991::/:/bin/false\nbad:x:y:z::/:\n";
        for (user, wanted) in [
            ("1234", Some((1234, 1234))),
            ("1234:5", Some((1234, 5))),
            ("egress", Some((990, 991))),
            ("0", None),
            ("0:0", None),
            ("5:0", None),
            ("root", None),
            ("nobody-here", None),
            ("bad", None),
            ("", None),
            (":", None),
            ("1:2:3", None),
            ("4294967295", None),
        ] {
            let wanted = wanted.map(|(uid, gid)| Identity::new(uid, gid));
            assert_eq!(parse(user, passwd).ok(), wanted, "{user:?}");
        }
    }

    #[test]
    fn a_namespace_tells_whom_it_maps() {
        for (map, wanted) in [
            ("         0          0 4294967295\n", true),
            ("0 1000 1\n", false),
            ("0 1000 1\n1 100000 65536\n", true),
            ("0 1000 1\n1 100000 65533\n", false),
            ("", false),
        ] {
            assert_eq!(is_mapped(map, NOBODY), wanted, "{map:?}");
        }
    }
}
