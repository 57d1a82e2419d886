//! Credentials that no sandbox ever holds: canaries are put into requests, and found nowhere else.

#![expect(missing_docs, reason = "each case is named as the fact that it shows")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use astrabox_client::{Client, v1};
use astrabox_testkit::model::ScriptedModel;
use astrabox_testkit::server::{ServerOptions, ServerProcess, bin_dir};
use astrabox_testkit::upstream::{Answer, Authority, Received, Upstream, git, mcp};
use v1::credential_spec::Type;
use v1::mcp_server::Transport;

use crate::{Conversation, Program, Stage, must};

/// What every canary begins with. In a pattern it is written so that the pattern does not find itself.
pub(super) const CANARY: &str = "canary-0f6e-";
const PATTERN: &str = "can[a]ry-0f6e-";
/// A key in the environment of `astrabox run`.
const KEY: &str = "key-of-a-run-5b20c9e1";

pub(super) fn canary(what: &str) -> String {
    format!("{CANARY}{what}-2c7d41")
}

/// A stage whose model, API, MCP server and repository each want a credential that only a vault has.
pub(super) struct World {
    pub(super) stage: Stage,
    pub(super) api: Upstream,
    mcp: Upstream,
    git: Upstream,
    vault: String,
    ids: BTreeMap<&'static str, String>,
    /// Holds the authority's file, and the repository.
    _folder: (tempfile::TempDir, git::Repository),
}

