//! Each rule of each field, as data.

use astrabox_store::CredentialRow;
use astrabox_types::{
    AllowedRequests, ClientAuthMethod, CredentialId, CredentialNetworking, CredentialSecret,
    CredentialSpec, ErrorReason, InjectionLocation, ModelKeyKind, OauthRefresh, Secret, Timestamp,
    VaultCredential, VaultId,
};

use crate::vault::{SpecChanges, check, chosen};

fn bearer(url: &str) -> CredentialSpec {
    CredentialSpec::StaticBearer {
        mcp_server_url: url.to_owned(),
    }
}

fn header(name: &str) -> CredentialSpec {
    CredentialSpec::McpStaticHeader {
        mcp_server_url: "https://mcp.example".to_owned(),
        header_name: name.to_owned(),
    }
}

fn basic(url: &str, username: &str) -> CredentialSpec {
    CredentialSpec::HttpBasic {
        url: url.to_owned(),
        username: username.to_owned(),
    }
}

fn model(endpoint: &str) -> CredentialSpec {
    CredentialSpec::ModelKey {
        endpoint: endpoint.to_owned(),
        kind: ModelKeyKind::Bearer,
        models: Vec::new(),
    }
}

fn oauth(token_endpoint: &str, client_id: &str, auth_method: ClientAuthMethod) -> CredentialSpec {
    CredentialSpec::McpOauth {
        mcp_server_url: "https://mcp.example".to_owned(),
        expires_at: None,
        refresh: Some(OauthRefresh {
            token_endpoint: token_endpoint.to_owned(),
            client_id: client_id.to_owned(),
            auth_method,
            scope: String::new(),
        }),
    }
}

fn variable(name: &str, hosts: &[&str]) -> CredentialSpec {
    CredentialSpec::EnvironmentVariable {
        secret_name: name.to_owned(),
        networking: CredentialNetworking::Limited(
            hosts.iter().map(|host| (*host).to_owned()).collect(),
        ),
        injection_location: InjectionLocation::default(),
        allowed_requests: None,
        allow_insecure_http: false,
    }
}

fn requests(methods: &[&str], paths: &[&str]) -> CredentialSpec {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let mut spec = variable("TOKEN", &["a.example"]);
    if let CredentialSpec::EnvironmentVariable {
        allowed_requests, ..
    } = &mut spec
    {
        *allowed_requests = Some(AllowedRequests {
            methods: owned(methods),
            paths: owned(paths),
        });
    }
    spec
}

#[test]
fn what_a_spec_may_say_is_put_into_one_form() {
    for (given, kept) in [
        (
            bearer("HTTPS://MCP.Example/Path/"),
            bearer("https://mcp.example/Path"),
        ),
        (
            bearer("https://mcp.example:8443"),
            bearer("https://mcp.example:8443"),
        ),
        (header("X-Api-Key"), header("x-api-key")),
        (
            basic("https://Git.Example/owner/repo.git/", "x-access-token"),
            basic("https://git.example/owner/repo.git", "x-access-token"),
        ),
        (
            variable("GITHUB_TOKEN", &["API.GitHub.com", "*.files.example:8443"]),
            variable("GITHUB_TOKEN", &["api.github.com", "*.files.example:8443"]),
        ),
        (
            requests(&["get"], &["/v1/*"]),
            requests(&["GET"], &["/v1/*"]),
        ),
        (requests(&[], &["/a/**"]), requests(&[], &["/a/**"])),
        (
            model("https://Models.Example/api/"),
            model("https://models.example/api"),
        ),
        (
            oauth("http://127.0.0.1:9/token", "c", ClientAuthMethod::None),
            oauth("http://127.0.0.1:9/token", "c", ClientAuthMethod::None),
        ),
    ] {
        let checked =
            check::spec(given.clone()).unwrap_or_else(|error| panic!("{given:?}: {error}"));
        assert_eq!(checked, kept);
        assert_eq!(check::spec(kept.clone()).expect("it is its own form"), kept);
    }
}

