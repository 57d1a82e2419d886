//! EN7, EN8 and EN10: no crash loses or repeats anything, and the same bytes always say the same.

use std::time::Duration;

use astrabox_engine::{Checkpoint, Conversation, EmissionKind, EngineClient, EngineInput};
use astrabox_types::InputId;

use super::bench::Session;
use super::drive::{Drive, is_durable, is_output, summary, terminals};
use super::{Deed, EngineBench, Quirk};
use crate::case::{check, check_eq};
use crate::doubles::MemoryWorkload;
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<EngineBench>> {
    cases![
        bytes_leave_only_after_their_checkpoint_is_committed [EN7],
        a_crash_before_the_write_loses_nothing [EN7],
        a_crash_after_the_write_repeats_nothing [EN7],
        a_client_that_is_lost_at_every_step_tells_the_same [EN7 EN8],
        the_same_bytes_in_any_pieces_tell_the_same [EN8],
        a_lost_connection_is_no_end [EN10],
    ]
}

/// Delivers an input and takes steps until one of them is to be committed, and does not commit it.
async fn uncommitted(client: &dyn EngineClient, input: &EngineInput) -> Result<Checkpoint, Stop> {
    let mut drive = Drive::new(client);
    // What is left of the binding is committed before.
    drive.settle(Duration::from_secs(10)).await?;
    client.deliver(input.clone()).await.doing("deliver")?;
    loop {
        let step = drive.step().await.doing("waiting for the input to leave")?;
        let Some(step) = step else {
            return Err(Stop::failed("the stream ended before the input left"));
        };
        if step.commit {
            return Ok(client.checkpoint());
        }
        drive.keep(step).await?;
    }
}

/// A new client for the running program, from this checkpoint.
async fn reattach(
    bench: &EngineBench,
    session: &Session,
    epoch: u64,
    checkpoint: Checkpoint,
) -> Result<Box<dyn EngineClient>, Stop> {
    let conversation = Conversation::Attach {
        native_key: session.native_key.clone(),
        checkpoint,
    };
    let (client, bound) = bench
        .bind(&session.workload, epoch, conversation)
        .await
        .doing("reach the running program")?;
    check_eq!(
        bound.native_key,
        session.native_key,
        "the conversation reached"
    );
    check_eq!(
        session.workload.spawned().len(),
        1,
        "how many programs were started"
    );
    Ok(client)
}

async fn bytes_leave_only_after_their_checkpoint_is_committed(bench: &EngineBench) -> Checked {
    let session = bench.session().await?;
    let input = bench.input(Deed::Answer, "held-back")?;
    let checkpoint = uncommitted(&*session.client, &input).await?;
    check_eq!(
        session.given("held-back"),
        0,
        "how often it left before the commit"
    );
    session
        .client
        .committed(&checkpoint)
        .await
        .doing("committed")?;
    check_eq!(
        session.given("held-back"),
        1,
        "how often it left after the commit"
    );
    session
        .client
        .committed(&checkpoint)
        .await
        .doing("committed again")?;
    check_eq!(
        session.given("held-back"),
        1,
        "how often it left after a second call"
    );
    Ok(())
}

async fn a_crash_before_the_write_loses_nothing(bench: &EngineBench) -> Checked {
    let mut session = bench.session().await?;
    let input = bench.input(Deed::Answer, "not-lost")?;
    let id = input.input_id;
    let checkpoint = uncommitted(&*session.client, &input).await?;
    session.client = reattach(bench, &session, 2, checkpoint).await?;
    finish(&session, id, "not-lost").await
}

async fn a_crash_after_the_write_repeats_nothing(bench: &EngineBench) -> Checked {
    let mut session = bench.session().await?;
    let input = bench.input(Deed::Answer, "not-twice")?;
    let id = input.input_id;
    let checkpoint = uncommitted(&*session.client, &input).await?;
    session
        .client
        .committed(&checkpoint)
        .await
        .doing("committed")?;
    // The program answers into a connection that nobody has any more.
    tokio::task::yield_now().await;
    session.client = reattach(bench, &session, 2, checkpoint).await?;
    // The platform does not know whether it was delivered, and says it again.
    session.client.deliver(input).await.doing("deliver again")?;
    finish(&session, id, "not-twice").await
}

/// The turn comes to its end with the input taken once.
async fn finish(session: &Session, id: InputId, word: &str) -> Checked {
    let mut drive = Drive::new(&*session.client);
    drive.until_terminals(1).await?;
    check_eq!(session.given(word), 1, "how often the program was told");
    let taken = drive
        .told
        .iter()
        .filter(|kind| **kind == EmissionKind::InputConsumed(id));
    check_eq!(
        taken.count(),
        1,
        "how often the input was taken ({})",
        summary(&drive.told)
    );
    Ok(())
}