impl World {
    pub(super) async fn of(program: &Program) -> Result<Self> {
        let authority = Authority::new()?;
        let folder = tempfile::tempdir()?;
        let roots = folder.path().join("roots.pem");
        std::fs::write(&roots, authority.pem())?;
        let model = ScriptedModel::builder()
            .tls(authority.server(&["model.test"], &["http/1.1"])?)
            .require_credential(&canary("model"))
            .start()
            .await?;
        let api = Upstream::start(Some((&authority, &["api.test"])), |_| async {
            Answer::new(200, "application/json", r#"{"things": 3}"#)
        })
        .await?;
        let mcp = Upstream::start(Some((&authority, &["mcp.test"])), |request| async move {
            match request.header("authorization") {
                Some(shown) if shown == format!("Bearer {}", canary("mcp")) => mcp::echo(&request),
                _ => Answer::new(401, "text/plain", "who are you?"),
            }
        })
        .await?;
        let repository =
            git::Repository::new("acme/tools.git", &[("README.md", "tools of acme")]).await?;
        let root = Arc::new(repository.place().0);
        let git = Upstream::start(Some((&authority, &["git.test"])), move |request| {
            let root = Arc::clone(&root);
            async move { serve_git(&root, request).await }
        })
        .await?;
        let at = |name: &str, address: SocketAddr| (format!("{name}:443"), address.to_string());
        let options = ServerOptions {
            static_hosts: BTreeMap::from([
                at("model.test", model.address()),
                at("api.test", api.address()),
                at("mcp.test", mcp.address()),
                at("git.test", git.address()),
            ]),
            settings: vec![format!(
                "egress.extra_roots = [{:?}]",
                roots.display().to_string()
            )],
            environment: BTreeMap::from([("ASTRABOX_LOG__LEVEL".to_owned(), "trace".to_owned())]),
            ..ServerOptions::default()
        };
        let server = ServerProcess::start(&options).await?;
        let client = server.client().await?;
        let (vault, ids) = fill_vault(&client, program).await?;
        make_environment(&client, program).await?;
        let agent_id = make_agent(&client, &vault, "side").await?;
        Ok(Self {
            stage: Stage {
                model,
                server,
                client,
                agent_id,
            },
            api,
            mcp,
            git,
            vault,
            ids,
            _folder: (folder, repository),
        })
    }

    /// Gives a credential another value.
    async fn rotate(&self, what: &'static str, value: &str) -> Result<()> {
        let request = v1::UpdateVaultCredentialRequest {
            vault_id: self.vault.clone(),
            credential_id: self.ids[what].clone(),
            secret: Some(secret(value)),
            update_mask: Some(prost_types::FieldMask {
                paths: vec!["secret".to_owned()],
            }),
            ..Default::default()
        };
        self.stage.client.update_vault_credential(request).await?;
        Ok(())
    }

    /// What the API was shown with the last request.
    pub(super) fn shown(&self) -> String {
        let received = self.api.received();
        let last = received.last().and_then(|request| request.header("x-key"));
        last.unwrap_or_default().to_owned()
    }

    /// Looks for canaries everywhere on this host where the product writes, and in the sandbox.
    async fn look_for_canaries(&self, talk: &mut Conversation) -> Result<()> {
        let find = format!(
            "RUN: printf '%s%s' can ary-0f6e-planted > /tmp/planted; grep -ral '{PATTERN}' /workspace /home/agent /tmp /run /etc /proc/[0-9]*/environ \
             /proc/[0-9]*/cmdline 2>/dev/null | grep -v '^/proc/self' ; echo looked; env"
        );
        let turn = talk.say(&find).await?;
        let output = &turn.results().first().context("a result")?.output;
        // Names of files come before the word; the environment comes behind it.
        let (found, _) = output.split_once("looked").context("it was not searched")?;
        // What was planted is found, so the rest would be as well.
        let (planted, rest) = found
            .split_once("/tmp/planted")
            .context("the planted one")?;
        ensure!(
            !planted.contains('/') && !rest.contains('/'),
            "in the sandbox: {found}"
        );
        ensure!(
            output.contains("API_KEY=astrabox-cred-"),
            "no placeholder: {output}"
        );
        let session = v1::GetSessionRequest {
            session_id: talk.id.clone(),
        };
        let session = self.stage.client.get_session(session).await?.session;
        let posture = v1::GetSecurityPostureRequest {
            sandbox_id: session.context("a session")?.sandbox_id,
        };
        let posture = self
            .stage
            .client
            .get_security_posture(posture)
            .await?
            .posture;
        let boundary = posture
            .and_then(|posture| posture.boundary)
            .context("a boundary")?;
        let told = boundary.credentials.join("\n");
        for part in [
            "model: vcrd_",
            "environment API_KEY: vcrd_",
            "mcp echo: vcrd_",
            "to git.test:443",
        ] {
            ensure!(told.contains(part), "the posture tells {told}");
        }
        ensure!(
            boundary.in_force && !told.contains(CANARY),
            "the posture tells {told}"
        );
        let journal = format!("{:?}", talk.journal().await?);
        ensure!(!journal.contains(CANARY), "in the journal");
        ensure!(!self.stage.server.log().contains(CANARY), "in the log");
        if let Some(file) = holds(self.stage.server.folder(), CANARY.as_bytes())? {
            bail!("in {file}");
        }
        let control = tempfile::tempdir()?;
        std::fs::write(control.path().join("planted"), canary("planted"))?;
        ensure!(
            holds(control.path(), CANARY.as_bytes())?.is_some(),
            "the search finds nothing"
        );
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let name = entry.file_name();
            let number = name.to_string_lossy().parse::<u32>();
            if number.is_err() || number == Ok(std::process::id()) {
                continue;
            }
            for file in ["cmdline", "environ"] {
                // A process of another user, or one that has ended.
                let Ok(bytes) = std::fs::read(entry.path().join(file)) else {
                    continue;
                };
                ensure!(
                    !contains(&bytes, CANARY.as_bytes()),
                    "in {file} of a process"
                );
            }
        }
        Ok(())
    }

    pub(super) async fn clear(self) -> Result<()> {
        self.stage.clear().await?;
        for upstream in [self.api, self.mcp, self.git] {
            upstream.shutdown().await;
        }
        Ok(())
    }
}

