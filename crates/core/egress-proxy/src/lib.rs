//! The egress proxy: decides each connection that leaves a sandbox.
//!
//! Invariant: no byte goes to an upstream that the sandbox's policy and the address rules did not both allow, and
//! nothing here decides by what a sandbox says about itself: the listener it speaks through is its identity.
//!
//! The contract, by clause, besides GT1 to GT4 of the gate:
//!
//! * **EP1** A sandbox speaks HTTP/1 to its listener: `CONNECT host:port`, or a request in absolute form for an
//!   `http:` URL. Everything else, and everything that two parsers could read in two ways, is answered 400 and
//!   the connection is closed; nothing of it goes upstream.
//! * **EP2** A destination that is not allowed is answered 403. Every answer of the proxy has the header
//!   `x-astrabox-egress-reason` and a JSON body `{"error": {type, reason, host, port, message}}`; it repeats no
//!   path, query, header or value of the request.
//! * **EP3** A name is resolved once per request, as it stands and without a search list, every answer is judged,
//!   one that must not be reached denies them all, and only those addresses are dialled.
//! * **EP4** A tunnel is judged by the target of its CONNECT and by nothing inside it; the fields of a CONNECT go
//!   nowhere. (There is no interception in this form: what is said inside a tunnel is between its ends.)
//! * **EP5** A request in absolute form goes upstream in origin form with the Host of its target, without
//!   hop-by-hop fields, on a connection of its own. Bodies are streamed both ways, each piece as it comes; chunk
//!   extensions and trailers end here. Upgrades are refused: they pass through CONNECT only.
//! * **EP6** A broken stream is passed on as broken: the connection is reset, never ended as if it were whole.
//! * **EP7** Each decision is one line of the audit log, and the end of each allowed exchange another.
//! * **EP8** A sandbox whose server is gone keeps its policy for `orphan_grace`; then everything is denied
//!   (`no_plan`) and its open connections are closed. A server that opens it again takes it over.
//! * **EP9** The control socket answers to the user that started the role, and to root.

mod answer;
mod audit;
mod config;
mod connection;
mod control;
mod credentials;
mod dial;
mod exchange;
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
