//! HTTP/1 as far as a proxy needs it, read strictly: what two parsers could read in two ways is refused.

pub(crate) mod body;
pub(crate) mod framing;
pub(crate) mod head;
pub(crate) mod read;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod upstream;