async fn serve_git(root: &Path, request: Received) -> Answer {
    use base64::Engine as _;
    let pair = format!("bot:{}", canary("git"));
    let wanted = base64::engine::general_purpose::STANDARD.encode(pair);
    if request.header("authorization") != Some(&format!("Basic {wanted}")) {
        let mut refused = Answer::new(401, "text/plain", "who are you?");
        let ask = (
            "www-authenticate".to_owned(),
            "Basic realm=\"git\"".to_owned(),
        );
        refused.headers.push(ask);
        return refused;
    }
    match git::Repository::answer(root, &request).await {
        Ok(answer) => answer,
        Err(error) => Answer::new(500, "text/plain", format!("{error:#}")),
    }
}

fn secret(value: &str) -> v1::CredentialSecret {
    v1::CredentialSecret {
        value: value.to_owned(),
        ..Default::default()
    }
}

async fn fill_vault(
    client: &Client,
    program: &Program,
) -> Result<(String, BTreeMap<&'static str, String>)> {
    let request = v1::CreateVaultRequest {
        display_name: "canaries".to_owned(),
        ..Default::default()
    };
    let vault = client
        .create_vault(request)
        .await?
        .vault
        .context("a vault")?
        .id;
    let kind = program.key_kind;
    let all = [
        (
            "model",
            Type::ModelKey(v1::ModelKeyCredential {
                endpoint: "https://model.test".to_owned(),
                kind: kind.into(),
                models: Vec::new(),
            }),
        ),
        (
            "api",
            Type::EnvironmentVariable(v1::EnvironmentVariableCredential {
                secret_name: "API_KEY".to_owned(),
                networking: Some(v1::CredentialNetworking {
                    r#type: Some(v1::credential_networking::Type::Limited(
                        v1::LimitedCredentialNetworking {
                            allowed_hosts: vec!["api.test".to_owned()],
                        },
                    )),
                }),
                ..Default::default()
            }),
        ),
        (
            "mcp",
            Type::StaticBearer(v1::StaticBearerCredential {
                mcp_server_url: "https://mcp.test/mcp".to_owned(),
            }),
        ),
        (
            "git",
            Type::HttpBasic(v1::HttpBasicCredential {
                url: "https://git.test/acme/tools.git".to_owned(),
                username: "bot".to_owned(),
            }),
        ),
    ];
    let mut ids = BTreeMap::new();
    for (what, r#type) in all {
        let request = v1::CreateVaultCredentialRequest {
            vault_id: vault.clone(),
            display_name: what.to_owned(),
            spec: Some(v1::CredentialSpec {
                r#type: Some(r#type),
            }),
            secret: Some(secret(&canary(what))),
            ..Default::default()
        };
        let made = client.create_vault_credential(request).await?.credential;
        ids.insert(what, made.context("a credential")?.id);
    }
    Ok((vault, ids))
}

async fn make_environment(client: &Client, program: &Program) -> Result<()> {
    let environment = v1::EnvironmentSpec {
        name: "tested".to_owned(),
        networking: Some(v1::Networking {
            r#type: Some(v1::networking::Type::Limited(v1::LimitedNetworking {
                allow_mcp_servers: true,
                ..Default::default()
            })),
        }),
        limits: Some(v1::ResourceLimits {
            memory_bytes: 1 << 30,
            disk_bytes: 256 << 20,
            ..Default::default()
        }),
        ..program.environment()
    };
    client
        .create_environment(v1::CreateEnvironmentRequest {
            spec: Some(environment),
            ..Default::default()
        })
        .await?;
    Ok(())
}

async fn make_agent(client: &Client, vault: &str, branch: &str) -> Result<String> {
    let http = v1::McpHttp {
        url: "https://mcp.test/mcp".to_owned(),
    };
    let spec = v1::AgentSpec {
        name: "worker".to_owned(),
        environment: "tested".to_owned(),
        model: "scripted".to_owned(),
        vault_ids: vec![vault.to_owned()],
        repository: Some(v1::Repository {
            url: "https://git.test/acme/tools.git".to_owned(),
            branch: branch.to_owned(),
            depth: 1,
        }),
        mcp_servers: vec![v1::McpServer {
            name: "echo".to_owned(),
            transport: Some(Transport::Http(http)),
        }],
        ..Default::default()
    };
    let request = v1::CreateAgentRequest {
        spec: Some(spec),
        ..Default::default()
    };
    Ok(client
        .create_agent(request)
        .await?
        .agent
        .context("an agent")?
        .id)
}

