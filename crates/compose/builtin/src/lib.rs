//! Links the adapters that ship with AstraBox, one feature each.
//!
//! Invariant: names adapters and does nothing else; an adapter that is not named here is not in the programs.

#[cfg(feature = "engine-acp")]
use astrabox_engine_acp as _;
#[cfg(feature = "engine-claude-code")]
use astrabox_engine_claude_code as _;
#[cfg(feature = "engine-codex")]
use astrabox_engine_codex as _;
#[cfg(feature = "engine-deepseek-harness")]
use astrabox_engine_deepseek_harness as _;
#[cfg(feature = "engine-hermes")]
use astrabox_engine_hermes as _;
#[cfg(feature = "engine-pi")]
use astrabox_engine_pi as _;
#[cfg(feature = "identity-local")]
use astrabox_identity_local as _;
#[cfg(feature = "model-direct")]
use astrabox_model_direct as _;
#[cfg(feature = "model-litellm")]
use astrabox_model_litellm as _;
#[cfg(feature = "sandbox-local")]
use astrabox_sandbox_local as _;
#[cfg(feature = "secrets-local")]
use astrabox_secrets_local as _;
