//! EN13 and EN14: what a program asks is answered, and an optional power is there when its accessor says so.

use std::time::Duration;

use astrabox_engine::{EmissionKind, EngineClient, EngineManifest, InteractionDraft};
use astrabox_types::{
    ChildRunId, EngineFeature, EventPayload, InteractionAnswer, PermissionLevel, Presentation,
    TurnOutcome,
};

use super::drive::{Drive, summary, terminals};
use super::{Deed, EngineBench};
use crate::case::{check, check_eq};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<EngineBench>> {
    cases![
        a_request_that_is_not_known_is_answered [EN13],
        powers_are_the_same_at_every_look [EN14],
        a_person_is_asked_and_the_answer_goes_on [EN14 EN7],
        an_interrupt_closes_what_is_asked [EN9 EN14],
        an_answer_to_what_is_not_asked_is_refused [EN14],
        a_permission_mode_can_be_set_and_no_other [EN14 EN2],
        a_child_run_that_is_not_there_cannot_be_stopped [EN14],
    ]
}

async fn a_request_that_is_not_known_is_answered(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let input = bench.input(Deed::Request, "odd-request")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive
        .until_terminals(1)
        .await
        .doing("the program waits for an answer to its request")
}

async fn powers_are_the_same_at_every_look(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let kind = bench.adapter().kind();
    let manifest = EngineManifest::of(kind, &*session.client);
    check_eq!(
        EngineManifest::of(kind, &*session.client),
        manifest,
        "the manifest"
    );
    let declared = bench.adapter().capabilities();
    // A program that the environment names tells its modes itself.
    check!(
        !manifest.permission_modes
            || declared.names_program
            || !declared.permission_modes.is_empty(),
        "modes can be changed, and none is declared"
    );
    for (feature, power) in [
        (EngineFeature::ToolApproval, manifest.interactions),
        (EngineFeature::Question, manifest.interactions),
        (EngineFeature::Decision, manifest.interactions),
        (EngineFeature::ModeChange, manifest.permission_modes),
        (EngineFeature::ChildRunStop, manifest.child_run_control),
    ] {
        check!(
            power || !declared.has(feature),
            "`{}` is declared, and there is no such power",
            feature.as_str()
        );
    }
    if let Some(info) = session.client.server_info() {
        let version = bench.adapter().capabilities().program_version;
        let program = info.program();
        check!(
            program.as_ref().is_none_or(|text| !text.is_empty()),
            "the program has an empty name; the adapter is for {version}"
        );
    }
    let asks = bench.input(Deed::Ask, "x").is_ok();
    check_eq!(
        manifest.interactions,
        asks,
        "whether it asks people, where the fixture's program does"
    );
    Ok(())
}

/// Delivers an input that asks, and waits for the question.
async fn asked(
    bench: &EngineBench,
    client: &dyn EngineClient,
    drive: &mut Drive<'_>,
) -> Result<InteractionDraft, Stop> {
    let input = bench.input(Deed::Ask, "may-it")?;
    client.deliver(input).await.doing("deliver")?;
    let is_question = |kind: &EmissionKind| matches!(kind, EmissionKind::InteractionRequested(_));
    drive.until(is_question, "the question").await?;
    drive
        .is_quiet_for(Duration::from_secs(60))
        .await
        .doing("while a question is open")?;
    let question = drive.told.iter().find_map(|kind| match kind {
        EmissionKind::InteractionRequested(draft) => Some(draft.clone()),
        _ => None,
    });
    question.ok_or_else(|| Stop::failed("the question is gone"))
}

fn first_choice(question: &InteractionDraft) -> InteractionAnswer {
    match &question.presentation {
        Presentation::ToolApproval { choices, .. } | Presentation::Decision { choices, .. } => {
            InteractionAnswer::Choose {
                choice_id: choices
                    .first()
                    .map_or_else(String::new, |one| one.id.clone()),
                comment: None,
                input: None,
            }
        }
        Presentation::Question { questions } => InteractionAnswer::Reply {
            answers: questions
                .iter()
                .map(|one| {
                    let option = one.options.first().cloned();
                    (
                        one.id.clone(),
                        vec![option.unwrap_or_else(|| "yes".to_owned())],
                    )
                })
                .collect(),
        },
    }
}

fn outcome(told: &[EmissionKind]) -> Option<&TurnOutcome> {
    told.iter().rev().find_map(|kind| match kind {
        EmissionKind::Terminal(end) => Some(&end.outcome),
        _ => None,
    })
}

