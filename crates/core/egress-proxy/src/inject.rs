//! Puts credentials into one request: its head at once, its body piece by piece. What may stand where is decided by
//! the rules of `astrabox_egress`; here it meets the values.

use astrabox_egress::{
    BodyRewriter, BodyTreatment, Destination, Refusal, RequestFacts, RequestRules, RequestScheme,
    Scheme, Surface, overrides_method,
};
use bytes::Bytes;

use crate::credentials::Credentials;
use crate::workload::Workload;

/// The verdict on one request, and the credentials that it was judged by.
pub(crate) struct Injection {
    rules: RequestRules,
    credentials: Credentials,
    /// The credentials that are in the request by now.
    pub(crate) used: Vec<String>,
}

impl Injection {
    /// Judges a request by its method and target, and by the names of its header fields.
    pub(crate) fn judge<'a>(
        credentials: Credentials,
        destination: &Destination,
        method: &str,
        target: &str,
        mut names: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, Refusal> {
        let facts = RequestFacts {
            scheme: match destination.scheme {
                Scheme::Https => RequestScheme::Https,
                Scheme::Http | Scheme::Tunnel => RequestScheme::Http,
            },
            host: &destination.host,
            port: destination.port,
            method,
            target,
            overrides_method: names
                .any(|name| std::str::from_utf8(name).is_ok_and(overrides_method)),
        };
        Ok(Self {
            rules: credentials.plan().judge(&facts)?,
            credentials,
            used: Vec::new(),
        })
    }

    /// What the request was judged by.
    /// Whether values stand in the request, or are to be put into its body, that are others at the workload by now.
    pub(crate) fn is_stale(&self, workload: &Workload, treatment: BodyTreatment) -> bool {
        let holds_values = !self.used.is_empty() || treatment == BodyTreatment::Replace;
        holds_values && !workload.credentials().same_as(&self.credentials)
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Path and query as they go upstream.
    pub(crate) fn target(&self) -> &str {
        self.rules.target()
    }

    /// A field's value with credentials in it; nothing when it goes as it is.
    pub(crate) fn header(&mut self, name: &[u8], value: &[u8]) -> Result<Option<Bytes>, Refusal> {
        // Names are tokens, so they are ASCII.
        let name = std::str::from_utf8(name).unwrap_or_default();
        let replaced = self.rules.header(name, value, &self.credentials)?;
        Ok(replaced.map(|replaced| {
            self.note(&replaced.used);
            replaced.value
        }))
    }

    /// Refuses a trailer with a placeholder in it.
    pub(crate) fn trailer(&self, name: &str, value: &[u8]) -> Result<(), Refusal> {
        self.rules.trailer(name, value)
    }

    /// What becomes of the body.
    pub(crate) fn body(&self, content_encoding: &str) -> Result<BodyTreatment, Refusal> {
        self.rules.body(content_encoding)
    }

    /// What becomes of the messages of the WebSocket that the request opens.
    pub(crate) fn messages(&self) -> BodyTreatment {
        self.rules.messages()
    }

    /// Looks through a body or a message; with [`BodyTreatment::Unseen`] everything goes as it comes.
    pub(crate) fn filter(&self, treatment: BodyTreatment, surface: Surface) -> Filter {
        let seen = treatment != BodyTreatment::Unseen;
        Filter {
            rewriter: seen.then(|| self.rules.rewriter(surface)),
            credentials: self.credentials.clone(),
        }
    }

    pub(crate) fn note(&mut self, used: &[String]) {
        for id in used {
            if !self.used.contains(id) {
                self.used.push(id.clone());
            }
        }
    }
}

/// What a body or a message goes through.
pub(crate) struct Filter {
    rewriter: Option<BodyRewriter>,
    credentials: Credentials,
}

impl Filter {
    /// Takes the next bytes and hands out what can go upstream.
    pub(crate) fn push(&mut self, bytes: Bytes, out: &mut Vec<Bytes>) -> Result<(), Refusal> {
        match &mut self.rewriter {
            Some(rewriter) => rewriter.push(bytes, &self.credentials, out),
            None => {
                out.push(bytes);
                Ok(())
            }
        }
    }

    /// Says that there is no more.
    pub(crate) fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), Refusal> {
        match &mut self.rewriter {
            Some(rewriter) => rewriter.finish(out),
            None => Ok(()),
        }
    }

    /// The credentials that were put in.
    pub(crate) fn used(&self) -> &[String] {
        self.rewriter.as_ref().map_or(&[], BodyRewriter::used)
    }
}
