//! The log, on standard error.

use anyhow::{Context as _, ensure};
use astrabox_config::LogFormat;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Reads `log.level`: a level, or levels by target.
pub(crate) fn filter(level: &str) -> anyhow::Result<Targets> {
    let wrong =
        || format!("log.level: `{level}` is not as `info` or `warn,astrabox_platform=debug`");
    // A word alone would be taken for a target: a misspelt level must not silence the log.
    let is_part = |part: &str| {
        !part.is_empty() && (part.contains('=') || part.parse::<LevelFilter>().is_ok())
    };
    ensure!(level.split(',').all(|part| is_part(part.trim())), wrong());
    level.parse().with_context(wrong)
}

/// Installs the log for the rest of the process.
pub(crate) fn install(filter: Targets, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            lines.with_ansi(colours).with_filter(filter).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(lines).init();
}

/// The egress role's log: what it has to say is little, and in a file of its own.
pub(crate) fn for_role() {
    install(
        Targets::new().with_default(tracing::Level::INFO),
        LogFormat::Text,
    );
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn levels_are_read_and_misspelt_ones_refused() {
        for good in [
            "info",
            "off",
            "WARN",
            "warn,astrabox_platform=debug",
            "astrabox_grpc=trace",
        ] {
            filter(good).expect(good);
        }
        for wrong in ["", "infoo", "warn,", "astrabox_grpc", "a=loud"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }
}
