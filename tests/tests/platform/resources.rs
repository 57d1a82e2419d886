//! Environments, agents and engines.

use astrabox_platform::{AgentDraft, AgentUpdate, EnvironmentUpdate, SessionDraft};
use astrabox_types::{EnvironmentSpec, ErrorReason, Networking, PermissionLevel, ResourceLimits};

use crate::server::{agent, caller, draft, environment, key, reason};
use crate::stage::Stage;
use crate::told::rests;

#[tokio::test]
async fn a_wrong_environment_is_refused_with_the_field() {
    type Change = fn(&mut EnvironmentSpec);
    let cases: [(Change, ErrorReason, &str); 10] = [
        (
            |e| e.name = String::new(),
            ErrorReason::InvalidField,
            "spec.name",
        ),
        (
            |e| e.name = "A".into(),
            ErrorReason::InvalidField,
            "spec.name",
        ),
        (
            |e| e.name = "env_x".into(),
            ErrorReason::InvalidField,
            "spec.name",
        ),
        (
            |e| e.description = "x".repeat(2049),
            ErrorReason::InvalidField,
            "spec.description",
        ),
        (
            |e| e.engine = "none".into(),
            ErrorReason::EngineUnknown,
            "none",
        ),
        (
            |e| e.sandbox = "none".into(),
            ErrorReason::SandboxProviderUnknown,
            "none",
        ),
        (
            |e| e.model_provider = "none".into(),
            ErrorReason::ModelProviderUnknown,
            "none",
        ),
        (
            |e| e.image = Some("other".into()),
            ErrorReason::ImageMissing,
            "other",
        ),
        (
            |e| {
                e.networking = Networking::Limited {
                    allowed_hosts: vec!["not a host".into()],
                    allow_mcp_servers: false,
                };
            },
            ErrorReason::InvalidField,
            "allowed_hosts",
        ),
        (
            |e| e.limits.memory_bytes = 1,
            ErrorReason::InvalidField,
            "memory_bytes",
        ),
    ];
    let mut stage = Stage::new().await;
    for (change, expected, word) in cases {
        let mut spec = environment("wrong");
        change(&mut spec);
        let made = stage.call(move |platform| {
            let spec = spec.clone();
            async move { platform.create_environment(&caller(), None, spec).await }
        });
        let error = made.await.expect_err(word);
        assert_eq!(error.reason(), expected, "{word}: {error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    let listed = stage.call(|platform| async move {
        platform
            .list_environments(&caller(), Default::default())
            .await
    });
    assert!(listed.await.expect("a list").items.is_empty());
}

#[tokio::test]
async fn defaults_are_filled_in_and_a_name_is_taken_once() {
    let mut stage = Stage::new().await;
    let make = |zeros: bool| {
        move |platform: astrabox_platform::Platform| async move {
            let mut spec = environment("one");
            if zeros {
                spec.limits = ResourceLimits {
                    memory_bytes: 0,
                    pids: 0,
                    cpu_millis: 0,
                    disk_bytes: 0,
                    wall_seconds: 0,
                };
            }
            platform.create_environment(&caller(), None, spec).await
        }
    };
    let made = stage.call(make(true)).await.expect("it is made");
    assert_eq!(made.spec.sandbox, "box");
    assert_eq!(made.spec.model_provider, "fixed");
    assert_eq!(made.spec.limits, stage.world.settings.default_limits);
    assert_eq!(
        reason(stage.call(make(false)).await),
        ErrorReason::EnvironmentNameTaken
    );
    let by_id = stage.call(move |platform| async move {
        platform
            .get_environment(&caller(), &made.id.to_string())
            .await
    });
    assert_eq!(by_id.await.expect("by id").spec.name, "one");
}