async fn a_person_is_asked_and_the_answer_goes_on(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let question = asked(bench, &*session.client, &mut drive).await?;
    check!(!question.native_id.is_empty(), "the question has no id");
    let Some(interactions) = session.client.interactions() else {
        return Err(Stop::failed("it asks, and cannot be answered"));
    };
    let answer = first_choice(&question);
    let answered = interactions.answer(&question.native_id, &answer).await;
    answered.doing(format!("answer {answer:?}"))?;
    drive.until_terminals(1).await?;
    check_eq!(
        outcome(&drive.told),
        Some(&TurnOutcome::Completed),
        "how the turn ended"
    );
    // The same answer again is for a question that is closed.
    let again = interactions.answer(&question.native_id, &answer).await;
    is_refused(again.is_err(), &mut drive, "a second answer").await
}

async fn an_interrupt_closes_what_is_asked(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let question = asked(bench, &*session.client, &mut drive).await?;
    session.client.interrupt().await.doing("interrupt")?;
    drive.until_terminals(1).await?;
    check_eq!(
        outcome(&drive.told),
        Some(&TurnOutcome::Interrupted),
        "how the turn ended"
    );
    let Some(interactions) = session.client.interactions() else {
        return Err(Stop::failed("it asks, and cannot be answered"));
    };
    let late = interactions
        .answer(&question.native_id, &first_choice(&question))
        .await;
    is_refused(late.is_err(), &mut drive, "a late answer").await
}

/// A call is refused by an error at once, or by a remark in the stream; and nothing else comes of it.
async fn is_refused(at_once: bool, drive: &mut Drive<'_>, what: &str) -> Checked {
    let remarks = |told: &[EmissionKind]| {
        let refusals = told.iter().filter(|kind| match kind {
            EmissionKind::Diagnostic(draft) => {
                matches!(draft.payload, EventPayload::DiagnosticRaw { .. })
            }
            _ => false,
        });
        refusals.count()
    };
    let (before, ends) = (remarks(&drive.told), terminals(&drive.told));
    drive
        .is_quiet_for(Duration::from_secs(60))
        .await
        .doing(format!("after {what}"))?;
    check!(
        at_once || remarks(&drive.told) > before,
        "{what} was neither refused nor remarked; it told {}",
        summary(&drive.told)
    );
    check_eq!(terminals(&drive.told), ends, "ends of turns after {what}");
    Ok(())
}

async fn an_answer_to_what_is_not_asked_is_refused(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let Some(interactions) = session.client.interactions() else {
        return Err(Stop::skipped("the engine asks nobody"));
    };
    let mut drive = Drive::new(&*session.client);
    let answer = InteractionAnswer::Choose {
        choice_id: "yes".to_owned(),
        comment: None,
        input: None,
    };
    let answered = interactions.answer("nobody-asked-this", &answer).await;
    is_refused(answered.is_err(), &mut drive, "an answer to nothing").await
}

async fn a_permission_mode_can_be_set_and_no_other(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let Some(modes) = session.client.permission_modes() else {
        return Err(Stop::skipped("the engine's modes cannot be changed"));
    };
    let mut drive = Drive::new(&*session.client);
    let unknown = modes.set_mode("no-such-mode").await;
    is_refused(unknown.is_err(), &mut drive, "an unknown mode").await?;
    let declared = bench.adapter().capabilities().permission_modes;
    let usable = declared
        .iter()
        .filter(|mode| mode.level == PermissionLevel::Default);
    for mode in usable {
        let told = drive.told.len();
        modes.set_mode(mode.name).await.doing(mode.name)?;
        drive
            .is_quiet_for(Duration::from_secs(60))
            .await
            .doing(format!("after setting {}", mode.name))?;
        let refusals = drive.told[told..].iter().filter(|kind| match kind {
            EmissionKind::Diagnostic(draft) => matches!(
                &draft.payload,
                EventPayload::DiagnosticRaw { topic, .. } if topic == "command_refused"
            ),
            _ => false,
        });
        check_eq!(refusals.count(), 0, "refusals of the mode {}", mode.name);
    }
    let input = bench.input(Deed::Answer, "in-the-mode")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until_terminals(terminals(&drive.told) + 1).await
}

async fn a_child_run_that_is_not_there_cannot_be_stopped(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let Some(control) = session.client.child_run_control() else {
        return Err(Stop::skipped("the engine's child runs cannot be stopped"));
    };
    let mut drive = Drive::new(&*session.client);
    let stopped = control.stop(&ChildRunId("nobody".to_owned())).await;
    is_refused(stopped.is_err(), &mut drive, "stopping nobody").await
}
