//! The head of a request as it goes to its upstream.

use astrabox_egress::{BodyTreatment, Refusal, Scheme};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::http::framing::BodyLength;
use crate::http::request::{Forward, goes_on, write_framing};
use crate::inject::Injection;

/// Fields that concern the client's connection only, or that the proxy writes itself.
const NOT_PASSED_ON: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A head with its credentials in place. Not `Debug`: it holds them.
pub(crate) struct UpstreamHead {
    first_line: String,
    host: String,
    fields: Vec<(Bytes, Bytes)>,
    websocket: bool,
}

/// What is said about the connection and the body.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// How the end of the body is told.
    pub(crate) body: BodyLength,
    /// The client waits to be told to go on, by the upstream.
    pub(crate) expect: bool,
    /// Another request may follow.
    pub(crate) persistent: bool,
}

impl UpstreamHead {
    /// Puts credentials into the fields of a request that was judged.
    pub(crate) fn new(request: &Forward, injection: &mut Injection) -> Result<Self, Refusal> {
        let unseen = injection.messages() == BodyTreatment::Unseen;
        let passed = goes_on(&request.fields, NOT_PASSED_ON);
        let mut fields = Vec::new();
        for field in request.fields.iter() {
            // What ends here is looked through as well: a placeholder in it tells of a mistake.
            let value = injection.header(&field.name, &field.value)?;
            let extensions = field.name.eq_ignore_ascii_case(b"sec-websocket-extensions");
            // Messages that are looked through must not be compressed.
            if passed(field) && (unseen || !extensions) {
                let value = value.unwrap_or_else(|| field.value.clone());
                fields.push((field.name.clone(), value));
            }
        }
        let destination = &request.destination;
        let default = match destination.scheme {
            Scheme::Https => 443,
            Scheme::Http | Scheme::Tunnel => 80,
        };
        Ok(Self {
            first_line: format!("{} {} HTTP/1.1\r\n", request.method, injection.target()),
            host: match destination.port == default {
                true => destination.host.to_string(),
                false => destination.to_string(),
            },
            fields,
            websocket: request.upgrade.is_some(),
        })
    }

    /// The bytes. They are wiped when they are dropped.
    pub(crate) fn write(&self, terms: Terms) -> Zeroizing<Vec<u8>> {
        let fields = self.fields.iter();
        let length = fields.map(|(name, value)| name.len() + value.len() + 4);
        let length = length.sum::<usize>() + self.first_line.len() + self.host.len() + 256;
        // Of the right size at once: what grows leaves copies behind.
        let mut head = Zeroizing::new(Vec::with_capacity(length));
        head.extend_from_slice(self.first_line.as_bytes());
        let mut field = |name: &[u8], value: &[u8]| {
            for part in [name, b": ", value, b"\r\n"] {
                head.extend_from_slice(part);
            }
        };
        field(b"host", self.host.as_bytes());
        for (name, value) in &self.fields {
            field(name, value);
        }
        if terms.expect {
            field(b"expect", b"100-continue");
        }
        write_framing(&mut head, terms.body);
        head.extend_from_slice(if self.websocket {
            b"connection: Upgrade\r\nupgrade: websocket\r\n\r\n".as_slice()
        } else if terms.persistent {
            b"\r\n"
        } else {
            b"connection: close\r\n\r\n"
        });
        head
    }
}
