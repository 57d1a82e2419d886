//! What may leave a sandbox and which placeholder stands for which credential, as pure rules.
//!
//! Invariant: opens no socket, resolves no name and never holds a real secret.
//!
//! The contract, by clause:
//!
//! * **EG1** A policy denies what it does not allow.
//! * **EG2** A host pattern is an exact name, an IP literal, or a leftmost `*.` before a name of at least two
//!   labels; `*.a.b` matches `x.a.b` and `x.y.a.b`, not `a.b`. Anything else is refused when written.
//! * **EG3** Names are compared in one canonical form: lower case, no trailing dot, ASCII.
//! * **EG4** A pattern without a port allows the ports 80 and 443 only; with a port, that port only.
//! * **EG5** Metadata services are denied whatever a policy or an operator says.
//! * **EG6** Loopback, private, link-local and other special addresses are denied unless the operator names
//!   them; IPv4 addresses inside IPv6 forms are judged by the embedded address.

mod address;
mod credential;
mod host;
mod path;
mod placeholder;
mod policy;
mod refusal;
mod request;
mod substitute;
mod target;

pub use address::{AddressClass, AddressRange, classify, is_metadata};
pub use credential::{BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, Places};
pub use host::{Host, HostPattern, InvalidHost, InvalidPattern};
pub use path::{InvalidPath, PathPattern};
pub use placeholder::{DIGITS, InvalidPlaceholder, MARKER, MintKey, Placeholder};
pub use policy::{Decision, DenyReason, Destination, EgressPolicy, Scheme};
pub use refusal::{Place, Refusal, RefusalReason};
pub use request::{
    BodyLength, BodyTreatment, RequestFacts, RequestRules, RequestScheme, overrides_method,
};
pub use substitute::{
    BodyRewriter, InvalidValue, MOST_VALUE_BYTES, Replaced, Surface, Values, check_value,
    holds_placeholder,
};
pub use target::{CanonicalTarget, Doubt, InvalidTarget};
