//! Bodies and messages: placeholders are found however the bytes are cut, and what has none is not copied.

use bytes::Bytes;
use zeroize::Zeroizing;

use super::encoded::LONGEST_FORM;
use super::{LENGTH, Values, find_marker, holds_encoded, note};
use crate::{BodyPlace, CredentialGrant, MARKER, Place, Refusal, RefusalReason, RequestRules};

/// What streams by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Surface {
    /// The body of the request.
    Body,
    /// One text message of the WebSocket that the request opened, in any number of fragments.
    Message,
    /// One binary message of it: no credential may stand there.
    BinaryMessage,
}

/// Looks through one body or message and puts values in the place of placeholders (EG19).
///
/// Of what it is given it holds back at most the beginning of a placeholder, and only when the bytes at the end could
/// be one. After a refusal nothing more is to be sent; what has been emitted before holds no part of a placeholder
/// that is refused as unescaped.
pub struct BodyRewriter {
    rules: RequestRules,
    surface: Surface,
    /// A marker that is not whole, or a whole one and less than its digits.
    held: Vec<u8>,
    /// The last bytes that were seen, for escaped markers that are cut.
    seen: Vec<u8>,
    used: Vec<String>,
}

impl RequestRules {
    /// Begins to look through a body or message. Needed unless it is [`BodyTreatment::Unseen`](crate::BodyTreatment).
    #[must_use]
    pub fn rewriter(&self, surface: Surface) -> BodyRewriter {
        BodyRewriter {
            rules: self.clone(),
            surface,
            held: Vec::new(),
            seen: Vec::new(),
            used: Vec::new(),
        }
    }
}

impl BodyRewriter {
    /// Takes the next bytes and hands out what can go upstream, in order. Bytes without a placeholder come out as
    /// slices of what came in.
    ///
    /// # Errors
    /// At the first placeholder that may not stand there, escaped ones among them.
    pub fn push(
        &mut self,
        chunk: Bytes,
        values: &dyn Values,
        out: &mut impl Extend<Bytes>,
    ) -> Result<(), Refusal> {
        self.refuse_encoded(&chunk)?;
        let mut rest = chunk;
        while !self.held.is_empty() && !rest.is_empty() {
            rest = self.resume(rest, values, out)?;
        }
        while let Some(at) = find_marker(&rest) {
            emit(out, rest.split_to(at));
            if rest.len() < LENGTH {
                self.held.extend_from_slice(&rest);
                return Ok(());
            }
            let placeholder = rest.split_to(LENGTH);
            emit(out, self.substitute(&placeholder, values)?);
        }
        let tail = rest.split_off(rest.len() - marker_begun(&rest));
        self.held.extend_from_slice(&tail);
        emit(out, rest);
        Ok(())
    }

    /// Says that the body is complete.
    ///
    /// # Errors
    /// When it ends inside of a placeholder.
    pub fn finish(&mut self, out: &mut impl Extend<Bytes>) -> Result<(), Refusal> {
        if self.held.len() >= MARKER.len() {
            self.meant(&self.held)?;
        }
        emit(out, std::mem::take(&mut self.held).into());
        Ok(())
    }

    /// The ids of the credentials that have been put in so far.
    #[must_use]
    pub fn used(&self) -> &[String] {
        &self.used
    }

    /// Looks at what is held back together with what follows it, and gives back what is left of that.
    fn resume(
        &mut self,
        mut rest: Bytes,
        values: &dyn Values,
        out: &mut impl Extend<Bytes>,
    ) -> Result<Bytes, Refusal> {
        let before = self.held.len();
        // Enough for every placeholder that begins in what is held back.
        let taken = rest.len().min(LENGTH - 1);
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(&rest[..taken]);
        let start = find_marker(&joined).unwrap_or(joined.len() - marker_begun(&joined));
        if start >= before {
            // No placeholder begins there.
            joined.truncate(before);
            emit(out, joined.into());
            return Ok(rest);
        }
        let placeholder = joined.split_off(start);
        emit(out, joined.into());
        if placeholder.len() < LENGTH {
            // All of the rest is in it.
            self.held = placeholder;
            return Ok(Bytes::new());
        }
        emit(out, self.substitute(&placeholder[..LENGTH], values)?);
        Ok(rest.split_off(start + LENGTH - before))
    }

    fn substitute(&mut self, placeholder: &[u8], values: &dyn Values) -> Result<Bytes, Refusal> {
        let grant = self.meant(placeholder)?;
        let value = self.rules.value(grant, self.place(), values)?;
        let value = Bytes::from_owner(Zeroizing::new(value.to_vec()));
        let id = grant.credential_id.clone();
        note(&mut self.used, &id);
        Ok(value)
    }

    fn meant(&self, placeholder: &[u8]) -> Result<&CredentialGrant, Refusal> {
        let surface = self.surface;
        self.rules
            .meant(placeholder, self.place(), |grant| match surface {
                Surface::Body => grant.places.body == BodyPlace::Replace,
                Surface::Message => grant.places.websocket,
                Surface::BinaryMessage => false,
            })
    }

    fn place(&self) -> Place {
        match self.surface {
            Surface::Body => Place::Body,
            Surface::Message => Place::Message,
            Surface::BinaryMessage => Place::BinaryMessage,
        }
    }

    /// Looks for escaped markers in the chunk and across its beginning.
    fn refuse_encoded(&mut self, chunk: &[u8]) -> Result<(), Refusal> {
        let across = chunk.len().min(LONGEST_FORM - 1);
        self.seen.extend_from_slice(&chunk[..across]);
        if holds_encoded(&self.seen) || holds_encoded(chunk) {
            return Err(Refusal {
                reason: RefusalReason::Encoded,
                place: self.place(),
                credential_id: None,
            });
        }
        if chunk.len() >= LONGEST_FORM {
            self.seen.clear();
            self.seen.extend_from_slice(&chunk[chunk.len() - across..]);
        } else {
            let old = self.seen.len().saturating_sub(LONGEST_FORM - 1);
            self.seen.drain(..old);
        }
        Ok(())
    }
}

/// How many bytes at the end begin a marker that is not whole.
fn marker_begun(text: &[u8]) -> usize {
    let most = text.len().min(MARKER.len() - 1);
    let begins = |length: &usize| text.ends_with(&MARKER.as_bytes()[..*length]);
    (1..=most).rev().find(begins).unwrap_or(0)
}

fn emit(out: &mut impl Extend<Bytes>, bytes: Bytes) {
    if !bytes.is_empty() {
        out.extend([bytes]);
    }
}
