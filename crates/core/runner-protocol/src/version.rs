//! Which protocol versions this build speaks.

/// The newest protocol version.
pub const MAX_VERSION: u32 = 1;

/// The oldest protocol version: the one before the newest, once there is one.
pub const MIN_VERSION: u32 = 1;

/// The highest version that both sides speak, given what the other side speaks.
#[must_use]
pub fn negotiate(their_min: u32, their_max: u32) -> Option<u32> {
    let highest = their_max.min(MAX_VERSION);
    (highest >= their_min.max(MIN_VERSION)).then_some(highest)
}

#[cfg(test)]
mod tests {
    use super::{MAX_VERSION, negotiate};

    #[test]
    fn the_highest_common_version_is_chosen_or_none() {
        for (min, max, expected) in [
            (1, 1, Some(1)),
            (1, MAX_VERSION + 1, Some(MAX_VERSION)),
            (0, 0, None),
            (MAX_VERSION + 1, MAX_VERSION + 2, None),
            (2, 1, None),
        ] {
            assert_eq!(negotiate(min, max), expected, "{min}..={max}");
        }
    }
}