/// The first file below a folder that holds these bytes.
pub(super) fn holds(folder: &Path, wanted: &[u8]) -> Result<Option<String>> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder)?.flatten() {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() && contains(&read_data(&entry.path()), wanted) {
                return Ok(Some(entry.path().display().to_string()));
            }
        }
    }
    Ok(None)
}

/// The written part of a file: volumes are sparse.
fn read_data(path: &Path) -> Vec<u8> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut data = Vec::new();
    let Ok(mut file) = std::fs::File::open(path) else {
        return data;
    };
    let mut at = 0;
    while let Ok(begin) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(begin)).unwrap_or(begin);
        if end <= begin || file.seek(SeekFrom::Start(begin)).is_err() {
            break;
        }
        let _ = (&mut file).take(end - begin).read_to_end(&mut data);
        at = end;
    }
    data
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

pub(super) const CALL: &str = r#"RUN: curl -sS -H "x-key: $API_KEY" https://api.test/v1/things"#;

pub async fn canaries_reach_their_servers_and_nothing_else(program: &Program) {
    let mut world = must(World::of(program).await);
    let mut talk = must(world.stage.conversation(program.unasked).await);

    // The model took its key; the API gets its own.
    let turn = must(talk.say(CALL).await);
    assert!(
        turn.results()[0].output.contains("things"),
        "{:?}",
        turn.results()
    );
    assert_eq!(world.shown(), canary("api"));
    // The clone is there, of the branch that the agent names.
    let turn = must(
        talk.say("RUN: cat /workspace/README.md /workspace/side.txt")
            .await,
    );
    assert!(
        turn.results()[0].output.contains("tools of acme"),
        "{:?}",
        turn.results()
    );
    assert!(
        world
            .git
            .received()
            .iter()
            .any(|request| request.header("authorization").is_some())
    );
    // The tool of the MCP server.
    let call = format!("TOOL: {} {{\"text\": \"hello\"}}", program.mcp_say);
    let turn = must(talk.say(&call).await);
    assert!(
        turn.results()[0].output.contains("mcp says hello"),
        "{:?}",
        turn.results()
    );
    assert!(!world.mcp.received().is_empty());
    must(world.look_for_canaries(&mut talk).await);

    // A new value holds from the next request on.
    must(world.rotate("api", &canary("api-new")).await);
    must(talk.say(CALL).await);
    assert_eq!(world.shown(), canary("api-new"));

    // The server dies and comes back; so does the egress role.
    must(world.stage.server.kill().await);
    must(world.stage.server.start_again().await);
    world.stage.client = must(world.stage.server.client().await);
    let mut talk = must(world.stage.again(&talk.id).await);
    must(talk.catch_up().await);
    must(talk.say(CALL).await);
    assert_eq!(world.shown(), canary("api-new"));
    must(kill_egress(&world.stage.server).await);
    must(talk.say(CALL).await);
    assert_eq!(world.shown(), canary("api-new"));
    must(world.look_for_canaries(&mut talk).await);

    // An archived credential is refused at once, and its server hears nothing.
    let before = world.api.received().len();
    let request = v1::ArchiveVaultCredentialRequest {
        vault_id: world.vault.clone(),
        credential_id: world.ids["api"].clone(),
        ..Default::default()
    };
    must(world.stage.client.archive_vault_credential(request).await);
    let turn = must(talk.say(CALL).await);
    assert!(
        !turn.results()[0].output.contains("things"),
        "{:?}",
        turn.results()
    );
    assert_eq!(world.api.received().len(), before);
    must(world.clear().await);
}

/// The egress role of a server.
pub(super) fn egress_role(server: &ServerProcess) -> Result<u32> {
    let folder = server.folder().display().to_string();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<_> = line.split('\0').collect();
        let egress =
            words.get(1) == Some(&"egress") && words.iter().any(|word| word.starts_with(&folder));
        if !egress {
            continue;
        }
        return Ok(entry.file_name().to_string_lossy().parse()?);
    }
    bail!("no egress role runs")
}

