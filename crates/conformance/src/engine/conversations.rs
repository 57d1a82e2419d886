//! EN1, EN4 to EN6, EN9, EN11 and EN12 in whole conversations with a stand-in for the native program.

use std::time::Duration;

use astrabox_engine::{Conversation, EmissionKind, ErrorKind};
use astrabox_types::{EventPayload, InputId, TurnOutcome};

use super::drive::{Drive, is_output, summary, terminals};
use super::{Deed, EngineBench, Quirk};
use crate::case::{check, check_eq, refused};
use crate::doubles::MemoryWorkload;
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<EngineBench>> {
    cases![
        a_new_conversation_has_a_native_key [EN4],
        a_stored_conversation_is_resumed_by_its_key [EN4],
        another_conversation_than_the_stored_one_is_refused [EN4],
        an_answer_comes_whole_and_ends_its_turn_once [EN6 EN9],
        inputs_are_answered_in_order [EN5],
        a_repeated_delivery_is_said_once [EN5],
        a_turn_does_not_end_on_silence [EN9],
        an_interrupt_ends_the_turn_and_leaves_the_conversation [EN9],
        an_interrupt_without_a_turn_does_nothing [EN9],
        a_program_that_dies_in_a_turn_ends_it_as_failed [EN9 EN10],
        a_program_that_is_killed_in_a_turn_ends_it_as_failed [EN9 EN10],
        closing_ends_the_program_and_the_stream [EN3 EN10],
        two_conversations_know_nothing_of_each_other [EN1],
        what_is_not_known_is_kept [EN11],
        a_child_is_not_taken_for_its_parent [EN12],
    ]
}

async fn a_new_conversation_has_a_native_key(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    check!(!session.native_key.trim().is_empty(), "the key is empty");
    Ok(())
}

async fn a_stored_conversation_is_resumed_by_its_key(bench: &EngineBench) -> Checked {
    let native_key = bench.session().await?.native_key;
    let workload = MemoryWorkload::running(bench.program(Quirk::Faithful)?);
    bench.restore(&workload, &native_key)?;
    let conversation = Conversation::Resume {
        native_key: native_key.clone(),
    };
    let resumed = bench.bind(&workload, 2, conversation).await;
    let (client, bound) = resumed.doing("resume")?;
    check_eq!(bound.native_key, native_key, "the resumed conversation");
    let mut drive = Drive::new(&*client);
    let input = bench.input(Deed::Answer, "resumed")?;
    client.deliver(input).await.doing("deliver")?;
    drive.until_terminals(1).await
}

async fn another_conversation_than_the_stored_one_is_refused(bench: &EngineBench) -> Checked {
    let native_key = bench.session().await?.native_key;
    let workload = MemoryWorkload::running(bench.program(Quirk::OtherConversation)?);
    bench.restore(&workload, &native_key)?;
    let conversation = Conversation::Resume { native_key };
    let bound = bench.bind(&workload, 2, conversation).await;
    let bound = bound.map(|(_, bound)| bound);
    refused(
        bound,
        &[ErrorKind::ConversationLost],
        "binding another conversation",
    )?;
    Ok(())
}

async fn an_answer_comes_whole_and_ends_its_turn_once(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let input = bench.input(Deed::Answer, "whole-word")?;
    let id = input.input_id;
    let mut drive = Drive::new(&*session.client);
    session.client.deliver(input).await.doing("deliver")?;
    drive.until_terminals(1).await?;
    check_turn(&drive.told, id, "whole-word")?;
    check_deltas(&drive.told)?;
    drive
        .is_quiet_for(Duration::from_secs(60))
        .await
        .doing("after the end of the turn")
}

/// One input taken, then output, then one completed end; the answer has the word.
fn check_turn(told: &[EmissionKind], id: InputId, word: &str) -> Checked {
    let taken: Vec<_> = told
        .iter()
        .enumerate()
        .filter(|(_, kind)| **kind == EmissionKind::InputConsumed(id))
        .map(|(at, _)| at)
        .collect();
    check!(
        taken.len() == 1,
        "the input was taken {} times: {}",
        taken.len(),
        summary(told)
    );
    let first = told.iter().position(is_output).unwrap_or(told.len());
    check!(
        taken[0] < first,
        "output came before the input was taken: {}",
        summary(told)
    );
    answered(told, word)?;
    check_eq!(terminals(told), 1, "how many ends the turn has");
    let Some(EmissionKind::Terminal(end)) = told.iter().rfind(|kind| is_output(kind)) else {
        return Err(Stop::failed(format!(
            "output came after the end of the turn: {}",
            summary(told)
        )));
    };
    check_eq!(end.outcome, TurnOutcome::Completed, "how the turn ended");
    Ok(())
}

