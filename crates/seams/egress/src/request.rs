//! The verdict on one request: which credentials may be put into it, and where.

use std::sync::Arc;

use crate::substitute::{find_marker, holds_encoded, placeholder_at};
use crate::{
    BodyPlace, CanonicalTarget, CredentialGrant, CredentialPlan, Host, Place, Refusal,
    RefusalReason,
};

/// How a request is spoken to its server; a WebSocket counts as what it began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestScheme {
    /// In the clear.
    Http,
    /// Over TLS whose certificate was verified.
    Https,
}

/// What the rules need to know of a request before its headers.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    /// How.
    pub scheme: RequestScheme,
    /// The host that SNI, certificate and Host header agree about.
    pub host: &'a Host,
    /// The port, from 1.
    pub port: u16,
    /// The method, as it was sent.
    pub method: &'a str,
    /// Path and query, as they were sent.
    pub target: &'a str,
    /// Whether one of the headers [`overrides_method`].
    pub overrides_method: bool,
}

/// Whether servers take another method than the request's from a header of this name (EG12).
#[must_use]
pub fn overrides_method(header_name: &str) -> bool {
    [
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
    ]
    .iter()
    .any(|name| header_name.eq_ignore_ascii_case(name))
}

/// What may be put into one request; made by [`CredentialPlan::judge`].
#[derive(Debug, Clone)]
pub struct RequestRules {
    plan: Arc<CredentialPlan>,
    /// One for each of the plan's grants, in their order.
    verdicts: Arc<[Result<(), RefusalReason>]>,
    target: String,
    passes: bool,
}

/// What becomes of the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyTreatment {
    /// It is forwarded unseen: a credential of this destination lets every placeholder through as text.
    Unseen,
    /// It is looked through and forwarded as it is, or refused; its length does not change.
    Scan,
    /// It is looked through, and values are put in: its length may change.
    Replace,
}

/// How the length of a forwarded body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyLength {
    /// As the request tells it.
    Keep,
    /// By the length of what goes upstream: the body is collected and looked through first, so nothing of the request
    /// has gone upstream when it is refused.
    Collect,
    /// Chunked, or by the end of the stream in HTTP/2: Content-Length is dropped.
    Stream,
}

impl BodyTreatment {
    /// How to tell the length of a body whose request stated `content_length` bytes, or none. A body of at most
    /// `limit` bytes is worth collecting. One whose length is not stated is never collected: its sender may wait for
    /// answers before it ends.
    #[must_use]
    pub fn length(self, content_length: Option<u64>, limit: u64) -> BodyLength {
        match (self, content_length) {
            (Self::Unseen, _) | (_, None | Some(0)) => BodyLength::Keep,
            (_, Some(length)) if length <= limit => BodyLength::Collect,
            (Self::Scan, Some(_)) => BodyLength::Keep,
            (Self::Replace, Some(_)) => BodyLength::Stream,
        }
    }
}

impl CredentialPlan {
    /// Decides which credentials may be put into a request (EG11, EG12).
    ///
    /// # Errors
    /// When a placeholder stands in the method or the target, in any form.
    pub fn judge(self: &Arc<Self>, facts: &RequestFacts<'_>) -> Result<RequestRules, Refusal> {
        let target = CanonicalTarget::parse(facts.target);
        let verdicts: Arc<[_]> = self
            .grants()
            .map(|grant| grant.judge(facts, target.as_ref().map_err(|error| *error)))
            .collect();
        let usable = || {
            let both = self.grants().zip(verdicts.iter());
            both.filter_map(|(grant, verdict)| verdict.is_ok().then_some(grant))
        };
        let matched = usable().any(|grant| !grant.paths.is_empty());
        let passes = usable().any(|grant| grant.places.body == BodyPlace::Pass);
        let rules = RequestRules {
            plan: Arc::clone(self),
            target: match &target {
                Ok(target) if matched => target.as_str().to_owned(),
                _ => facts.target.to_owned(),
            },
            verdicts,
            passes,
        };
        rules.refuse_any(facts.method.as_bytes(), Place::Method)?;
        rules.refuse_any(facts.target.as_bytes(), Place::Target)?;
        Ok(rules)
    }
}

impl CredentialGrant {
    fn judge(
        &self,
        facts: &RequestFacts<'_>,
        target: Result<&CanonicalTarget, crate::InvalidTarget>,
    ) -> Result<(), RefusalReason> {
        if !self.reaches(facts.host, facts.port) {
            return Err(RefusalReason::Destination);
        }
        if facts.scheme == RequestScheme::Http && !self.cleartext {
            return Err(RefusalReason::Cleartext);
        }
        let allowed = |method: &String| method == facts.method && !facts.overrides_method;
        if !self.methods.is_empty() && !self.methods.iter().any(allowed) {
            return Err(RefusalReason::Method);
        }
        let target = target.map_err(RefusalReason::Target)?;
        if self.paths.is_empty() {
            return Ok(());
        }
        if let Some(doubt) = target.doubt() {
            return Err(RefusalReason::Doubt(doubt));
        }
        match self.paths.iter().any(|path| path.matches(target)) {
            true => Ok(()),
            false => Err(RefusalReason::Path),
        }
    }
}