/// Kills the egress role of a server.
async fn kill_egress(server: &ServerProcess) -> Result<()> {
    let pid = egress_role(server)?.to_string();
    let killed = tokio::process::Command::new("kill")
        .args(["-9", &pid])
        .status()
        .await?;
    ensure!(killed.success(), "kill");
    Ok(())
}

pub async fn a_key_beside_a_run_reaches_the_model_and_no_sandbox(program: &Program) {
    let authority = must(Authority::new());
    let folder = must(tempfile::tempdir());
    let roots = folder.path().join("roots.pem");
    must(std::fs::write(&roots, authority.pem()));
    // Not as the canaries begin: it stands in the environment of the program that a person runs, where another test
    // would find it.
    let key = KEY.to_owned();
    let model = ScriptedModel::builder()
        .tls(must(authority.server(&["model.test"], &["http/1.1"])))
        .require_credential(&key)
        .start();
    let model = must(model.await);
    // No model endpoint is configured: the key brings its own.
    let options = ServerOptions {
        static_hosts: BTreeMap::from([("model.test:443".to_owned(), model.address().to_string())]),
        settings: vec![format!(
            "egress.extra_roots = [{:?}]",
            roots.display().to_string()
        )],
        ..ServerOptions::default()
    };
    let mut server = must(ServerProcess::start(&options).await);
    let (variable, base) = program.key_variables;
    for prompt in ["SAY: hello from afar", "SAY: hello again"] {
        let output = tokio::process::Command::new(must(bin_dir()).join("astrabox"))
            .args([
                "run",
                "--quiet",
                "--rm",
                "--engine",
                program.engine,
                "--model",
                "scripted",
            ])
            .args(["--permission-mode", program.unasked, prompt])
            .env_clear()
            .env("HOME", folder.path())
            .env("ASTRABOX_SOCKET", server.socket())
            .env(variable, &key)
            .env(base, "https://model.test")
            .output();
        let output = must(output.await);
        let (said, told) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{told}");
        assert!(said.contains(&prompt["SAY: ".len()..]), "{said} {told}");
        assert!(
            told.contains("no sandbox holds it") && !told.contains(KEY),
            "{told}"
        );
    }
    let client = must(server.client().await);
    let vaults = must(client.all_vaults(false).await);
    assert_eq!(vaults.len(), 1, "the vault is found again: {vaults:?}");
    assert_eq!(must(holds(server.folder(), KEY.as_bytes())), None);
    must(server.stop().await);
    model.shutdown().await;
}

pub async fn a_repository_is_cloned_once_and_what_is_there_stays(program: &Program) {
    let mut world = must(World::of(program).await);
    let mut talk = must(world.stage.conversation(program.unasked).await);
    must(talk.say("RUN: echo changed > README.md").await);
    let release = v1::ReleaseSandboxRequest {
        session_id: talk.id.clone(),
        ..Default::default()
    };
    must(talk.client.release_sandbox(release).await);
    let asked = world.git.received().len();
    let turn = must(
        talk.say("RUN: cat README.md; git -C /workspace log --oneline | wc -l")
            .await,
    );
    let output = &turn.results()[0].output;
    assert!(
        output.contains("changed") && !output.contains("tools of acme"),
        "{output}"
    );
    assert_eq!(world.git.received().len(), asked, "it is not cloned again");

    // A branch that is not there ends the start, with what git says.
    world.stage.agent_id = must(make_agent(&world.stage.client, &world.vault, "nowhere").await);
    let Err(error) = world.stage.conversation(program.unasked).await else {
        panic!("there is no such branch")
    };
    let why = format!("{error:#}");
    assert!(
        why.contains("could not be cloned") && why.contains("nowhere"),
        "{why}"
    );
    assert!(!why.contains(CANARY), "{why}");
    must(world.clear().await);
}
