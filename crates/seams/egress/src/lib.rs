//! What may leave a sandbox and which placeholder stands for which credential, as pure rules.
//!
//! Invariant: opens no socket, resolves no name and never holds a real secret.
//!
//! The contract, by clause. Destinations:
//!
//! * **EG1** A policy denies what it does not allow.
//! * **EG2** A host pattern is an exact name, an IP literal, or a leftmost `*.` before a name of at least two
//!   labels; `*.a.b` matches `x.a.b` and `x.y.a.b`, not `a.b`. Anything else is refused when written.
//! * **EG3** Names are compared in one canonical form: lower case, no trailing dot, ASCII. Names of other scripts are
//!   written as `xn--`; nothing here converts them, because two converters disagree about some.
//! * **EG4** A pattern without a port allows the ports 80 and 443 only; with a port, that port only.
//! * **EG5** Metadata services are denied whatever a policy or an operator says.
//! * **EG6** Loopback, private, link-local and other special addresses are denied unless the operator names
//!   them; IPv4 addresses inside IPv6 forms are judged by the embedded address.
//! * **EG21** Ranges that the operator denies are denied whatever a policy allows, in every form of the address.
//! * **EG22** A range of addresses in a policy means destinations that are written as an address, never a name.
//!
//! Paths:
//!
//! * **EG7** A target has one canonical form, which is what rules match and what goes upstream, byte for byte. Only
//!   escapes of unreserved characters and the case of escapes are changed. The query is never read nor changed.
//! * **EG8** No credential goes to a target by which a server could leave the path that it names.
//! * **EG9** No credential with a rule about paths goes to a target whose segments servers disagree about.
//! * **EG10** In a path pattern `*` stays within one segment, and a last `**` means the path and all below it.
//!
//! Credentials:
//!
//! * **EG11** A credential may be used in a request when its rules allow host, port, scheme, method and path, all of
//!   them; over plain HTTP only when its owner said so. No methods means every method, no paths every path.
//! * **EG12** Methods are compared letter by letter. A request with a header that asks for another method counts as
//!   none of the methods that a rule names.
//! * **EG13** A placeholder that may not be used, in this request or where it stands, is refused: the request is not
//!   forwarded, with the placeholder neither. So is a marker without a placeholder of this workload behind it.
//! * **EG14** When a placeholder belongs to more than one grant, the one that may be used there is used. When two may
//!   and they are not of the same credential, it is refused as ambiguous.
//! * **EG15** No credential stands in a method, path, query, header name or trailer, nor in a header that steers the
//!   connection (`Host`, `Content-Length`, `Connection`, ...), whatever its places are. A cookie is a header.
//! * **EG16** An escaped placeholder is refused wherever it is seen: percent signs, JSON and HTML escapes, base64,
//!   UTF-16. None of it is ever replaced.
//! * **EG17** A Basic credential is decoded, looked through as a header's value, and encoded again.
//! * **EG18** What is put in is not looked at again: a value may hold what looks like a placeholder.
//! * **EG19** However a body is cut, the result is the same. A body without a placeholder is forwarded as the same
//!   bytes. At most the beginning of a placeholder is held back. A body of small stated length is looked through before
//!   anything goes upstream.
//! * **EG20** A value with a control character, an empty or an overlong one is refused when it is stored and when it
//!   is used.
//! * **EG23** Bodies and WebSocket messages of a request for which a usable credential says
//!   [`Pass`](BodyPlace::Pass) are not looked at. All others are, binary messages too, in which no credential stands.
//! * **EG24** A compressed body is refused at its head when a usable credential could stand in it; when none could, it
//!   is looked through as the bytes that it is.
//! * **EG25** A credential that may go anywhere goes to what the policy allows by itself, at the ports of EG4. It
//!   allows no destination; one that names its hosts allows those.

mod address;
mod credential;
mod destination;
mod host;
mod path;
mod placeholder;
mod policy;
mod refusal;
mod request;
mod substitute;
mod target;

pub use address::{AddressClass, AddressRange, AddressRules, classify, is_metadata};
pub use credential::{BodyPlace, CredentialGrant, CredentialPlan, HeaderPlace, Places};
pub use destination::{DestinationPattern, RangePattern};
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