/// A message has the word.
fn answered(told: &[EmissionKind], word: &str) -> Checked {
    check!(
        messages(told).any(|text| text.contains(word)),
        "no message has the word {word:?}: {:?}",
        messages(told).collect::<Vec<_>>()
    );
    Ok(())
}

/// The whole messages of the conversation itself.
fn messages(told: &[EmissionKind]) -> impl Iterator<Item = &str> {
    told.iter().filter_map(|kind| match kind {
        EmissionKind::PublicEvent(draft) if draft.child_run.is_none() => match &draft.payload {
            EventPayload::MessageCompleted { text, .. } => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    })
}

/// The pieces of a message join without a gap to the text of the event that completes it.
fn check_deltas(told: &[EmissionKind]) -> Checked {
    for (at, kind) in told.iter().enumerate() {
        let EmissionKind::PublicEvent(draft) = kind else {
            continue;
        };
        let EventPayload::MessageCompleted { text, .. } = &draft.payload else {
            continue;
        };
        let mut joined = String::new();
        for piece in &told[..at] {
            let EmissionKind::Delta(piece) = piece else {
                continue;
            };
            if piece.key == draft.key {
                check_eq!(piece.offset, joined.len() as u64, "where a piece begins");
                joined.push_str(&piece.text);
            }
        }
        check!(
            joined.is_empty() || joined == *text,
            "the pieces say {joined:?}, the message says {text:?}"
        );
    }
    Ok(())
}

async fn inputs_are_answered_in_order(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let words = ["first-word", "second-word", "third-word"];
    let mut drive = Drive::new(&*session.client);
    for (count, word) in words.iter().enumerate() {
        let input = bench.input(Deed::Answer, word)?;
        session.client.deliver(input).await.doing("deliver")?;
        let its_message = |kind: &EmissionKind| answered(std::slice::from_ref(kind), word).is_ok();
        drive.until(its_message, "its answer").await?;
        drive.until_terminals(count + 1).await?;
    }
    let said: Vec<_> = messages(&drive.told).collect();
    let places: Vec<_> = words
        .iter()
        .map(|word| said.iter().position(|text| text.contains(word)))
        .collect();
    check!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "the answers came as {said:?}"
    );
    Ok(())
}

async fn a_repeated_delivery_is_said_once(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let input = bench.input(Deed::Answer, "said-once")?;
    let mut drive = Drive::new(&*session.client);
    for _ in 0..2 {
        session
            .client
            .deliver(input.clone())
            .await
            .doing("deliver")?;
    }
    drive.until_terminals(1).await?;
    session.client.deliver(input).await.doing("deliver again")?;
    drive
        .is_quiet_for(Duration::from_secs(60))
        .await
        .doing("after a repeated delivery")?;
    check_eq!(
        session.given("said-once"),
        1,
        "how often the program was told"
    );
    Ok(())
}

async fn a_turn_does_not_end_on_silence(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let input = bench.input(Deed::Hold, "held")?;
    let mut drive = Drive::new(&*session.client);
    let id = input.input_id;
    session.client.deliver(input).await.doing("deliver")?;
    drive
        .until(|kind| *kind == EmissionKind::InputConsumed(id), "the input")
        .await?;
    drive.until(is_output, "output").await?;
    drive.settle(Duration::from_secs(10)).await?;
    drive
        .is_quiet_for(Duration::from_secs(3600))
        .await
        .doing("an hour of silence")?;
    check_eq!(
        terminals(&drive.told),
        0,
        "ends of a turn that only is silent"
    );
    Ok(())
}

async fn an_interrupt_ends_the_turn_and_leaves_the_conversation(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let input = bench.input(Deed::Hold, "stopped")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until(is_output, "output").await?;
    session.client.interrupt().await.doing("interrupt")?;
    drive.until_terminals(1).await?;
    let end = drive.told.iter().find_map(|kind| match kind {
        EmissionKind::Terminal(end) => Some(end.outcome.clone()),
        _ => None,
    });
    check_eq!(end, Some(TurnOutcome::Interrupted), "how the turn ended");
    let input = bench.input(Deed::Answer, "afterwards")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until_terminals(2).await?;
    check!(
        messages(&drive.told).any(|text| text.contains("afterwards")),
        "the next input was not answered"
    );
    Ok(())
}

async fn an_interrupt_without_a_turn_does_nothing(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    session.client.interrupt().await.doing("interrupt")?;
    drive
        .is_quiet_for(Duration::from_secs(60))
        .await
        .doing("an interrupt of nothing")?;
    let input = bench.input(Deed::Answer, "calm")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until_terminals(1).await?;
    answered(&drive.told, "calm")
}

