//! WebSocket (RFC 6455) as far as a proxy needs it: the opening handshake, and frames whose text is looked through.

mod frame;
mod handshake;
mod relay;

pub(crate) use handshake::{Key, accepts};
pub(crate) use relay::relay;
