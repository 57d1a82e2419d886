//! The suite of an identity provider: ID1 to ID3.

use std::sync::Arc;
use std::time::Duration;

use astrabox_identity::{ErrorKind, Evidence, IdentityProvider};

use crate::case::{check, check_eq, refused};
use crate::suite::cases;
use crate::{Bench, Case, Checked, Clock, Doing as _, Filter, Stop, Suite};

/// How long one case may take.
const CASE: Duration = Duration::from_secs(30);
/// A token that nobody has.
const BOGUS: &str = "bogus-token-of-the-conformance-suite-4711";

/// What a provider's author gives to the suite.
#[derive(Clone)]
pub struct IdentityFixture {
    /// The provider's name, for reports.
    pub name: String,
    /// The provider.
    pub provider: Arc<dyn IdentityProvider>,
    /// Evidence that it accepts, each of another caller.
    pub accepted: Vec<Evidence>,
}

impl Bench for IdentityFixture {}

/// The whole suite over one provider.
#[must_use]
pub fn suite(fixture: IdentityFixture) -> Suite<IdentityFixture> {
    let name = format!("identity provider {}", fixture.name);
    Suite::new(name, fixture, cases(), Clock::Real, CASE)
}

/// Runs the suite over one provider and panics with the report when it found a fault; for plain tests.
///
/// # Panics
/// When a case failed.
pub fn assert_conforms(fixture: IdentityFixture) {
    suite(fixture).run_blocking(&Filter::all()).assert_passed();
}

fn cases() -> Vec<Case<IdentityFixture>> {
    cases![
        a_caller_that_shows_nothing_is_refused[ID1],
        a_caller_that_shows_something_wrong_is_refused[ID1],
        a_wrong_token_beside_right_evidence_is_refused[ID1],
        the_same_evidence_gives_the_same_subject[ID2],
        two_callers_have_two_subjects[ID2],
        no_error_tells_what_was_shown[ID3],
    ]
}

fn token(text: &str) -> Evidence {
    Evidence {
        peer_uid: None,
        bearer: Some(text.to_owned()),
    }
}

async fn a_caller_that_shows_nothing_is_refused(fixture: &IdentityFixture) -> Checked {
    let identified = fixture.provider.identify(&Evidence::default()).await;
    refused(identified, &[ErrorKind::Missing], "identifying nobody")?;
    Ok(())
}

async fn a_caller_that_shows_something_wrong_is_refused(fixture: &IdentityFixture) -> Checked {
    let kinds = [ErrorKind::Rejected, ErrorKind::Missing];
    for text in [BOGUS, "", " ", "Bearer"] {
        let identified = fixture.provider.identify(&token(text)).await;
        refused(
            identified,
            &kinds,
            &format!("identifying by the token {text:?}"),
        )?;
    }
    for evidence in &fixture.accepted {
        let Some(good) = &evidence.bearer else {
            continue;
        };
        for near in [
            format!("{good}x"),
            good[..good.len() - 1].to_owned(),
            good.to_uppercase() + " ",
        ] {
            let identified = fixture.provider.identify(&token(&near)).await;
            refused(identified, &kinds, "identifying by nearly a token")?;
        }
    }
    Ok(())
}

async fn a_wrong_token_beside_right_evidence_is_refused(fixture: &IdentityFixture) -> Checked {
    if !fixture.provider.accepts_tokens() {
        return Err(Stop::skipped("the provider takes no tokens"));
    }
    for evidence in fixture.accepted.iter().filter(|one| one.bearer.is_some()) {
        let wrong = Evidence {
            bearer: Some(BOGUS.to_owned()),
            ..evidence.clone()
        };
        let identified = fixture.provider.identify(&wrong).await;
        refused(
            identified,
            &[ErrorKind::Rejected],
            "identifying by a wrong token",
        )?;
    }
    Ok(())
}

async fn the_same_evidence_gives_the_same_subject(fixture: &IdentityFixture) -> Checked {
    if fixture.accepted.is_empty() {
        return Err(Stop::skipped(
            "the fixture has no evidence that is accepted",
        ));
    }
    for evidence in &fixture.accepted {
        let first = fixture
            .provider
            .identify(evidence)
            .await
            .doing("identify")?;
        let second = fixture
            .provider
            .identify(evidence)
            .await
            .doing("identify")?;
        check_eq!(second, first, "the second answer");
        check!(
            first.subject() != "system",
            "a caller is taken for the platform itself"
        );
        if let Some(bearer) = &evidence.bearer {
            check!(
                !first.subject().contains(bearer.as_str()),
                "the subject tells the token"
            );
        }
    }
    Ok(())
}

async fn two_callers_have_two_subjects(fixture: &IdentityFixture) -> Checked {
    let mut subjects = Vec::new();
    for evidence in &fixture.accepted {
        let actor = fixture
            .provider
            .identify(evidence)
            .await
            .doing("identify")?;
        check!(
            !subjects.contains(&actor),
            "two callers are both {}",
            actor.subject()
        );
        subjects.push(actor);
    }
    Ok(())
}

async fn no_error_tells_what_was_shown(fixture: &IdentityFixture) -> Checked {
    let Err(error) = fixture.provider.identify(&token(BOGUS)).await else {
        return Err(Stop::failed("an unknown token was accepted"));
    };
    for text in [error.to_string(), format!("{error:?}")] {
        check!(!text.contains(BOGUS), "the error tells the token: {text}");
    }
    for evidence in &fixture.accepted {
        let Some(good) = &evidence.bearer else {
            continue;
        };
        if let Err(error) = fixture.provider.identify(&token(&format!("{good}x"))).await {
            let text = format!("{error} {error:?}");
            check!(!text.contains(good.as_str()), "an error tells a token");
        }
    }
    Ok(())
}
