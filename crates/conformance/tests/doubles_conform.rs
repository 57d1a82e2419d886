//! The doubles keep every clause that can be looked at in memory: a suite that fails a right one is wrong.

use std::sync::Arc;

use astrabox_conformance::doubles::{FixedModels, MemorySecrets, TALK, TalkFixture, TokenIdentity};
use astrabox_conformance::engine;
use astrabox_conformance::identity::{self, IdentityFixture};
use astrabox_conformance::model::{self, Built, ModelFixture};
use astrabox_conformance::sandbox::{self, MemoryFixture};
use astrabox_conformance::secrets::{self, SecretsFixture};
use astrabox_conformance::seed;
use astrabox_conformance::{Filter, Report, Verdict};
use astrabox_identity::Evidence;
use astrabox_secrets::SecretStore;
use async_trait::async_trait;

/// The names of the cases that were left out, with the words by which they say so.
fn skipped(report: &Report) -> Vec<(&'static str, &str)> {
    let cases = report.cases.iter();
    cases
        .filter_map(|case| match &case.verdict {
            Verdict::Skipped(reason) => Some((case.name, reason.as_str())),
            _ => None,
        })
        .collect()
}

/// What cannot be looked at in memory: programs in a shell, and the host.
const NOT_IN_MEMORY: [&str; 20] = [
    "a_memory_hog_is_ended_and_named",
    "a_fork_bomb_is_held_and_named",
    "a_disk_filler_is_held",
    "a_spinning_program_is_held_to_its_share",
    "a_private_file_is_for_its_owner_only",
    "a_listener_of_the_host_is_not_reached",
    "there_is_no_network_but_the_loopback",
    "no_process_of_the_host_is_visible",
    "no_process_of_another_sandbox_is_visible",
    "a_process_of_the_host_cannot_be_signalled",
    "no_file_of_the_host_is_readable",
    "no_path_of_the_host_is_in_the_mount_table",
    "the_base_is_read_only_for_programs",
    "programs_cannot_make_namespaces_or_mounts",
    "the_posture_is_what_a_process_has",
    "a_destroyed_sandbox_leaves_nothing_on_the_host",
    "a_paused_sandbox_leaves_nothing_when_it_is_destroyed",
    "processes_that_hide_end_with_their_sandbox",
    "a_failed_create_leaves_nothing_on_the_host",
    "fifty_sandboxes_leave_the_host_as_it_was",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provider_in_memory_conforms_and_says_what_was_left_out() {
    for fixture in [MemoryFixture::new(), MemoryFixture::bare()] {
        let report = sandbox::run(Arc::new(fixture), &Filter::all()).await;
        report.assert_passed();
        let names: Vec<_> = skipped(&report).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, NOT_IN_MEMORY, "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_in_memory_conforms_and_nothing_is_left_out() {
    let fixture = Arc::new(TalkFixture);
    let report = engine::suite(&TALK, Some(fixture))
        .run(&Filter::all())
        .await;
    report.assert_passed();
    assert_eq!(skipped(&report), [], "{report}");
    let report = engine::suite(&TALK, None).run(&Filter::all()).await;
    report.assert_passed();
    assert_eq!(skipped(&report), [], "{report}");
}

#[tokio::test]
async fn the_fixture_engines_keep_the_seed_contract() {
    let providers = vec!["one".to_owned(), "other".to_owned()];
    for engine in seed::fixture_engines() {
        let report = seed::suite(engine, providers.clone())
            .run(&Filter::all())
            .await;
        report.assert_passed();
        assert_eq!(skipped(&report), [], "{report}");
    }
}

/// Models with a list, and with any name.
struct Models(bool);

#[async_trait]
impl ModelFixture for Models {
    fn name(&self) -> String {
        "fixed".to_owned()
    }

    async fn unconfigured(&self) -> Built {
        Ok(Arc::new(FixedModels::default()))
    }

    async fn configured(&self) -> Option<Built> {
        let models = if self.0 {
            vec!["m".to_owned()]
        } else {
            Vec::new()
        };
        Some(Ok(Arc::new(FixedModels {
            base_url: Some("https://models.test".to_owned()),
            models,
            require_https: true,
        })))
    }

    async fn plaintext(&self) -> Option<Built> {
        Some(Ok(Arc::new(FixedModels {
            base_url: Some("http://models.test".to_owned()),
            models: Vec::new(),
            require_https: true,
        })))
    }

    fn model(&self) -> String {
        "m".to_owned()
    }
}

#[test]
fn the_stores_in_memory_conform() {
    model::assert_conforms(Arc::new(Models(true)));
    model::assert_conforms(Arc::new(Models(false)));
    let bearer = |text: &str| Evidence {
        peer_uid: None,
        bearer: Some(text.to_owned()),
    };
    identity::assert_conforms(IdentityFixture {
        name: "token".to_owned(),
        provider: Arc::new(TokenIdentity {
            token: "a-token-that-is-long-enough-to-be-one".to_owned(),
        }),
        accepted: vec![bearer("a-token-that-is-long-enough-to-be-one")],
    });
    secrets::assert_conforms(Arc::new(Secrets(MemorySecrets::new())));
}

struct Secrets(MemorySecrets);

#[async_trait]
impl SecretsFixture for Secrets {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    async fn open(&self) -> Result<Arc<dyn SecretStore>, astrabox_secrets::Error> {
        Ok(Arc::new(self.0.clone()))
    }
}
