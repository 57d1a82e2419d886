//! What each type of credential may do, and where.

use astrabox_egress::{Host, MintKey};
use astrabox_model::CredentialRef;
use astrabox_types::{
    AllowedRequests, CredentialId, CredentialNetworking, InjectionLocation, ModelKeyKind, VaultId,
};

use super::*;

fn credential(spec: CredentialSpec) -> SessionCredential {
    SessionCredential {
        vault_id: VaultId::new(),
        id: CredentialId::new(),
        secret_version: 1,
        spec,
    }
}

fn access(base_url: &str, credential: Option<&SessionCredential>) -> ResolvedModelAccess {
    ResolvedModelAccess {
        base_url: base_url.to_owned(),
        model_name: "m".to_owned(),
        credential: credential.map(|known| CredentialRef {
            credential_id: known.id.to_string(),
        }),
        credential_kind: CredentialKind::ApiKey,
        endpoint_provider: "direct".to_owned(),
    }
}

fn server(name: &str, url: &str) -> McpServer {
    McpServer {
        name: name.to_owned(),
        transport: McpTransport::Http {
            url: url.to_owned(),
        },
    }
}

fn planned(
    credentials: &[SessionCredential],
    model: &ResolvedModelAccess,
    servers: &[McpServer],
) -> Planned {
    const PATHS: &[ModelPath] = &[
        ModelPath {
            method: "POST",
            path: "/v1/messages",
        },
        ModelPath {
            method: "GET",
            path: "/v1/models",
        },
        ModelPath {
            method: "POST",
            path: "/v1/messages/count_tokens",
        },
    ];
    let key = MintKey::new([3; 32]);
    let mint = |id: &str| Placeholder::mint(&key, "sbx", id);
    let uses = Uses {
        model,
        model_paths: PATHS,
        servers,
    };
    Planned::of(credentials, &uses, &mint).expect("they are well formed")
}

fn reaches(grant: &CredentialGrant, host: &str, port: u16) -> bool {
    let host: Host = host.parse().expect(host);
    grant.reaches(&host, port)
}