#[tokio::test]
async fn an_update_names_the_version_that_it_was_made_from() {
    let mut stage = Stage::new().await;
    stage.agent().await;
    let update = |version: Option<u32>, text: &'static str| {
        move |platform: astrabox_platform::Platform| async move {
            let update = EnvironmentUpdate {
                version,
                description: Some(text.to_owned()),
                ..EnvironmentUpdate::default()
            };
            platform
                .update_environment(&caller(), None, "test", update)
                .await
        }
    };
    assert_eq!(
        stage
            .call(update(Some(1), "two"))
            .await
            .expect("it fits")
            .version,
        2
    );
    assert_eq!(
        reason(stage.call(update(Some(1), "x")).await),
        ErrorReason::VersionConflict
    );
    assert_eq!(
        stage
            .call(update(None, "three"))
            .await
            .expect("any")
            .version,
        3
    );
    let deleted = stage
        .call(|platform| async move { platform.delete_environment(&caller(), None, "test").await });
    assert_eq!(reason(deleted.await), ErrorReason::EnvironmentInUse);
    let deleted = stage
        .call(|platform| async move { platform.delete_environment(&caller(), None, "none").await });
    assert_eq!(reason(deleted.await), ErrorReason::EnvironmentNotFound);
}

#[tokio::test]
async fn an_environment_that_no_agent_uses_is_deleted() {
    let mut stage = Stage::new().await;
    for _ in 0..2 {
        let done = stage.call(|platform| async move {
            platform
                .create_environment(&caller(), None, environment("gone"))
                .await?;
            platform.delete_environment(&caller(), None, "gone").await
        });
        done.await.expect("the name is free again");
    }
}

#[tokio::test]
async fn a_wrong_agent_is_refused() {
    type Change = fn(&mut AgentDraft);
    let cases: [(Change, ErrorReason); 7] = [
        (|a| a.name = String::new(), ErrorReason::InvalidField),
        (|a| a.model = String::new(), ErrorReason::InvalidField),
        (
            |a| a.system = "x".repeat(100_001),
            ErrorReason::InvalidField,
        ),
        (
            |a| a.environment = "none".into(),
            ErrorReason::EnvironmentNotFound,
        ),
        (
            |a| a.permission_mode = Some("wild".into()),
            ErrorReason::PermissionModeUnknown,
        ),
        (
            |a| {
                a.engine_options.insert("fake".into(), "{}".into());
            },
            ErrorReason::InvalidField,
        ),
        (
            |a| {
                a.metadata.insert("k".repeat(65), "v".into());
            },
            ErrorReason::InvalidField,
        ),
    ];
    let mut stage = Stage::new().await;
    stage.agent().await;
    for (change, expected) in cases {
        let mut wrong = agent("test");
        change(&mut wrong);
        let made = stage.call(move |platform| {
            let wrong = wrong.clone();
            async move { platform.create_agent(&caller(), None, wrong).await }
        });
        assert_eq!(reason(made.await), expected);
    }
}

#[tokio::test]
async fn an_agent_has_versions_and_a_session_keeps_the_one_that_it_began_with() {
    let mut stage = Stage::new().await;
    let id = stage.agent().await;
    let session = stage.create("SAY: x").await;
    stage.until(session, "the end", rests(1)).await;
    let rename = |name: &'static str| {
        move |platform: astrabox_platform::Platform| async move {
            let update = AgentUpdate {
                name: Some(name.to_owned()),
                ..AgentUpdate::default()
            };
            platform.update_agent(&caller(), None, id, update).await
        }
    };
    assert_eq!(
        stage.call(rename("second")).await.expect("updated").version,
        2
    );
    assert_eq!(
        stage
            .call(rename("second"))
            .await
            .expect("unchanged")
            .version,
        2
    );
    let first =
        stage.call(move |platform| async move { platform.get_agent(&caller(), id, Some(1)).await });
    assert_eq!(first.await.expect("it is kept").spec.name, "tester");
    let versions = stage.call(move |platform| async move {
        platform
            .list_agent_versions(&caller(), id, Default::default())
            .await
    });
    let versions: Vec<_> = versions
        .await
        .expect("a list")
        .items
        .iter()
        .map(|agent| agent.version)
        .collect();
    assert_eq!(versions, [2, 1]);
    let view = stage.view(session).await.expect("it is there");
    assert_eq!(view.session.agent_version, 1);
}