/// Inputs that together show everything that the fixture's program can do by itself.
fn script(bench: &EngineBench) -> Result<Vec<EngineInput>, Stop> {
    let mut inputs = vec![bench.input(Deed::Answer, "one-word")?];
    for deed in [Deed::Child, Deed::Strange, Deed::Request, Deed::Answer] {
        match bench.input(deed, "next-word") {
            Ok(input) => inputs.push(input),
            Err(Stop::Skipped(_)) => {}
            Err(failed) => return Err(failed),
        }
    }
    Ok(inputs)
}

/// Holds the conversation in one go, with output in pieces of this size.
async fn undisturbed(
    bench: &EngineBench,
    inputs: &[EngineInput],
    chunk: usize,
) -> Result<Vec<EmissionKind>, Stop> {
    let workload = MemoryWorkload::running(bench.program(Quirk::Faithful)?);
    workload.set_chunk(chunk);
    let session = bench.session_in(workload).await?;
    let mut drive = Drive::new(&*session.client);
    for (count, input) in inputs.iter().enumerate() {
        session
            .client
            .deliver(input.clone())
            .await
            .doing("deliver")?;
        drive.until_terminals(count + 1).await?;
    }
    Ok(drive.told)
}

fn durable(told: Vec<EmissionKind>) -> Vec<EmissionKind> {
    told.into_iter().filter(is_durable).collect()
}

/// The two must be equal; tells the first difference.
fn check_same(told: &[EmissionKind], wanted: &[EmissionKind], what: &str) -> Checked {
    for (at, (one, two)) in told.iter().zip(wanted).enumerate() {
        check!(
            one == two,
            "{what}, emission {at} is {one:?}, it was {two:?}"
        );
    }
    check!(
        told.len() == wanted.len(),
        "{what}, it told {} emissions ({}), it was {} ({})",
        told.len(),
        summary(told),
        wanted.len(),
        summary(wanted)
    );
    Ok(())
}

async fn a_client_that_is_lost_at_every_step_tells_the_same(bench: &EngineBench) -> Checked {
    let inputs = script(bench)?;
    let wanted = durable(undisturbed(bench, &inputs, usize::MAX).await?);
    let mut session = bench.session().await?;
    let (mut told, mut epoch) = (Vec::new(), 1);
    for (count, input) in inputs.iter().enumerate() {
        session
            .client
            .deliver(input.clone())
            .await
            .doing("deliver")?;
        while terminals(&told) < count + 1 {
            let checkpoint = one_durable_step(&*session.client, &mut told).await?;
            epoch += 1;
            session.client = reattach(bench, &session, epoch, checkpoint).await?;
            // Whether the lost client had taken it, only the checkpoint knows.
            session
                .client
                .deliver(input.clone())
                .await
                .doing("deliver again")?;
        }
    }
    check_same(&durable(told), &wanted, "with a new client after each step")
}

/// Takes steps until one is committed that told something; gives its checkpoint. A step that only lets bytes leave
/// comes again with each new client, so losing every client there would never get on.
async fn one_durable_step(
    client: &dyn EngineClient,
    told: &mut Vec<EmissionKind>,
) -> Result<Checkpoint, Stop> {
    let mut drive = Drive::new(client);
    loop {
        let Some(step) = drive.step().await? else {
            return Err(Stop::failed(format!(
                "the stream ended in the middle; it told {}",
                summary(told)
            )));
        };
        let before = drive.told.len();
        drive.keep(step).await?;
        if drive.told[before..].iter().any(is_durable) {
            told.append(&mut drive.told);
            let committed = drive.committed.clone();
            return committed.ok_or_else(|| Stop::failed("nothing was committed"));
        }
    }
}

async fn the_same_bytes_in_any_pieces_tell_the_same(bench: &EngineBench) -> Checked {
    let inputs = script(bench)?;
    let wanted = undisturbed(bench, &inputs, usize::MAX).await?;
    for chunk in [1, 2, 7, 64] {
        let told = undisturbed(bench, &inputs, chunk).await?;
        check_same(&told, &wanted, &format!("in pieces of {chunk} bytes"))?;
    }
    Ok(())
}

async fn a_lost_connection_is_no_end(bench: &EngineBench) -> Checked {
    let mut session = bench.session().await?;
    let input = bench.input(Deed::Hold, "goes-on")?;
    let mut drive = Drive::new(&*session.client);
    session.client.deliver(input).await.doing("deliver")?;
    drive.until(is_output, "output").await?;
    let told = terminals(&drive.told);
    let Some(checkpoint) = drive.committed.clone() else {
        return Err(Stop::failed("an input left and nothing was committed"));
    };
    session.workload.cut();
    drive.until_detached().await?;
    check_eq!(
        terminals(&drive.told),
        told,
        "ends of turns by a lost connection"
    );
    drop(drive);
    session.workload.reconnect();
    check_eq!(
        session.workload.running_processes().len(),
        1,
        "programs that live on"
    );
    session.client = reattach(bench, &session, 2, checkpoint).await?;
    session.client.interrupt().await.doing("interrupt")?;
    Drive::new(&*session.client).until_terminals(1).await
}
