//! The Codex engine: drives codex app-server over JSON-RPC.
