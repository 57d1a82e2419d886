//! The registry of error reasons: every error that a client can get has one of these stable codes.

use serde::{Deserialize, Serialize};

/// What class of error a reason is; edges map it to their own status, exhaustively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is wrong in itself.
    InvalidArgument,
    /// The thing named does not exist, or not for this caller.
    NotFound,
    /// It exists already.
    AlreadyExists,
    /// The request is fine, the state is not.
    FailedPrecondition,
    /// Somebody else changed it at the same time.
    Aborted,
    /// The caller is known but may not.
    PermissionDenied,
    /// The caller is not known.
    Unauthenticated,
    /// A limit is reached.
    ResourceExhausted,
    /// The chosen engine or provider does not have this.
    Unimplemented,
    /// A part that is needed does not answer now.
    Unavailable,
    /// It took too long; whether it happened is not known.
    DeadlineExceeded,
    /// Stored state is torn or missing.
    DataLoss,
    /// A defect.
    Internal,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $kind:ident;)*) => {
        /// A stable code for one way to fail. Codes are never renamed or reused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorReason {
            $($(#[$doc])* #[serde(rename = $code)] $name,)*
        }

        impl ErrorReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Its class.
            #[must_use]
            pub const fn kind(self) -> ErrorKind {
                match self { $(Self::$name => ErrorKind::$kind,)* }
            }
        }
    };
}