#[tokio::test]
async fn an_archived_agent_takes_no_new_sessions_and_keeps_its_old_ones() {
    let mut stage = Stage::new().await;
    let id = stage.agent().await;
    let session = stage.create("SAY: x").await;
    let archived = stage.call(move |platform| async move {
        platform
            .archive_agent(&caller(), key("archive", ""), id)
            .await
    });
    assert!(archived.await.expect("it is archived").archived);
    let refused = stage.call(move |platform| async move {
        platform
            .create_session(&caller(), None, draft(id, "SAY: x"))
            .await
    });
    assert_eq!(reason(refused.await), ErrorReason::AgentArchived);
    stage.until(session, "the end", rests(1)).await;
    stage.send(session, "SAY: on").await;
    stage.until(session, "the second end", rests(2)).await;
}

#[tokio::test]
async fn a_wrong_session_is_refused_and_none_is_made() {
    type Change = fn(&mut SessionDraft);
    let cases: [(Change, ErrorReason); 5] = [
        (|s| s.title = "x".repeat(257), ErrorReason::InvalidField),
        (
            |s| s.agent_id = astrabox_types::AgentId::new(),
            ErrorReason::AgentNotFound,
        ),
        (|s| s.agent_version = Some(9), ErrorReason::AgentNotFound),
        (
            |s| s.permission_mode = Some("reckless".into()),
            ErrorReason::PermissionModeUnknown,
        ),
        (
            |s| {
                s.metadata = (0..17).map(|n| (n.to_string(), String::new())).collect();
            },
            ErrorReason::InvalidField,
        ),
    ];
    let mut stage = Stage::new().await;
    let id = stage.agent().await;
    for (change, expected) in cases {
        let mut wrong = draft(id, "SAY: x");
        change(&mut wrong);
        let made = stage.call(move |platform| {
            let wrong = wrong.clone();
            async move { platform.create_session(&caller(), None, wrong).await }
        });
        assert_eq!(reason(made.await), expected);
    }
    let listed = stage.call(|platform| async move {
        platform
            .list_sessions(&caller(), Default::default(), Default::default())
            .await
    });
    assert!(listed.await.expect("a list").items.is_empty());
}

#[tokio::test]
async fn a_mode_of_the_advanced_level_needs_an_environment_of_that_level() {
    let mut stage = Stage::new().await;
    let made = stage.call(|platform| async move {
        let spec = EnvironmentSpec {
            permission_level: PermissionLevel::Advanced,
            ..environment("advanced")
        };
        platform.create_environment(&caller(), None, spec).await?;
        let made = platform
            .create_agent(&caller(), None, agent("advanced"))
            .await?;
        let mut session = draft(made.id, "MODE");
        session.permission_mode = Some("reckless".into());
        platform.create_session(&caller(), None, session).await
    });
    let id = made.await.expect("it fits").0.session.id;
    stage.until(id, "the end", rests(1)).await;
    assert_eq!(
        crate::told::texts(&stage.journal(id).await),
        ["mode: reckless"]
    );
}

#[tokio::test]
async fn engines_are_told_with_their_image() {
    let stage = Stage::new().await;
    let engines = stage.server().platform.list_engines(&caller());
    assert_eq!(engines.len(), 1);
    assert_eq!((engines[0].kind, engines[0].image_built), ("fake", true));
    let unknown = stage.server().platform.get_engine(&caller(), "none");
    assert_eq!(reason(unknown), ErrorReason::EngineUnknown);
}

#[tokio::test]
async fn sandboxes_are_told_with_their_posture() {
    let mut stage = Stage::new().await;
    let id = stage.create("SAY: x").await;
    stage.until(id, "the end", rests(1)).await;
    let sandbox = stage
        .view(id)
        .await
        .expect("there")
        .sandbox_id
        .expect("it has one");
    let listed = stage.call(|platform| async move { platform.list_sandboxes(&caller()).await });
    let listed = listed.await.expect("a list");
    assert_eq!((listed.len(), listed[0].info.id), (1, sandbox));
    assert_eq!(listed[0].info.claim.session_id, id);
    let posture = stage
        .call(move |platform| async move { platform.security_posture(&caller(), sandbox).await });
    assert_eq!(posture.await.expect("it is asked").0.technology, "memory");
    let unknown = stage.call(|platform| async move {
        let none = astrabox_types::SandboxId::new();
        platform.describe_sandbox(&caller(), none).await.map(drop)
    });
    assert_eq!(reason(unknown.await), ErrorReason::SandboxNotFound);
}
