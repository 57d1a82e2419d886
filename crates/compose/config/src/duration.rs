//! Durations as people write them: `30s`, `10m`, `1h 30m`.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serializer, de};

pub(crate) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
    let value = SignedDuration::try_from(*value).unwrap_or(SignedDuration::MAX);
    to.collect_str(&format_args!("{value:#}"))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = || {
        de::Error::custom(format_args!(
            "`{text}` is not a duration; write it as `30s` or `10m`"
        ))
    };
    let value: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(value).map_err(|_| wrong())
}
