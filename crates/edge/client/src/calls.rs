//! One method a call. A mutating call without an idempotency key gets one.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status, Streaming};

use crate::connect::MAX_ANSWER_BYTES;
use crate::{Client, ClientError, v1};

macro_rules! calls {
    ($($(#[$doc:meta])* $kind:ident $service:literal $method:literal $name:ident($request:ident) -> $answer:ty;)*) => {
        impl Client {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// What the server answers, or [`crate::UNREACHABLE`].
                pub async fn $name(&self, request: v1::$request) -> Result<$answer, ClientError> {
                    let request = calls!(@$kind request);
                    self.unary(concat!("/astrabox.v1.", $service, "/", $method), request).await
                }
            )*
        }
    };
    (@read $request:ident) => { $request };
    (@write $request:ident) => {{
        let mut request = $request;
        if request.idempotency_key.is_empty() {
            request.idempotency_key = new_key();
        }
        request
    }};
}

calls! {
    /// Makes an agent.
    write "AgentService" "CreateAgent" create_agent(CreateAgentRequest) -> v1::CreateAgentResponse;
    /// One agent.
    read "AgentService" "GetAgent" get_agent(GetAgentRequest) -> v1::GetAgentResponse;
    /// A page of agents.
    read "AgentService" "ListAgents" list_agents(ListAgentsRequest) -> v1::ListAgentsResponse;
    /// A page of an agent's versions.
    read "AgentService" "ListAgentVersions" list_agent_versions(ListAgentVersionsRequest) -> v1::ListAgentVersionsResponse;
    /// Changes an agent.
    write "AgentService" "UpdateAgent" update_agent(UpdateAgentRequest) -> v1::UpdateAgentResponse;
    /// Takes no new sessions of an agent.
    write "AgentService" "ArchiveAgent" archive_agent(ArchiveAgentRequest) -> v1::ArchiveAgentResponse;

    /// Makes an environment.
    write "EnvironmentService" "CreateEnvironment" create_environment(CreateEnvironmentRequest) -> v1::CreateEnvironmentResponse;
    /// One environment.
    read "EnvironmentService" "GetEnvironment" get_environment(GetEnvironmentRequest) -> v1::GetEnvironmentResponse;
    /// A page of environments.
    read "EnvironmentService" "ListEnvironments" list_environments(ListEnvironmentsRequest) -> v1::ListEnvironmentsResponse;
    /// Changes an environment.
    write "EnvironmentService" "UpdateEnvironment" update_environment(UpdateEnvironmentRequest) -> v1::UpdateEnvironmentResponse;
    /// Removes an environment.
    write "EnvironmentService" "DeleteEnvironment" delete_environment(DeleteEnvironmentRequest) -> ();

    /// All engines.
    read "EngineService" "ListEngines" list_engines(ListEnginesRequest) -> v1::ListEnginesResponse;
    /// One engine.
    read "EngineService" "GetEngine" get_engine(GetEngineRequest) -> v1::GetEngineResponse;

    /// Makes a session.
    write "SessionService" "CreateSession" create_session(CreateSessionRequest) -> v1::CreateSessionResponse;
    /// One session.
    read "SessionService" "GetSession" get_session(GetSessionRequest) -> v1::GetSessionResponse;
    /// A page of sessions.
    read "SessionService" "ListSessions" list_sessions(ListSessionsRequest) -> v1::ListSessionsResponse;
    /// Sends an input.
    write "SessionService" "SendInput" send_input(SendInputRequest) -> v1::SendInputResponse;
    /// A page of the journal.
    read "SessionService" "ListEvents" list_events(ListEventsRequest) -> v1::ListEventsResponse;
    /// Stops the running turn.
    write "SessionService" "InterruptSession" interrupt_session(InterruptSessionRequest) -> v1::InterruptSessionResponse;
    /// The interactions of a session.
    read "SessionService" "ListInteractions" list_interactions(ListInteractionsRequest) -> v1::ListInteractionsResponse;
    /// Answers an interaction.
    write "SessionService" "RespondInteraction" respond_interaction(RespondInteractionRequest) -> v1::RespondInteractionResponse;
    /// Sets the permission mode.
    write "SessionService" "SetPermissionMode" set_permission_mode(SetPermissionModeRequest) -> v1::SetPermissionModeResponse;
    /// The child runs of a session.
    read "SessionService" "ListChildRuns" list_child_runs(ListChildRunsRequest) -> v1::ListChildRunsResponse;
    /// Asks the engine to stop a child run.
    write "SessionService" "StopChildRun" stop_child_run(StopChildRunRequest) -> v1::StopChildRunResponse;
    /// Ends the session's sandbox.
    write "SessionService" "ReleaseSandbox" release_sandbox(ReleaseSandboxRequest) -> v1::ReleaseSandboxResponse;
    /// Tries again to start a session.
    write "SessionService" "RecoverSession" recover_session(RecoverSessionRequest) -> v1::RecoverSessionResponse;
    /// Puts a session away.
    write "SessionService" "ArchiveSession" archive_session(ArchiveSessionRequest) -> v1::ArchiveSessionResponse;
    /// Removes a session.
    write "SessionService" "DeleteSession" delete_session(DeleteSessionRequest) -> ();
    /// What is in a directory of the session's sandbox.
    read "SessionService" "ListFiles" list_files(ListFilesRequest) -> v1::ListFilesResponse;

    /// Makes a vault.
    write "VaultService" "CreateVault" create_vault(CreateVaultRequest) -> v1::CreateVaultResponse;
    /// One vault, and who uses it.
    read "VaultService" "GetVault" get_vault(GetVaultRequest) -> v1::GetVaultResponse;
    /// A page of vaults.
    read "VaultService" "ListVaults" list_vaults(ListVaultsRequest) -> v1::ListVaultsResponse;
    /// Changes a vault.
    write "VaultService" "UpdateVault" update_vault(UpdateVaultRequest) -> v1::UpdateVaultResponse;
    /// Archives a vault and everything in it.
    write "VaultService" "ArchiveVault" archive_vault(ArchiveVaultRequest) -> v1::ArchiveVaultResponse;
    /// Removes a vault.
    write "VaultService" "DeleteVault" delete_vault(DeleteVaultRequest) -> ();
    /// Puts a credential into a vault.
    write "VaultService" "CreateVaultCredential" create_vault_credential(CreateVaultCredentialRequest) -> v1::CreateVaultCredentialResponse;
    /// One credential.
    read "VaultService" "GetVaultCredential" get_vault_credential(GetVaultCredentialRequest) -> v1::GetVaultCredentialResponse;
    /// A page of a vault's credentials.
    read "VaultService" "ListVaultCredentials" list_vault_credentials(ListVaultCredentialsRequest) -> v1::ListVaultCredentialsResponse;
    /// Rotates or changes a credential.
    write "VaultService" "UpdateVaultCredential" update_vault_credential(UpdateVaultCredentialRequest) -> v1::UpdateVaultCredentialResponse;
    /// Archives a credential.
    write "VaultService" "ArchiveVaultCredential" archive_vault_credential(ArchiveVaultCredentialRequest) -> v1::ArchiveVaultCredentialResponse;
    /// Removes a credential.
    write "VaultService" "DeleteVaultCredential" delete_vault_credential(DeleteVaultCredentialRequest) -> ();
    /// Encrypts every secret with a new key.
    write "VaultService" "RotateSecretKey" rotate_secret_key(RotateSecretKeyRequest) -> v1::RotateSecretKeyResponse;

    /// All sandboxes.
    read "SandboxService" "ListSandboxes" list_sandboxes(ListSandboxesRequest) -> v1::ListSandboxesResponse;
    /// One sandbox.
    read "SandboxService" "DescribeSandbox" describe_sandbox(DescribeSandboxRequest) -> v1::DescribeSandboxResponse;
    /// What a sandbox enforces.
    read "SandboxService" "GetSecurityPosture" get_security_posture(GetSecurityPostureRequest) -> v1::GetSecurityPostureResponse;
}

impl Client {
    /// Sends a text.
    ///
    /// # Errors
    /// As `send_input`.
    pub async fn send_text(
        &self,
        session_id: impl Into<String>,
        text: impl Into<String>,
    ) -> Result<v1::SendInputResponse, ClientError> {
        self.send_input(v1::SendInputRequest {
            session_id: session_id.into(),
            content: vec![text_part(text)],
            idempotency_key: String::new(),
        })
        .await
    }

    /// Reads a file of the session's sandbox, piece by piece.
    ///
    /// # Errors
    /// What the server answers, or [`crate::UNREACHABLE`].
    pub async fn read_file(&self, request: v1::ReadFileRequest) -> Result<FileReader, ClientError> {
        let stream = self
            .streaming("/astrabox.v1.SessionService/ReadFile", request)
            .await?;
        Ok(FileReader(stream))
    }

    /// Whether the server says that it serves (`grpc.health.v1.Health`).
    ///
    /// # Errors
    /// What the server answers, or [`crate::UNREACHABLE`].
    pub async fn is_serving(&self) -> Result<bool, ClientError> {
        use tonic_health::pb::{
            HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
        };
        let request = HealthCheckRequest {
            service: String::new(),
        };
        let answer: HealthCheckResponse =
            self.unary("/grpc.health.v1.Health/Check", request).await?;
        Ok(answer.status() == ServingStatus::Serving)
    }

    /// Calls a unary method by its path with an encoded message, and gives the encoded answer. For methods that this
    /// client does not know, and for tests of what no well-formed client sends.
    ///
    /// # Errors
    /// What the server answers, or [`crate::UNREACHABLE`].
    pub async fn call_raw(&self, path: &str, message: Bytes) -> Result<Bytes, ClientError> {
        let path = path
            .parse::<PathAndQuery>()
            .map_err(|_| ClientError::invalid(format!("`{path}` is not the path of a method")))?;
        let mut grpc = self.ready().await?;
        Ok(grpc
            .unary(self.authorized(message), path, RawCodec)
            .await?
            .into_inner())
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, ClientError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        Ok(grpc
            .unary(self.authorized(request), path, codec)
            .await?
            .into_inner())
    }

    pub(crate) async fn streaming<Q, A>(
        &self,
        path: &'static str,
        request: Q,
    ) -> Result<Streaming<A>, ClientError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        Ok(grpc
            .server_streaming(self.authorized(request), path, codec)
            .await?
            .into_inner())
    }

    async fn ready(&self) -> Result<tonic::client::Grpc<tonic::transport::Channel>, ClientError> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES);
        grpc.ready()
            .await
            .map_err(|error| ClientError::from(Status::from_error(Box::new(error))))?;
        Ok(grpc)
    }

    fn authorized<Q>(&self, message: Q) -> Request<Q> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request
                .metadata_mut()
                .insert("authorization", authorization.as_ref().clone());
        }
        request
    }
}

/// A text as content.
#[must_use]
pub fn text_part(text: impl Into<String>) -> v1::ContentPart {
    v1::ContentPart {
        part: Some(v1::content_part::Part::Text(text.into())),
    }
}

/// A fresh idempotency key, for a caller that repeats a call by itself: the same key with the same request is one deed.
#[must_use]
pub fn new_key() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// A file that comes in pieces.
pub struct FileReader(Streaming<v1::ReadFileResponse>);

impl FileReader {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// What the server answers, or [`crate::UNREACHABLE`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        Ok(self.0.message().await?.map(|piece| piece.content))
    }
}

/// Passes encoded messages through.
#[derive(Default)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = bytes.remaining();
        Ok(Some(bytes.copy_to_bytes(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_one_that_servers_take_and_no_two_are_the_same() {
        let (one, two) = (new_key(), new_key());
        assert_ne!(one, two);
        assert!((1..=128).contains(&one.len()) && one.bytes().all(|b| b.is_ascii_graphic()));
    }
}
