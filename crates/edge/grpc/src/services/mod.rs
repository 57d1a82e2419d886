//! The services, one file each, and their routes.

mod agents;
mod engines;
mod environments;
mod files;
mod sandboxes;
mod sessions;
mod vaults;
mod watch;

use astrabox_platform::Platform;
use astrabox_proto::v1::agent_service_server::AgentServiceServer;
use astrabox_proto::v1::engine_service_server::EngineServiceServer;
use astrabox_proto::v1::environment_service_server::EnvironmentServiceServer;
use astrabox_proto::v1::sandbox_service_server::SandboxServiceServer;
use astrabox_proto::v1::session_service_server::SessionServiceServer;
use astrabox_proto::v1::vault_service_server::VaultServiceServer;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::strict::MAX_REQUEST_BYTES;

/// The names that `grpc.health.v1.Health` knows: the whole server and each service.
const HEALTH_NAMES: [&str; 7] = [
    "",
    AgentServiceServer::<agents::Agents>::NAME,
    EngineServiceServer::<engines::Engines>::NAME,
    EnvironmentServiceServer::<environments::Environments>::NAME,
    SandboxServiceServer::<sandboxes::Sandboxes>::NAME,
    SessionServiceServer::<sessions::Sessions>::NAME,
    VaultServiceServer::<vaults::Vaults>::NAME,
];

/// Tells health checks whether the server serves.
pub(crate) struct Health(HealthReporter);

impl Health {
    /// From now on every service is told as not serving.
    pub(crate) async fn not_serving(&self) {
        for name in HEALTH_NAMES {
            self.0
                .set_service_status(name, ServingStatus::NotServing)
                .await;
        }
    }
}

/// All services; streams end when `drain` is cancelled.
pub(crate) fn routes(platform: &Platform, drain: &CancellationToken) -> (Routes, Health) {
    let (health, health_service) = health();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(astrabox_proto::DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptor set is generated together with the code");
    let routes = Routes::new(health_service)
        .add_service(reflection)
        .add_service(
            AgentServiceServer::new(agents::Agents(platform.clone()))
                .max_decoding_message_size(MAX_REQUEST_BYTES),
        )
        .add_service(EngineServiceServer::new(engines::Engines(platform.clone())))
        .add_service(EnvironmentServiceServer::new(environments::Environments(
            platform.clone(),
        )))
        .add_service(SandboxServiceServer::new(sandboxes::Sandboxes(
            platform.clone(),
        )))
        .add_service(
            SessionServiceServer::new(sessions::Sessions {
                platform: platform.clone(),
                drain: drain.clone(),
            })
            .max_decoding_message_size(MAX_REQUEST_BYTES),
        )
        .add_service(VaultServiceServer::new(vaults::Vaults(platform.clone())))
        .prepare();
    (routes, health)
}

fn health() -> (
    Health,
    tonic_health::pb::health_server::HealthServer<impl tonic_health::pb::health_server::Health>,
) {
    let reporter = HealthReporter::new();
    let service = tonic_health::server::HealthService::from_health_reporter(reporter.clone());
    (
        Health(reporter),
        tonic_health::pb::health_server::HealthServer::new(service),
    )
}