/// The turn failed, once, and the stream ended behind it.
fn check_failed(told: &[EmissionKind]) -> Checked {
    let ends: Vec<_> = told
        .iter()
        .filter_map(|kind| match kind {
            EmissionKind::Terminal(end) => Some(&end.outcome),
            _ => None,
        })
        .collect();
    let [TurnOutcome::Failed { failure }] = ends.as_slice() else {
        return Err(Stop::failed(format!("the turn ended as {ends:?}")));
    };
    check!(!failure.reason.is_empty(), "the failure has no reason");
    check!(!failure.message.is_empty(), "the failure has no text");
    Ok(())
}

async fn a_program_that_dies_in_a_turn_ends_it_as_failed(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let input = bench.input(Deed::Die, "last-word")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until_end().await?;
    check_failed(&drive.told)
}

async fn a_program_that_is_killed_in_a_turn_ends_it_as_failed(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let input = bench.input(Deed::Hold, "killed")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until(is_output, "output").await?;
    session.workload.kill_all();
    drive.until_end().await?;
    check!(
        session.client.exit().is_some(),
        "it does not say how it ended"
    );
    check_failed(&drive.told)
}

async fn closing_ends_the_program_and_the_stream(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    check_eq!(session.client.exit(), None, "the exit of what runs");
    let closing = session.client.close(Duration::from_secs(5));
    let closed = tokio::time::timeout(Duration::from_secs(60), closing).await;
    closed
        .map_err(|_| Stop::failed("`close` does not come back"))?
        .doing("close")?;
    let mut drive = Drive::new(&*session.client);
    drive.until_end().await?;
    check!(
        session.client.exit().is_some(),
        "it does not say how it ended"
    );
    check_eq!(terminals(&drive.told), 0, "ends of a turn that never began");
    check_eq!(session.workload.running_processes(), [], "what runs");
    Ok(())
}

async fn two_conversations_know_nothing_of_each_other(bench: &EngineBench) -> Checked {
    let (one, other) = (bench.session().await?, bench.session().await?);
    let mut drives = [Drive::new(&*one.client), Drive::new(&*other.client)];
    let words = ["for-the-one", "for-the-other"];
    for (session, word) in [&one, &other].iter().zip(words) {
        let input = bench.input(Deed::Answer, word)?;
        session.client.deliver(input).await.doing("deliver")?;
    }
    // The second one first, so that neither waits for the other.
    for at in [1, 0] {
        drives[at].until_terminals(1).await?;
        answered(&drives[at].told, words[at])?;
    }
    for (session, (own, foreign)) in [(&one, (0, 1)), (&other, (1, 0))] {
        check_eq!(
            session.given(words[own]),
            1,
            "how often it got its own input"
        );
        check_eq!(
            session.given(words[foreign]),
            0,
            "how often it got the other's"
        );
        check_eq!(
            session.workload.spawned().len(),
            1,
            "how many programs its box has"
        );
    }
    Ok(())
}

async fn what_is_not_known_is_kept(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let input = bench.input(Deed::Strange, "strange-word")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until_terminals(1).await?;
    let kept = drive.told.iter().any(|kind| match kind {
        EmissionKind::Diagnostic(draft) => {
            let native = draft.native.as_ref().map_or("", |native| native.text());
            let text = match &draft.payload {
                EventPayload::DiagnosticRaw { message, .. } => message.as_str(),
                _ => "",
            };
            native.contains("strange-word") || text.contains("strange-word")
        }
        _ => false,
    });
    check!(
        kept,
        "an unknown event was not kept; it told {}",
        summary(&drive.told)
    );
    Ok(())
}

async fn a_child_is_not_taken_for_its_parent(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let mut drive = Drive::new(&*session.client);
    let input = bench.input(Deed::Child, "child-word")?;
    session.client.deliver(input).await.doing("deliver")?;
    drive.until_terminals(1).await?;
    let told = &drive.told;
    let run = told.iter().find_map(|kind| match kind {
        EmissionKind::ChildRunFact(run, _) => Some(run.id.clone()),
        _ => None,
    });
    check!(run.is_some(), "no child run was told of: {}", summary(told));
    let mut by_child = false;
    for kind in told {
        let (said, whose) = match kind {
            EmissionKind::PublicEvent(draft) => match &draft.payload {
                EventPayload::MessageCompleted { text, .. } => (text, &draft.child_run),
                _ => continue,
            },
            EmissionKind::Delta(draft) => (&draft.text, &draft.child_run),
            _ => continue,
        };
        if said.contains("child-word") {
            check_eq!(*whose, run, "who said the child's word");
            by_child = true;
        }
    }
    check!(by_child, "the child's word is not there: {}", summary(told));
    Ok(())
}
