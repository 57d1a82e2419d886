//! Changes to what a credential is for. What it is for at all (its type, address, variable) never changes.

use astrabox_types::{
    AllowedRequests, ClientAuthMethod, CredentialNetworking, CredentialSpec, InjectionLocation,
    ModelKeyKind, Timestamp,
};

use crate::{Error, Result};

/// Changes to a credential's spec; `None` leaves a field as it is. A change of a field that the credential's type does
/// not have is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecChanges {
    /// `mcp_oauth`: when the access token ends; `Some(None)` means that it is not known.
    pub expires_at: Option<Option<Timestamp>>,
    /// `mcp_oauth` with a refresh.
    pub auth_method: Option<ClientAuthMethod>,
    /// `mcp_oauth` with a refresh.
    pub scope: Option<String>,
    /// `environment_variable`: in place of all hosts.
    pub networking: Option<CredentialNetworking>,
    /// `environment_variable`.
    pub injection_location: Option<InjectionChange>,
    /// `environment_variable`; `Some(None)` means every request.
    pub allowed_requests: Option<Option<AllowedRequests>>,
    /// `environment_variable`.
    pub allow_insecure_http: Option<bool>,
    /// `model_key`.
    pub kind: Option<ModelKeyKind>,
    /// `model_key`: in place of all models.
    pub models: Option<Vec<String>>,
}

/// Changes to where a value may stand; `None` leaves a place as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InjectionChange {
    /// In headers.
    pub header: Option<bool>,
    /// In the body.
    pub body: Option<bool>,
    /// In text messages of a WebSocket.
    pub websocket: Option<bool>,
}

impl SpecChanges {
    /// The spec with these changes.
    ///
    /// # Errors
    /// `INVALID_FIELD` for a field that this type of credential does not have.
    pub(crate) fn applied(self, mut spec: CredentialSpec) -> Result<CredentialSpec> {
        let mut left = self;
        match &mut spec {
            CredentialSpec::StaticBearer { .. }
            | CredentialSpec::McpStaticHeader { .. }
            | CredentialSpec::HttpBasic { .. } => {}
            CredentialSpec::McpOauth {
                expires_at,
                refresh,
                ..
            } => {
                set(expires_at, left.expires_at.take());
                if let Some(refresh) = refresh {
                    set(&mut refresh.auth_method, left.auth_method.take());
                    set(&mut refresh.scope, left.scope.take());
                }
            }
            CredentialSpec::EnvironmentVariable {
                secret_name: _,
                networking,
                injection_location,
                allowed_requests,
                allow_insecure_http,
            } => {
                set(networking, left.networking.take());
                if let Some(change) = left.injection_location.take() {
                    *injection_location = InjectionLocation {
                        header: change.header.unwrap_or(injection_location.header),
                        body: change.body.unwrap_or(injection_location.body),
                        websocket: change.websocket.unwrap_or(injection_location.websocket),
                    };
                }
                set(allowed_requests, left.allowed_requests.take());
                set(allow_insecure_http, left.allow_insecure_http.take());
            }
            CredentialSpec::ModelKey { kind, models, .. } => {
                set(kind, left.kind.take());
                set(models, left.models.take());
            }
        }
        match left.first() {
            None => Ok(spec),
            Some(field) => Err(Error::field(
                "update_mask",
                format!(
                    "names `{field}`, which this credential ({}) does not have",
                    spec.type_name()
                ),
            )),
        }
    }

    /// The first field that is to be changed.
    fn first(&self) -> Option<&'static str> {
        let Self {
            expires_at,
            auth_method,
            scope,
            networking,
            injection_location,
            allowed_requests,
            allow_insecure_http,
            kind,
            models,
        } = self;
        [
            ("expires_at", expires_at.is_some()),
            ("auth_method", auth_method.is_some()),
            ("scope", scope.is_some()),
            ("networking", networking.is_some()),
            ("injection_location", injection_location.is_some()),
            ("allowed_requests", allowed_requests.is_some()),
            ("allow_insecure_http", allow_insecure_http.is_some()),
            ("kind", kind.is_some()),
            ("models", models.is_some()),
        ]
        .into_iter()
        .find_map(|(name, given)| given.then_some(name))
    }
}

fn set<T>(field: &mut T, change: Option<T>) {
    if let Some(value) = change {
        *field = value;
    }
}