fn texts(paths: &[PathPattern]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

#[test]
fn a_model_key_goes_to_the_models_api_in_its_header_and_nowhere_else() {
    let key = credential(CredentialSpec::ModelKey {
        endpoint: "https://models.test/openai".to_owned(),
        kind: ModelKeyKind::ApiKey,
        models: Vec::new(),
    });
    let model = access("https://models.test/openai", Some(&key));
    let plan = planned(std::slice::from_ref(&key), &model, &[]).plan;
    let [grant] = plan.model.as_slice() else {
        panic!("one grant: {plan:?}")
    };
    assert_eq!(grant.credential_id, key.id.to_string());
    assert_eq!(grant.methods, ["GET", "POST"]);
    assert_eq!(
        texts(&grant.paths),
        [
            "/openai/v1/messages",
            "/openai/v1/models",
            "/openai/v1/messages/count_tokens"
        ]
    );
    assert_eq!(
        grant.places.header,
        HeaderPlace::Named("x-api-key".to_owned())
    );
    assert_eq!(grant.places.body, BodyPlace::Pass);
    assert!(!grant.cleartext);
    assert!(reaches(grant, "models.test", 443) && !reaches(grant, "x.models.test", 443));
    assert!(!reaches(grant, "models.test", 80));
    // Another key of the vaults is of no use to this session.
    assert!(
        planned(&[key], &access("https://models.test", None), &[])
            .plan
            .model
            .is_empty()
    );
}

#[test]
fn an_endpoint_in_the_clear_is_its_owners_word() {
    let key = credential(CredentialSpec::ModelKey {
        endpoint: "http://10.0.0.1:8000".to_owned(),
        kind: ModelKeyKind::Bearer,
        models: Vec::new(),
    });
    let mut model = access("http://10.0.0.1:8000", Some(&key));
    model.credential_kind = CredentialKind::Bearer;
    let plan = planned(&[key], &model, &[]).plan;
    assert!(plan.model[0].cleartext && reaches(&plan.model[0], "10.0.0.1", 8000));
    assert_eq!(
        plan.model[0].places.header,
        HeaderPlace::Named("authorization".to_owned())
    );
}

#[test]
fn an_mcp_credential_serves_the_server_of_its_address_and_the_first_one_counts() {
    let bearer = credential(CredentialSpec::StaticBearer {
        mcp_server_url: "https://MCP.test/mcp/".to_owned(),
    });
    let second = credential(CredentialSpec::McpStaticHeader {
        mcp_server_url: "https://mcp.test/mcp".to_owned(),
        header_name: "X-Key".to_owned(),
    });
    let idle = credential(CredentialSpec::StaticBearer {
        mcp_server_url: "https://other.test/mcp".to_owned(),
    });
    let servers = [
        server("far", "https://mcp.test/mcp"),
        server("free", "https://free.test"),
    ];
    let model = access("https://m.test", None);
    let Planned { plan, mcp_headers } =
        planned(&[bearer.clone(), second.clone(), idle], &model, &servers);
    let [grant] = plan.mcp.as_slice() else {
        panic!("one grant: {plan:?}")
    };
    assert_eq!(
        (grant.handle.as_str(), grant.credential_id.clone()),
        ("far", bearer.id.to_string())
    );
    assert_eq!(texts(&grant.paths), ["/mcp", "/mcp/"]);
    assert_eq!(grant.methods, ["GET", "POST", "DELETE"]);
    assert_eq!(grant.places.body, BodyPlace::Refuse);
    let header = McpHeader {
        server: "far".to_owned(),
        name: "authorization".to_owned(),
        value: format!("Bearer {}", grant.placeholder),
    };
    assert_eq!(mcp_headers, [header]);
    let Planned { plan, mcp_headers } = planned(&[second], &model, &servers);
    assert_eq!(
        plan.mcp[0].places.header,
        HeaderPlace::Named("x-key".to_owned())
    );
    assert_eq!(mcp_headers[0].value, plan.mcp[0].placeholder.to_string());
}

#[test]
fn a_repositorys_password_is_for_its_path_and_what_is_below() {
    let basic = credential(CredentialSpec::HttpBasic {
        url: "https://git.test/acme/tools.git".to_owned(),
        username: "bot".to_owned(),
    });
    let plan = planned(&[basic], &access("https://m.test", None), &[]).plan;
    let grant = &plan.http_basic[0];
    assert_eq!(grant.handle, "https://git.test/acme/tools.git");
    assert_eq!(texts(&grant.paths), ["/acme/tools.git/**"]);
    assert_eq!(grant.methods, ["GET", "HEAD", "POST"]);
    let username = "bot".to_owned();
    assert_eq!(grant.places.header, HeaderPlace::Basic { username });
}

#[test]
fn a_variable_has_the_places_and_requests_that_its_owner_allows() {
    let variable = |location: (bool, bool), requests: Option<(&[&str], &[&str])>| {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        credential(CredentialSpec::EnvironmentVariable {
            secret_name: "API_KEY".to_owned(),
            networking: CredentialNetworking::Limited(vec![
                "api.test".to_owned(),
                "*.api.test:8443".to_owned(),
            ]),
            injection_location: InjectionLocation {
                header: location.0,
                body: location.1,
                websocket: !location.0,
            },
            allowed_requests: requests.map(|(methods, paths)| AllowedRequests {
                methods: owned(methods),
                paths: owned(paths),
            }),
            allow_insecure_http: false,
        })
    };
    let model = access("https://m.test", None);
    let plan = planned(&[variable((true, false), None)], &model, &[]).plan;
    let grant = &plan.environment[0];
    assert_eq!(grant.handle, "API_KEY");
    assert_eq!(
        (&grant.places.header, grant.places.body),
        (&HeaderPlace::Any, BodyPlace::Refuse)
    );
    assert!(grant.methods.is_empty() && grant.paths.is_empty());
    assert!(reaches(grant, "api.test", 443) && reaches(grant, "x.api.test", 8443));
    assert!(!grant.places.websocket);
    let requests = Some((&["GET"][..], &["/v1/**"][..]));
    let plan = planned(&[variable((false, true), requests)], &model, &[]).plan;
    let grant = &plan.environment[0];
    assert_eq!(
        (&grant.places.header, grant.places.body),
        (&HeaderPlace::Refuse, BodyPlace::Replace)
    );
    assert!(grant.places.websocket);
    assert_eq!(
        (grant.methods.as_slice(), texts(&grant.paths)),
        (&["GET".to_owned()][..], vec!["/v1/**".to_owned()])
    );
}

#[test]
fn a_variable_for_every_host_allows_none_by_itself() {
    let variable = credential(CredentialSpec::EnvironmentVariable {
        secret_name: "API_KEY".to_owned(),
        networking: CredentialNetworking::Unrestricted,
        injection_location: InjectionLocation::default(),
        allowed_requests: None,
        allow_insecure_http: false,
    });
    let plan = planned(&[variable], &access("https://m.test", None), &[]).plan;
    let grant = &plan.environment[0];
    assert!(grant.anywhere && grant.hosts.is_empty());
    assert!(reaches(grant, "any.test", 443) && !reaches(grant, "any.test", 22));
    let host = "any.test".parse().expect("a host");
    assert!(plan.reaches(&host, 443) && !plan.allows(&host, 443));
}
