//! Putting values in the place of placeholders: in headers whole, in bodies as they stream by.

mod body;
mod encoded;
mod header;
mod value;

use std::sync::LazyLock;

use memchr::memmem::Finder;

pub use body::{BodyRewriter, Surface};
pub(crate) use encoded::holds_encoded;
pub use header::Replaced;
pub use value::{InvalidValue, MOST_VALUE_BYTES, Values, check_value};

use crate::{DIGITS, MARKER};

/// The length of a placeholder.
const LENGTH: usize = MARKER.len() + DIGITS;

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MARKER));

/// Where the first marker begins.
pub(crate) fn find_marker(text: &[u8]) -> Option<usize> {
    FINDER.find(text)
}

/// What stands in the place of a placeholder at the beginning of a text; shorter at its end.
pub(crate) fn placeholder_at(text: &[u8]) -> &[u8] {
    &text[..text.len().min(LENGTH)]
}

/// Whether a text holds a placeholder of any workload, as it is or escaped. For what no rule lets one stand in, as the
/// head of a CONNECT request (EG16).
#[must_use]
pub fn holds_placeholder(text: &[u8]) -> bool {
    find_marker(text).is_some() || holds_encoded(text)
}

fn note(used: &mut Vec<String>, credential_id: &str) {
    if !used.iter().any(|id| id == credential_id) {
        used.push(credential_id.to_owned());
    }
}