impl RequestRules {
    /// Path and query as they go upstream: in canonical form when a credential may be used because of its path, else
    /// as they were sent.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The credentials that may be put into this request in some place.
    pub fn usable(&self) -> impl Iterator<Item = &CredentialGrant> {
        let both = self.plan.grants().zip(self.verdicts.iter());
        both.filter_map(|(grant, verdict)| verdict.is_ok().then_some(grant))
    }

    /// What becomes of the body (EG23, EG24). `content_encoding` is the header's value, all of its lines joined by commas, empty
    /// when there is none.
    ///
    /// # Errors
    /// When values could be put into a body that is compressed.
    pub fn body(&self, content_encoding: &str) -> Result<BodyTreatment, Refusal> {
        if self.passes {
            return Ok(BodyTreatment::Unseen);
        }
        let replaces = |grant: &&CredentialGrant| grant.places.body == BodyPlace::Replace;
        let Some(grant) = self.usable().find(replaces) else {
            return Ok(BodyTreatment::Scan);
        };
        let mut codings = content_encoding.split(',').map(str::trim);
        if codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case("identity")) {
            return Ok(BodyTreatment::Replace);
        }
        Err(Refusal {
            reason: RefusalReason::ContentEncoding,
            place: Place::Body,
            credential_id: Some(grant.credential_id.clone()),
        })
    }

    /// What becomes of the messages of the WebSocket that the request opens (EG23). Unless it is [`BodyTreatment::Unseen`],
    /// the caller must not let both ends agree on an extension that compresses.
    #[must_use]
    pub fn messages(&self) -> BodyTreatment {
        if self.passes {
            BodyTreatment::Unseen
        } else if self.usable().any(|grant| grant.places.websocket) {
            BodyTreatment::Replace
        } else {
            BodyTreatment::Scan
        }
    }

    /// Refuses a trailer with a placeholder in it, in any form (EG15).
    ///
    /// # Errors
    /// When there is one.
    pub fn trailer(&self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        self.refuse_in_name(name)?;
        self.refuse_any(value, Place::Trailer)
    }

    /// Refuses the name of a header with a placeholder in it: as it was sent, and in lower case, as servers read it.
    pub(crate) fn refuse_in_name(&self, name: &str) -> Result<(), Refusal> {
        self.refuse_any(name.as_bytes(), Place::HeaderName)?;
        self.refuse_any(name.to_ascii_lowercase().as_bytes(), Place::HeaderName)
    }

    /// Refuses a text with a placeholder in it, in any form.
    pub(crate) fn refuse_any(&self, text: &[u8], place: Place) -> Result<(), Refusal> {
        if let Some(at) = find_marker(text) {
            let none = |_: &CredentialGrant| false;
            self.meant(placeholder_at(&text[at..]), place, none)?;
        }
        self.refuse_encoded(text, place)
    }

    pub(crate) fn refuse_encoded(&self, text: &[u8], place: Place) -> Result<(), Refusal> {
        if !holds_encoded(text) {
            return Ok(());
        }
        Err(Refusal {
            reason: RefusalReason::Encoded,
            place,
            credential_id: None,
        })
    }

    /// The one credential that a placeholder means in this place (EG14).
    pub(crate) fn meant(
        &self,
        placeholder: &[u8],
        place: Place,
        stands: impl Fn(&CredentialGrant) -> bool,
    ) -> Result<&CredentialGrant, Refusal> {
        let mut chosen: Option<&CredentialGrant> = None;
        let mut refused: Option<(&CredentialGrant, RefusalReason)> = None;
        for (grant, verdict) in self.plan.grants().zip(self.verdicts.iter()) {
            if grant.placeholder.as_str().as_bytes() != placeholder {
                continue;
            }
            let verdict = match verdict {
                Ok(()) if stands(grant) => Ok(()),
                Ok(()) => Err(RefusalReason::Place),
                Err(reason) => Err(*reason),
            };
            match (verdict, chosen) {
                (Ok(()), None) => chosen = Some(grant),
                // The same credential twice is the same value.
                (Ok(()), Some(other)) if other.credential_id == grant.credential_id => {}
                (Ok(()), Some(_)) => {
                    return Err(Refusal {
                        reason: RefusalReason::Ambiguous,
                        place,
                        credential_id: Some(grant.credential_id.clone()),
                    });
                }
                (Err(reason), _) => {
                    // Of two refusals the one that came further says more.
                    if refused.is_none_or(|(_, other)| reason.step() > other.step()) {
                        refused = Some((grant, reason));
                    }
                }
            }
        }
        chosen.ok_or_else(|| Refusal {
            reason: refused.map_or(RefusalReason::Unknown, |(_, reason)| reason),
            place,
            credential_id: refused.map(|(grant, _)| grant.credential_id.clone()),
        })
    }
}

impl RefusalReason {
    /// How far the rules were followed before they refused.
    const fn step(self) -> u8 {
        match self {
            Self::Unknown | Self::Encoded => 0,
            Self::Destination => 1,
            Self::Cleartext => 2,
            Self::Method => 3,
            Self::Target(_) | Self::Doubt(_) => 4,
            Self::Path => 5,
            Self::Place => 6,
            Self::Ambiguous | Self::Unavailable | Self::Unsafe | Self::ContentEncoding => 7,
        }
    }
}
