//! The configuration block. No value of it gets into an error: it may be the key.

use std::path::PathBuf;

use astrabox_secrets::Error;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::error::{invalid, io};
use crate::files;
use crate::seal::{KEY_BYTES, SealKey};

/// The master keys that the operator gives.
#[derive(Default)]
pub(crate) struct Config {
    /// The key.
    pub(crate) key: Option<SealKey>,
    /// The key before.
    pub(crate) previous: Option<SealKey>,
}

impl Config {
    /// Reads the block and the files that it names.
    pub(crate) fn parse(block: Value) -> Result<Self, Error> {
        let mut block = match block {
            Value::Null => Map::new(),
            Value::Object(block) => block,
            _ => return Err(invalid("", "must be a table")),
        };
        let key = take_key(&mut block, "key", "key_file")?;
        let previous = take_key(&mut block, "previous_key", "previous_key_file")?;
        if let Some(unknown) = block.keys().next() {
            return Err(invalid(
                unknown,
                "is not a setting; there are key, key_file, previous_key and previous_key_file",
            ));
        }
        if previous.is_some() && key.is_none() {
            return Err(invalid(
                "previous_key",
                "is given without a key that takes its place",
            ));
        }
        Ok(Self { key, previous })
    }
}

fn take_key(
    block: &mut Map<String, Value>,
    direct: &str,
    file: &str,
) -> Result<Option<SealKey>, Error> {
    let text = take_text(block, direct)?;
    let path = take_text(block, file)?;
    match (text, path) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(invalid(
            direct,
            "and its file are both given: leave one out",
        )),
        (Some(text), None) => parse_key(text.as_bytes())
            .map(Some)
            .ok_or_else(|| invalid(direct, FORM)),
        (None, Some(path)) => {
            let path = PathBuf::from(path.as_str());
            if !path.is_absolute() {
                return Err(invalid(file, "must be an absolute path"));
            }
            let text = match files::read_private(&path).map_err(files::NotPrivate::from) {
                Ok(text) => text,
                Err(files::NotPrivate(Some(error))) => {
                    return Err(io("build", "read the file of the master key")(error));
                }
                Err(files::NotPrivate(None)) => {
                    return Err(invalid(
                        file,
                        "can be read by other users, or belongs to one: make it yours, with mode 0600",
                    ));
                }
            };
            parse_key(&text)
                .map(Some)
                .ok_or_else(|| invalid(file, FORM))
        }
    }
}

const FORM: &str = "is not a key of 64 hexadecimal digits; `openssl rand -hex 32` makes one";

fn take_text(
    block: &mut Map<String, Value>,
    key: &str,
) -> Result<Option<Zeroizing<String>>, Error> {
    match block.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(Zeroizing::new(text))),
        Some(_) => Err(invalid(key, "must be a text")),
    }
}

/// 64 hexadecimal digits, and a line feed at the most.
pub(crate) fn parse_key(text: &[u8]) -> Option<SealKey> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    if text.len() != 2 * KEY_BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    SealKey::from_bytes(&*bytes)
}

/// The form that [`parse_key`] reads.
pub(crate) fn format_key(key: &SealKey) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
    for byte in key.bytes() {
        for half in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(half), 16).unwrap_or_default());
        }
    }
    text.push('\n');
    text
}
