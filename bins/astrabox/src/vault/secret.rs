//! Secrets come from files and from standard input, never from an argument: every user of the host can read those.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use astrabox_client::v1;

use crate::exit::Failure;

/// The longest secret, bytes; more is no secret but the wrong file.
const MOST: u64 = 65_536;

/// Where the parts of a secret come from.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Secret")]
pub(crate) struct SecretArgs {
    /// The file with the secret; `-` is standard input [default: -]. A line feed at the end does not count
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The file with the refresh token of an mcp-oauth credential
    #[arg(long, value_name = "FILE")]
    refresh_token_file: Option<PathBuf>,
    /// The file with the client's secret of an mcp-oauth credential
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
}

impl SecretArgs {
    /// The secret; its value comes from standard input unless another file is named.
    pub(crate) fn read(self) -> anyhow::Result<v1::CredentialSecret> {
        let file = self.secret_file.unwrap_or_else(|| PathBuf::from("-"));
        Ok(v1::CredentialSecret {
            value: part("--secret-file", Some(file))?,
            refresh_token: part("--refresh-token-file", self.refresh_token_file)?,
            client_secret: part("--client-secret-file", self.client_secret_file)?,
        })
    }

    /// The parts that are to be replaced: those that are named, or the value from standard input when none is.
    pub(crate) fn read_new(self) -> anyhow::Result<v1::CredentialSecret> {
        let named = self.refresh_token_file.is_some() || self.client_secret_file.is_some();
        if self.secret_file.is_some() || !named {
            return self.read();
        }
        Ok(v1::CredentialSecret {
            value: String::new(),
            refresh_token: part("--refresh-token-file", self.refresh_token_file)?,
            client_secret: part("--client-secret-file", self.client_secret_file)?,
        })
    }
}

fn part(option: &str, file: Option<PathBuf>) -> anyhow::Result<String> {
    match file {
        None => Ok(String::new()),
        Some(path) if path == Path::new("-") => {
            let input = io::stdin().lock();
            if input.is_terminal() {
                // What is typed would stand on the screen.
                let text =
                    format!("pipe the secret into this command, or name its file with {option}");
                return Err(Failure::usage(text));
            }
            text(input, option)
        }
        Some(path) => {
            let file = File::open(&path)
                .with_context(|| format!("{option}: {} cannot be opened", path.display()))?;
            text(file, option)
        }
    }
}

/// The text of a secret, without the line feed that editors and `echo` put behind it.
fn text(from: impl Read, option: &str) -> anyhow::Result<String> {
    // Room for all of it at once: a buffer that grows leaves copies behind.
    let mut bytes = Vec::with_capacity(MOST as usize + 8);
    from.take(MOST + 3)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{option}: it cannot be read"))?;
    let Ok(mut text) = String::from_utf8(bytes) else {
        return Err(Failure::usage(format!("{option}: it is no UTF-8 text")));
    };
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() || text.len() as u64 > MOST {
        return Err(Failure::usage(format!(
            "{option}: a secret has 1 to {MOST} bytes"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_feed_at_the_end_does_not_count() {
        for (given, wanted) in [("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n")] {
            assert_eq!(text(given.as_bytes(), "--x").expect("a secret"), wanted);
        }
        let long = "a".repeat(MOST as usize + 1);
        for wrong in [&b""[..], b"\n", b"\xff", long.as_bytes()] {
            let error = text(wrong, "--x").expect_err("it is no secret").to_string();
            assert!(error.starts_with("--x: "), "{error}");
        }
    }
}
