//! Pages of lists, with tokens that belong to one list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A page and the token of the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The token of the next page.
    pub next: Option<String>,
}

/// Where a list goes on. Opaque to clients; refused by every other list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageToken {
    list: String,
    after: Vec<String>,
}

impl PageToken {
    /// A place in a list: the sort keys of the last item given.
    #[must_use]
    pub fn new(list: &str, after: Vec<String>) -> Self {
        Self {
            list: list.to_owned(),
            after,
        }
    }

    /// As clients get it.
    #[must_use]
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).expect("a token is JSON"))
    }

    /// Reads a client's token for this list; no token means the beginning.
    ///
    /// # Errors
    /// `ForeignToken` for a token of another list or of nobody.
    pub fn decode(list: &str, keys: usize, text: Option<&str>) -> Result<Option<Vec<String>>> {
        let Some(text) = text else { return Ok(None) };
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| Error::ForeignToken)?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|_| Error::ForeignToken)?;
        if token.list != list || token.after.len() != keys {
            return Err(Error::ForeignToken);
        }
        Ok(Some(token.after))
    }
}

/// Cuts the extra row that tells whether there is a next page.
pub(crate) fn cut<T>(
    mut items: Vec<T>,
    size: u32,
    list: &str,
    keys: impl Fn(&T) -> Vec<String>,
) -> Page<T> {
    let size = size as usize;
    let more = items.len() > size;
    items.truncate(size);
    let next = items
        .last()
        .filter(|_| more)
        .map(|last| PageToken::new(list, keys(last)).encode());
    Page { items, next }
}
