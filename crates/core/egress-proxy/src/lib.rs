//! The egress proxy: decides each connection that leaves a sandbox.
//!
//! Invariant: no byte goes to an upstream that the sandbox's policy and the address rules did not both allow, and
//! nothing here decides by what a sandbox says about itself: the listener it speaks through is its identity.
//! A credential's value goes nowhere but onto the wire to a host that its owner named.
//!
//! The contract, by clause, besides GT1 to GT7 of the gate:
//!
//! * **EP1** A sandbox speaks HTTP/1 to its listener: `CONNECT host:port`, or a request in absolute form for an
//!   `http:` URL. Everything else, and everything that two parsers could read in two ways, is answered 400 and
//!   the connection is closed; nothing of it goes upstream.
//! * **EP2** A destination that is not allowed is answered 403. Every answer of the proxy has the header
//!   `x-astrabox-egress-reason` and a JSON body `{"error": {type, reason, host, port, message}}`; it repeats no
//!   path, query, header or value of the request.
//! * **EP3** A name is resolved once per request, as it stands and without a search list, every answer is judged,
//!   one that must not be reached denies them all, and only those addresses are dialled.
//! * **EP4** A tunnel is judged by the target of its CONNECT; the fields of a CONNECT go nowhere, and a placeholder
//!   in them is refused. What is said inside a tunnel is between its ends, unless a credential may go to its host
//!   (EP10).
//! * **EP5** A request in absolute form goes upstream in origin form with the Host of its target, without
//!   hop-by-hop fields, on a connection of its own. Bodies are streamed both ways, each piece as it comes; chunk
//!   extensions and trailers end here. Upgrades are refused: they pass through CONNECT only. Placeholders are looked
//!   for as inside of a tunnel, and replaced where their owner allowed cleartext.
//! * **EP6** A broken stream is passed on as broken: the connection is reset, never ended as if it were whole.
//! * **EP7** Each decision is one line of the audit log, and the end of each allowed exchange another.
//! * **EP8** A sandbox whose server is gone keeps its policy for `orphan_grace`; then everything is denied
//!   (`no_plan`) and its open connections are closed. A server that opens it again takes it over.
//! * **EP9** The control socket answers to the user that started the role, and to root.
//! * **EP10** In a tunnel to a host and port that a credential may go to, TLS is ended. The client's hello must name
//!   the tunnel's host (an address: nobody), the upstream's certificate must be valid for it by the system's roots or
//!   the operator's, and only then does the client get a certificate of the deployment's authority for that host. An
//!   upstream that cannot prove its name is answered for with 502, before it got a byte of a request. Both sides
//!   speak one protocol, which the upstream chose: HTTP/2 or HTTP/1.1. Anything but TLS is refused, unless a
//!   credential may go to that host and port in the clear.
//! * **EP11** Every request inside names the tunnel's host and port and nothing else, in Host, `:authority` and an
//!   absolute target alike, and is judged by the credentials of that moment; one after the other on a connection,
//!   stream by stream in HTTP/2. A change of the credentials holds for the next request on an open connection. It
//!   ends the WebSockets that they could be put into, and tunnels that ran unseen to a host that they go to now.
//!   In the clear the same holds, and every request goes upstream on a connection of its own.
//! * **EP12** Nothing of a request goes upstream before its head and up to 1 MiB of its body were looked through. A
//!   longer body, one that pauses (for 250 ms; for 3 s where a length of at most 1 MiB is stated), and what is beyond
//!   32 MiB held for one sandbox, goes on piece by piece and is broken off, never ended, when a placeholder in it must
//!   be refused. Where a credential of the host lets placeholders pass as text, nothing is held back.
//! * **EP13** Answers are not looked through. They come back piece by piece, without what leads a client away from
//!   the proxy (`alt-svc`) or speaks in the proxy's name.
//! * **EP14** The only upgrade is to a WebSocket, inside of a tunnel that is not in the clear, and nothing is raw before the upstream has
//!   granted it in the one right form. Unless every placeholder passes, compression is not agreed on, and the client's
//!   messages are looked through across fragments.
//! * **EP15** Credentials are in the memory of the role and of the server that set them, and end with the sandbox or
//!   with the grace of EP8. A credential without a value refuses the requests that use it.
//! * **EP16** The authority's key lies in a file that only the user who starts the role can read, and in the role's
//!   memory. Certificates are made for hosts that passed EP10 only, dated back by 48 hours, valid for less than 30
//!   days.

mod answer;
mod audit;
mod budget;
mod config;
mod connection;
mod control;
mod credentials;
mod dial;
mod exchange;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod http;
mod inject;
mod intercept;
mod listener;
mod meter;
mod record;
mod resolve;
mod role;
mod services;
mod sockets;
mod static_hosts;
mod tls;
mod tunnel;
mod websocket;
mod workload;
mod workloads;

pub use answer::REASON_HEADER;
pub use audit::{AUDIT_FILE, AuditEvent, AuditKind};
pub use config::{EgressConfig, InvalidConfig};
pub use control::{Counts, RoleInfo, WorkloadState, WorkloadStatus};
pub use gate::{EgressGateClient, GateDeadlines, GateOptions, inspect_role, spawn_role};
pub use resolve::{Resolver, SystemResolver};
pub use role::{EgressRole, InvalidUser, RoleConfig, RoleError, RoleExit, role_main};
pub use static_hosts::StaticHosts;
