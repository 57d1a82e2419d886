//! The token file.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use astrabox_identity::Error;
use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::error::token_file;

/// The shortest token, characters, and the longest file, bytes.
const MIN_TOKEN: usize = 32;
const MAX_FILE: u64 = 64 << 10;
const MAX_NAME: usize = 64;

/// The name of a token that stands alone in its file.
const ALONE: &str = "default";

/// Names, each with the hash of its token. Has no Debug.
pub(crate) struct Tokens(Vec<(String, [u8; 32])>);

impl Tokens {
    /// Reads a token file that nobody else can read.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        // Asked of the open file, so that what is checked is what is read.
        let found = file.metadata().map_err(|error| unreadable(&error))?;
        if !found.is_file() {
            return Err(token_file("is not a file"));
        }
        if found.mode() & 0o077 != 0 {
            return Err(token_file("can be read by others: chmod 600 it"));
        }
        let own = rustix::process::geteuid().as_raw();
        if found.uid() != own && found.uid() != 0 {
            return Err(token_file("belongs to another user: chown it"));
        }
        let mut text = Zeroizing::new(String::new());
        let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
        match read.map_err(|error| unreadable(&error))? as u64 {
            0..=MAX_FILE => Self::parse(&text),
            _ => Err(token_file("is larger than 64 KiB")),
        }
    }

    fn parse(text: &str) -> Result<Self, Error> {
        let lines: Vec<_> = (1..)
            .zip(text.lines().map(str::trim))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut tokens: Vec<(String, [u8; 32])> = Vec::new();
        for (number, line) in &lines {
            let (name, token) = match line.split_once(':') {
                Some((name, token)) => (name.trim(), token.trim()),
                None if lines.len() == 1 => (ALONE, *line),
                None => return Err(wrong(*number, "is not `name:token`")),
            };
            check(*number, name, token)?;
            let hash = hash(token);
            if tokens.iter().any(|(_, other)| *other == hash) {
                return Err(wrong(*number, "has the token of another line"));
            }
            tokens.push((name.to_owned(), hash));
        }
        if tokens.is_empty() {
            return Err(token_file("has no token"));
        }
        Ok(Self(tokens))
    }

    /// Whose token this is. Takes the same time whichever it is, and if it is none.
    pub(crate) fn name_of(&self, token: &str) -> Option<&str> {
        let shown = hash(token);
        let mut found = u64::MAX;
        for (index, (_, hash)) in (0..).zip(&self.0) {
            found.conditional_assign(&index, shown.ct_eq(hash));
        }
        let (name, _) = self.0.get(usize::try_from(found).ok()?)?;
        Some(name)
    }
}

fn check(number: usize, name: &str, token: &str) -> Result<(), Error> {
    let is_name = (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if !is_name {
        return Err(wrong(
            number,
            "has a name that is not 1 to 64 letters, digits, `.`, `_` and `-`",
        ));
    }
    if token.len() < MIN_TOKEN {
        return Err(wrong(number, "has a token of less than 32 characters"));
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(wrong(
            number,
            "has a token with characters that no header holds",
        ));
    }
    Ok(())
}

/// Tokens are compared by their hashes: of one length, and not steered by whoever shows one.
fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn wrong(number: usize, what: &str) -> Error {
    token_file(&format!("is wrong: line {number} {what}"))
}

fn unreadable(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::InvalidData => token_file("is not text"),
        kind => token_file(&format!("cannot be read: {kind}")),
    }
}