reasons! {
    /// A field is missing, malformed or out of its limits; the message names it.
    InvalidField = "INVALID_FIELD", InvalidArgument;
    /// A field or enum value that this version does not know.
    UnknownField = "UNKNOWN_FIELD", InvalidArgument;
    /// The request is larger than its limit.
    TooLarge = "TOO_LARGE", ResourceExhausted;
    /// A page token or cursor that was not made for this list or session.
    ForeignCursor = "FOREIGN_CURSOR", InvalidArgument;
    /// The idempotency key was used with another request.
    IdempotencyKeyReused = "IDEMPOTENCY_KEY_REUSED", AlreadyExists;
    /// No agent has this id.
    AgentNotFound = "AGENT_NOT_FOUND", NotFound;
    /// The agent is archived and takes no new sessions.
    AgentArchived = "AGENT_ARCHIVED", FailedPrecondition;
    /// The version given is not the stored one.
    VersionConflict = "VERSION_CONFLICT", Aborted;
    /// No environment has this id or name.
    EnvironmentNotFound = "ENVIRONMENT_NOT_FOUND", NotFound;
    /// An environment of this name exists.
    EnvironmentNameTaken = "ENVIRONMENT_NAME_TAKEN", AlreadyExists;
    /// The environment is used by an agent.
    EnvironmentInUse = "ENVIRONMENT_IN_USE", FailedPrecondition;
    /// No engine of this kind is linked.
    EngineUnknown = "ENGINE_UNKNOWN", InvalidArgument;
    /// No sandbox provider of this name is linked.
    SandboxProviderUnknown = "SANDBOX_PROVIDER_UNKNOWN", InvalidArgument;
    /// No model endpoint provider of this name is linked.
    ModelProviderUnknown = "MODEL_PROVIDER_UNKNOWN", InvalidArgument;
    /// The image is not built; the message has the command that builds it.
    ImageMissing = "IMAGE_MISSING", FailedPrecondition;
    /// The model endpoint is not configured.
    ModelNotConfigured = "MODEL_NOT_CONFIGURED", FailedPrecondition;
    /// The agent's repository could not be put into the workspace.
    RepositoryUnavailable = "REPOSITORY_UNAVAILABLE", FailedPrecondition;
    /// No session has this id.
    SessionNotFound = "SESSION_NOT_FOUND", NotFound;
    /// The session is archived.
    SessionArchived = "SESSION_ARCHIVED", FailedPrecondition;
    /// The session's state does not allow this.
    SessionStateWrong = "SESSION_STATE_WRONG", FailedPrecondition;
    /// The session needs recovery; the message says what is missing.
    RecoveryRequired = "RECOVERY_REQUIRED", DataLoss;
    /// Too many inputs wait in this session.
    InputQueueFull = "INPUT_QUEUE_FULL", ResourceExhausted;
    /// No interaction of this session has this id.
    InteractionNotFound = "INTERACTION_NOT_FOUND", NotFound;
    /// The interaction is answered, expired or not yet its turn.
    InteractionClosed = "INTERACTION_CLOSED", FailedPrecondition;
    /// The answer does not fit what was asked.
    InteractionAnswerInvalid = "INTERACTION_ANSWER_INVALID", InvalidArgument;
    /// The session has no child run with this id.
    ChildRunNotFound = "CHILD_RUN_NOT_FOUND", NotFound;
    /// The engine has no permission mode of this name.
    PermissionModeUnknown = "PERMISSION_MODE_UNKNOWN", InvalidArgument;
    /// The engine or provider does not have this capability.
    CapabilityUnavailable = "CAPABILITY_UNAVAILABLE", Unimplemented;
    /// No sandbox has this id.
    SandboxNotFound = "SANDBOX_NOT_FOUND", NotFound;
    /// The sandbox could not be made or reached.
    SandboxUnavailable = "SANDBOX_UNAVAILABLE", Unavailable;
    /// Whether the sandbox is gone could not be proven.
    SandboxCleanupUnconfirmed = "SANDBOX_CLEANUP_UNCONFIRMED", Unavailable;
    /// The engine did not start or did not keep its protocol.
    EngineFailed = "ENGINE_FAILED", Unavailable;
    /// No file has this path.
    FileNotFound = "FILE_NOT_FOUND", NotFound;
    /// No vault has this id.
    VaultNotFound = "VAULT_NOT_FOUND", NotFound;
    /// The vault is archived and takes no credentials and no agents.
    VaultArchived = "VAULT_ARCHIVED", FailedPrecondition;
    /// The vault is used by an agent.
    VaultInUse = "VAULT_IN_USE", FailedPrecondition;
    /// No credential of this vault has this id.
    VaultCredentialNotFound = "VAULT_CREDENTIAL_NOT_FOUND", NotFound;
    /// The credential is archived: its secret is gone.
    VaultCredentialArchived = "VAULT_CREDENTIAL_ARCHIVED", FailedPrecondition;
    /// Another active credential of the vault, or of another vault of the same agent, is for the same thing.
    VaultCredentialConflict = "VAULT_CREDENTIAL_CONFLICT", AlreadyExists;
    /// The vault has as many active credentials as it may have.
    VaultCredentialLimit = "VAULT_CREDENTIAL_LIMIT", ResourceExhausted;
    /// The access token has ended and nothing refreshes it.
    VaultCredentialExpired = "VAULT_CREDENTIAL_EXPIRED", FailedPrecondition;
    /// The authorisation server refused to refresh the access token.
    VaultCredentialRefreshFailed = "VAULT_CREDENTIAL_REFRESH_FAILED", FailedPrecondition;
    /// The authorisation server does not answer now, or the secret cannot be read now.
    VaultCredentialUnavailable = "VAULT_CREDENTIAL_UNAVAILABLE", Unavailable;
    /// The server has no secret store, or the store cannot do this.
    SecretStoreUnavailable = "SECRET_STORE_UNAVAILABLE", FailedPrecondition;
    /// The server is shutting down.
    Draining = "DRAINING", Unavailable;
    /// Another owner has this session now.
    OwnerChanged = "OWNER_CHANGED", Aborted;
    /// The operation took longer than its deadline.
    DeadlineExceeded = "DEADLINE_EXCEEDED", DeadlineExceeded;
    /// The caller could not be identified.
    Unauthenticated = "UNAUTHENTICATED", Unauthenticated;
    /// The caller may not do this.
    PermissionDenied = "PERMISSION_DENIED", PermissionDenied;
    /// The store failed.
    StoreFailed = "STORE_FAILED", Unavailable;
    /// A defect of the server; the log has more.
    Internal = "INTERNAL", Internal;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_in_one_form() {
        let codes: BTreeSet<_> = ErrorReason::ALL
            .iter()
            .map(|reason| reason.code())
            .collect();
        assert_eq!(codes.len(), ErrorReason::ALL.len());
        for code in codes {
            assert!(
                code.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'),
                "{code}"
            );
        }
    }
}