#[test]
fn what_a_spec_may_not_say_is_refused_by_the_name_of_the_field() {
    let many: Vec<String> = (0..51).map(|n| format!("/{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let hosts: Vec<String> = (0..65).map(|n| format!("h{n}.example")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let none = ClientAuthMethod::None;
    let mut cases = vec![
        (bearer("http://mcp.example"), "spec.mcp_server_url"),
        (bearer("https://mcp.example?key=1"), "spec.mcp_server_url"),
        (bearer("https://user@mcp.example"), "spec.mcp_server_url"),
        (bearer(""), "spec.mcp_server_url"),
        (header(""), "spec.header_name"),
        (header("a b"), "spec.header_name"),
        (header("x\r\ny"), "spec.header_name"),
        (basic("http://git.example/a", "u"), "spec.url"),
        (basic("https://git.example:8443/a", "u"), "spec.url"),
        (basic("https://git.example", "u"), "spec.url"),
        (basic("https://git.example/", "u"), "spec.url"),
        (basic("https://git.example/a?b", "u"), "spec.url"),
        (basic("https://git.example/a#b", "u"), "spec.url"),
        (basic("https://git.example/a/../b", "u"), "spec.url"),
        (basic("https://git.example/a/./b", "u"), "spec.url"),
        (basic("https://git.example/a//b", "u"), "spec.url"),
        (basic("https://git.example/*", "u"), "spec.url"),
        (basic("https://git.example/%2e%2e", "u"), "spec.url"),
        (basic("https://git.example\\a", "u"), "spec.url"),
        (basic("https://u:p@git.example/a", "u"), "spec.url"),
        (basic("https://[::1]/a", "u"), "spec.url"),
        (basic("https://git.example/a", ""), "spec.username"),
        (basic("https://git.example/a", "u:p"), "spec.username"),
        (basic("https://git.example/a", "u\n"), "spec.username"),
        (variable("", &["a.example"]), "spec.secret_name"),
        (variable("1A", &["a.example"]), "spec.secret_name"),
        (variable("A-B", &["a.example"]), "spec.secret_name"),
        (variable("PATH", &["a.example"]), "spec.secret_name"),
        (variable("https_proxy", &["a.example"]), "spec.secret_name"),
        (variable("LD_PRELOAD", &["a.example"]), "spec.secret_name"),
        (variable("ASTRABOX_X", &["a.example"]), "spec.secret_name"),
        (variable("A", &[]), "spec.networking.limited.allowed_hosts"),
        (
            variable("A", &["*"]),
            "spec.networking.limited.allowed_hosts",
        ),
        (
            variable("A", &["*.com"]),
            "spec.networking.limited.allowed_hosts",
        ),
        (
            variable("A", &["https://a.example"]),
            "spec.networking.limited.allowed_hosts",
        ),
        (
            variable("A", &hosts),
            "spec.networking.limited.allowed_hosts",
        ),
        (requests(&[], &[]), "spec.allowed_requests"),
        (requests(&[], &many), "spec.allowed_requests"),
        (requests(&["CONNECT"], &[]), "spec.allowed_requests.methods"),
        (requests(&["G ET"], &[]), "spec.allowed_requests.methods"),
        (requests(&[""], &[]), "spec.allowed_requests.methods"),
        (requests(&[], &["v1"]), "spec.allowed_requests.paths"),
        (requests(&[], &["/a?b"]), "spec.allowed_requests.paths"),
        (requests(&[], &["/a#b"]), "spec.allowed_requests.paths"),
        (requests(&[], &["/a b"]), "spec.allowed_requests.paths"),
        (model("http://models.example"), "spec.endpoint"),
        (model("https://models.example/v1"), "spec.endpoint"),
        (model("https://models.example/v1/"), "spec.endpoint"),
        (model("https://models.example?a"), "spec.endpoint"),
        (oauth("issuer", "c", none), "spec.refresh.token_endpoint"),
        (
            oauth("https://issuer.example", "", none),
            "spec.refresh.client_id",
        ),
        (
            oauth("https://issuer.example", "a\nb", none),
            "spec.refresh.client_id",
        ),
    ];
    for name in [
        "Authorization",
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        cases.push((header(name), "spec.header_name"));
    }
    let mut nowhere = variable("A", &["a.example"]);
    if let CredentialSpec::EnvironmentVariable {
        injection_location, ..
    } = &mut nowhere
    {
        *injection_location = InjectionLocation {
            header: false,
            body: false,
            websocket: false,
        };
    }
    cases.push((nowhere, "spec.injection_location"));
    for (spec, field) in cases {
        let Err(error) = check::spec(spec.clone()) else {
            panic!("{spec:?} is taken");
        };
        assert_eq!(error.reason(), ErrorReason::InvalidField, "{spec:?}");
        assert_eq!(
            error.metadata().get("field").map(String::as_str),
            Some(field),
            "{spec:?}: {error}"
        );
    }
}

#[test]
fn a_secret_has_the_parts_that_its_type_needs_and_no_others() {
    let part = |text: &str| (!text.is_empty()).then(|| Secret::new(text.as_bytes().to_vec()));
    let issuer = "https://issuer.example";
    let plain = || bearer("https://mcp.example");
    let public = || oauth(issuer, "c", ClientAuthMethod::None);
    let private = || oauth(issuer, "c", ClientAuthMethod::ClientSecretPost);
    for (spec, value, refresh_token, client_secret, field) in [
        (plain(), "v", "", "", None),
        (public(), "v", "r", "", None),
        (private(), "v", "r", "s", None),
        (plain(), "", "", "", Some("secret.value")),
        (plain(), "v\n", "", "", Some("secret.value")),
        (plain(), "v\r\nx: y", "", "", Some("secret.value")),
        (plain(), "v\0", "", "", Some("secret.value")),
        (plain(), "v", "r", "", Some("secret.refresh_token")),
        (plain(), "v", "", "s", Some("secret.client_secret")),
        (public(), "v", "", "", Some("secret.refresh_token")),
        (public(), "v", "r\n", "", Some("secret.refresh_token")),
        (public(), "v", "r", "s", Some("secret.client_secret")),
        (private(), "v", "r", "", Some("secret.client_secret")),
    ] {
        let secret = CredentialSecret {
            value: Secret::new(value.as_bytes().to_vec()),
            refresh_token: part(refresh_token),
            client_secret: part(client_secret),
        };
        let error = check::secret(&spec, &secret).err();
        let told = error
            .as_ref()
            .and_then(|error| error.metadata().get("field"));
        assert_eq!(
            told.map(String::as_str),
            field,
            "{value:?} {refresh_token:?} {client_secret:?}"
        );
    }
}

#[test]
fn a_change_of_another_types_field_is_refused() {
    let changes = || SpecChanges {
        models: Some(vec!["m".to_owned()]),
        ..SpecChanges::default()
    };
    let changed = changes().applied(model("https://models.example"));
    assert!(matches!(changed, Ok(CredentialSpec::ModelKey { models, .. }) if models == ["m"]));
    let error = changes()
        .applied(bearer("https://mcp.example"))
        .expect_err("it is refused");
    assert!(error.to_string().contains("`models`"), "{error}");
}

fn row(vault_id: VaultId, spec: CredentialSpec) -> CredentialRow {
    let now = Timestamp::now();
    CredentialRow {
        credential: VaultCredential {
            id: CredentialId::new(),
            vault_id,
            display_name: String::new(),
            spec,
            secret_version: 1,
            archived_at: None,
            created_at: now,
            updated_at: now,
        },
        secret_name: Some("vault/x".to_owned()),
    }
}

#[test]
fn the_first_vault_wins_but_for_variables() {
    let (one, two) = (VaultId::new(), VaultId::new());
    let mcp = |vault| row(vault, bearer("https://mcp.example"));
    let git = |vault| row(vault, basic("https://git.example/a", "u"));
    let first = vec![mcp(one), row(one, variable("A", &["a.example"]))];
    let second = vec![
        row(two, header("x-key")),
        git(two),
        row(two, model("https://models.example")),
    ];
    let wanted = [first[0].credential.id, first[1].credential.id];
    let more = [second[1].credential.id, second[2].credential.id];
    let found = chosen(vec![first, second]).expect("they agree");
    let found: Vec<_> = found.iter().map(|credential| credential.id).collect();
    assert_eq!(found, [wanted, more].concat());

    let variables = |vault| vec![row(vault, variable("A", &["a.example"]))];
    let error = chosen(vec![variables(one), variables(two)]).expect_err("which one is meant?");
    assert_eq!(error.reason(), ErrorReason::VaultCredentialConflict);
    assert!(error.to_string().contains("`A`"), "{error}");
}
