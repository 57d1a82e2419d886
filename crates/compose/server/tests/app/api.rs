//! What the API answers, over a socket.

use astrabox_client::{Client, ClientError, Code, v1};
use bytes::Bytes;
use prost::Message as _;
use prost_types::{FieldMask, FileDescriptorSet};

use crate::doubles::{config, connect, serve, start};

/// The paths of all methods of the API.
fn methods() -> Vec<String> {
    let set = FileDescriptorSet::decode(astrabox_proto::DESCRIPTOR_SET).expect("it is generated");
    let mut paths = Vec::new();
    for file in set.file {
        for service in &file.service {
            for method in &service.method {
                paths.push(format!(
                    "/{}.{}/{}",
                    file.package(),
                    service.name(),
                    method.name()
                ));
            }
        }
    }
    paths
}

#[tokio::test]
async fn nobody_may_call_anything_but_health_and_reflection() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path());
    config
        .identity
        .providers
        .entry("local".to_owned())
        .or_default()
        .set("users", false);
    let running = start(config).await.expect("it starts");
    let client = connect(&running).await;
    let methods = methods();
    assert!(methods.len() >= 30);
    for path in methods
        .iter()
        .map(String::as_str)
        .chain(["/astrabox.v1.SessionService/None", "/x.Y/Z"])
    {
        let error = client.call_raw(path, Bytes::new()).await.expect_err(path);
        assert_eq!(
            (error.code, error.reason.as_str()),
            (Code::Unauthenticated, "UNAUTHENTICATED"),
            "{path}"
        );
    }
    assert!(client.is_serving().await.expect("health is open"));
    // A reflection request that lists the services.
    let listed = client
        .call_raw(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            Bytes::from_static(b"\x3a\x01*"),
        )
        .await
        .expect("reflection is open");
    assert!(String::from_utf8_lossy(&listed).contains("astrabox.v1.SessionService"));
    running.shutdown().await;
}

fn environment(name: &str) -> v1::CreateEnvironmentRequest {
    let spec = v1::EnvironmentSpec {
        name: name.into(),
        engine: "codex".into(),
        ..Default::default()
    };
    v1::CreateEnvironmentRequest {
        spec: Some(spec),
        idempotency_key: String::new(),
    }
}

async fn refused<T>(call: impl Future<Output = Result<T, ClientError>>) -> (Code, String, String) {
    let error = call.await.err().expect("it is refused");
    let field = error.metadata.get("field").cloned().unwrap_or_default();
    (error.code, error.reason, field)
}

fn told(code: Code, reason: &str, field: &str) -> (Code, String, String) {
    (code, reason.to_owned(), field.to_owned())
}

#[tokio::test]
async fn bad_input_gets_its_exact_code_and_changes_nothing() {
    let (_folder, running) = serve().await;
    let client = connect(&running).await;
    bad_messages(&client).await;
    bad_fields(&client).await;
    assert!(
        client
            .all_environments()
            .await
            .expect("it lists")
            .is_empty()
    );
    assert!(client.all_agents(true).await.expect("it lists").is_empty());
    assert!(
        client
            .all_sessions(None, true)
            .await
            .expect("it lists")
            .is_empty()
    );
    running.shutdown().await;
}

async fn bad_messages(client: &Client) {
    const CREATE: &str = "/astrabox.v1.EnvironmentService/CreateEnvironment";
    let call = |path: &'static str, bytes: Vec<u8>| client.call_raw(path, bytes.into());
    let mut unknown = environment("x").encode_to_vec();
    unknown.extend([0x98, 0x06, 1]);
    let (code, reason, field) = refused(call(CREATE, unknown)).await;
    assert_eq!(
        (code, reason.as_str()),
        (Code::InvalidArgument, "UNKNOWN_FIELD")
    );
    assert_eq!(field, "astrabox.v1.CreateEnvironmentRequest.99");

    let mut level = environment("x");
    level.spec.as_mut().expect("it has one").permission_level = 9;
    let answer = refused(call(CREATE, level.encode_to_vec())).await;
    assert_eq!(
        answer,
        told(Code::InvalidArgument, "UNKNOWN_FIELD", "permission_level")
    );

    let answer = refused(call(CREATE, vec![0xff, 0xff])).await;
    assert_eq!(answer, told(Code::InvalidArgument, "INVALID_FIELD", ""));

    let mut large = environment("x");
    large.spec.as_mut().expect("it has one").description = "x".repeat(17 << 20);
    let answer = refused(client.create_environment(large)).await;
    assert_eq!(answer, told(Code::ResourceExhausted, "TOO_LARGE", ""));

    let answer = refused(call("/astrabox.v1.EnvironmentService/Nothing", Vec::new())).await;
    assert_eq!(answer.0, Code::Unimplemented);
}

async fn bad_fields(client: &Client) {
    let invalid = |field| told(Code::InvalidArgument, "INVALID_FIELD", field);
    let session = |id: &str| v1::GetSessionRequest {
        session_id: id.into(),
    };
    assert_eq!(
        refused(client.get_session(session(""))).await,
        invalid("session_id")
    );
    assert_eq!(
        refused(client.get_session(session("sesn_1"))).await,
        invalid("session_id")
    );
    let unknown = "sesn_0190a0b0c0d07000a0b0c0d0e0f0a0b0";
    let answer = refused(client.get_session(session(unknown))).await;
    assert_eq!(
        (answer.0, answer.1.as_str()),
        (Code::NotFound, "SESSION_NOT_FOUND")
    );

    let mut key = environment("x");
    key.idempotency_key = "k".repeat(129);
    assert_eq!(
        refused(client.create_environment(key)).await,
        invalid("idempotency_key")
    );
    assert_eq!(
        refused(client.create_environment(v1::CreateEnvironmentRequest::default())).await,
        invalid("spec")
    );
    let answer = refused(client.create_environment(environment("x"))).await;
    assert_eq!(
        (answer.0, answer.1.as_str()),
        (Code::InvalidArgument, "ENGINE_UNKNOWN")
    );

    let page = v1::ListAgentsRequest {
        page_size: -1,
        ..Default::default()
    };
    assert_eq!(
        refused(client.list_agents(page)).await,
        invalid("page_size")
    );
    let page = v1::ListAgentsRequest {
        page_token: "made up".into(),
        ..Default::default()
    };
    let answer = refused(client.list_agents(page)).await;
    assert_eq!(
        (answer.0, answer.1.as_str()),
        (Code::InvalidArgument, "FOREIGN_CURSOR")
    );

    let update = |paths: &[&str]| v1::UpdateEnvironmentRequest {
        environment: "x".into(),
        spec: Some(v1::EnvironmentSpec::default()),
        update_mask: Some(FieldMask {
            paths: paths.iter().map(|path| (*path).into()).collect(),
        }),
        ..Default::default()
    };
    assert_eq!(
        refused(client.update_environment(update(&[]))).await,
        invalid("update_mask")
    );
    assert_eq!(
        refused(client.update_environment(update(&["name"]))).await,
        invalid("update_mask")
    );
    let answer = refused(client.update_environment(update(&["colour"]))).await;
    assert_eq!(
        answer,
        told(Code::InvalidArgument, "UNKNOWN_FIELD", "update_mask")
    );
    let answer = refused(client.update_environment(update(&["image"]))).await;
    assert_eq!(
        (answer.0, answer.1.as_str()),
        (Code::NotFound, "ENVIRONMENT_NOT_FOUND")
    );
}
