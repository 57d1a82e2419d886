//! What a line client promises, with a scripted program in a sandbox that is only memory.

mod echo;
mod fake;
mod platform;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use astrabox_engine::sandbox::Signal;
use astrabox_engine::{EmissionKind, EngineClient, EngineInput, ErrorKind, Step};
use astrabox_types::{ContentPart, TurnOutcome};
use futures::{FutureExt, StreamExt};

use echo::Echo;
use fake::{Fake, Lost};
use platform::{Client, Platform, attach, bind, choose, input, is_durable, spawn, within};

const WELL: Echo = Echo {
    key: "key",
    deaf: 0,
};

fn echo(key: &'static str, deaf: u8) -> Fake {
    Fake::new(move || Echo { key, deaf })
}

async fn next(client: &Client) -> Step {
    let step = within(client.turn_events().next()).await;
    step.expect("the stream goes on").expect("it is connected")
}

/// Takes and commits steps until a turn ends; gives everything but deltas.
async fn turn(client: &Client) -> Vec<EmissionKind> {
    let mut said = Vec::new();
    loop {
        let step = next(client).await;
        let durable = is_durable(&step);
        let kinds = step.emissions.into_iter().map(|one| one.into_kind());
        said.extend(kinds.filter(|kind| !matches!(kind, EmissionKind::Delta(_))));
        if durable {
            let at = client.checkpoint();
            client.committed(&at).await.expect("it writes");
        }
        if said
            .iter()
            .any(|kind| matches!(kind, EmissionKind::Terminal(_)))
        {
            return said;
        }
    }
}

/// A bound client whose handshake is committed.
async fn bound(fake: &Arc<Fake>) -> Client {
    let client = spawn(fake, 1).await.expect("it starts");
    client
        .bind_conversation(bind(None))
        .await
        .expect("it binds");
    let step = next(&client).await;
    assert!(step.commit);
    client.committed(&client.checkpoint()).await.expect("freed");
    client
}

fn failure(said: &[EmissionKind]) -> (String, String) {
    match said.last() {
        Some(EmissionKind::Terminal(terminal)) => match &terminal.outcome {
            TurnOutcome::Failed { failure } => (failure.reason.clone(), failure.message.clone()),
            outcome => panic!("{outcome:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_handshake_tells_the_key_and_keeps_what_was_said_meanwhile() {
    let fake = Arc::new(echo("key", 0));
    let client = spawn(&fake, 1).await.expect("it starts");
    let key = client.bind_conversation(bind(None)).await.expect("binds");
    assert_eq!(key.native_key, "key");
    let step = next(&client).await;
    assert!(matches!(
        step.emissions[..],
        [ref one] if matches!(one.kind(), EmissionKind::Diagnostic(draft) if draft.key.ends_with("1/14"))
    ));
    assert_eq!(client.capabilities(), ["a", "b"]);
    let info = client.server_info().expect("it tells");
    assert_eq!(info.program().as_deref(), Some("echo 1"));
    assert!(client.child_run_control().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_fails_says_why() {
    for (key, expected, kind, word) in [
        ("other", Some("key"), ErrorKind::ConversationLost, "another"),
        ("", None, ErrorKind::DeadlineExceeded, "10 s"),
        ("die", None, ErrorKind::Exited, "starting"),
    ] {
        let fake = Arc::new(echo(key, 0));
        let client = spawn(&fake, 1).await.expect("it starts");
        let error = client.bind_conversation(bind(expected)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(word), "{error}");
        client.close(Duration::from_secs(1)).await.expect("it ends");
        assert!(!fake.is_running());
    }
}

#[tokio::test]
async fn bytes_leave_only_after_their_checkpoint_is_committed() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    let before = client.checkpoint();
    client.deliver(input("hello")).await.expect("it queues");
    let step = next(&client).await;
    assert!(step.commit && step.emissions.is_empty());
    client.committed(&before).await.expect("nothing to write");
    assert!(!fake.stdin().contains("say"), "{}", fake.stdin());
    client
        .committed(&client.checkpoint())
        .await
        .expect("writes");
    assert!(fake.stdin().contains("hello\n"), "{}", fake.stdin());
}

fn inputs_of_each_kind() -> Vec<EngineInput> {
    let texts = [
        "one two",
        "ask",
        "want /workspace/a",
        "keep /workspace/b",
        "three, vier, fünf",
    ];
    texts.map(input).to_vec()
}

async fn run(fake: Fake, inputs: &[EngineInput], crash_in: Option<usize>) -> Platform {
    let mut platform = Platform::new(fake, inputs, crash_in);
    platform.run().await;
    platform
}

#[tokio::test]
async fn a_crash_at_any_point_neither_loses_nor_repeats() {
    let inputs = inputs_of_each_kind();
    for chunk in [usize::MAX, 5] {
        let fake = || Fake::new(|| WELL).in_chunks_of(chunk);
        let calm = run(fake(), &inputs, None).await;
        assert!(calm.points > 30, "{}", calm.points);
        for point in 0..calm.points {
            let crashed = run(fake(), &inputs, Some(point)).await;
            // Before anything is stored the process is not known, and another one is started.
            let again = crashed.fake.spawned() > 1;
            assert_eq!(again, point < 2, "point {point}");
            if !again {
                assert_eq!(crashed.journal, calm.journal, "point {point}");
            }
            assert_eq!(crashed.fake.stdin(), calm.fake.stdin(), "point {point}");
            let mut live = crashed.live;
            live.sort();
            live.dedup();
            let mut expected = calm.live.clone();
            expected.sort();
            let text = |live: &[(String, u64, String)]| -> Vec<String> {
                live.iter()
                    .map(|(_, at, text)| format!("{at} {text}"))
                    .collect()
            };
            assert_eq!(text(&live), text(&expected), "point {point}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_anywhere_changes_nothing() {
    let inputs = inputs_of_each_kind();
    let small = || Fake::new(|| WELL).in_chunks_of(7);
    let calm = run(small(), &inputs, None).await;
    for after in 0..20 {
        let fake = small();
        // The first attachment lives long enough to be stored.
        *fake.breaks.lock().expect("no panic") = VecDeque::from(vec![20 + after, after, 1, 3]);
        let broken = run(fake, &inputs, None).await;
        assert_eq!(broken.journal, calm.journal, "after {after}");
        assert_eq!(broken.fake.stdin(), calm.fake.stdin(), "after {after}");
    }
}

#[tokio::test]
async fn a_write_whose_request_or_answer_is_lost_is_made_once() {
    let inputs = inputs_of_each_kind();
    let calm = run(Fake::new(|| WELL), &inputs, None).await;
    for lost in [Lost::Request, Lost::Answer] {
        let fake = Arc::new(echo("key", 0));
        let client = bound(&fake).await;
        client.deliver(inputs[0].clone()).await.expect("it queues");
        assert!(next(&client).await.commit);
        fake.lost_writes.lock().expect("no panic").push_back(lost);
        let at = client.checkpoint();
        let error = client.committed(&at).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Detached);
        drop(client);

        let client = attach(&fake, 2, &at).await.expect("it lives");
        client
            .bind_conversation(bind(Some("key")))
            .await
            .expect("the same");
        let said = turn(&client).await;
        assert!(matches!(said.last(), Some(EmissionKind::Terminal(_))));
        assert!(calm.fake.stdin().starts_with(&fake.stdin()), "{lost:?}");
    }
}

#[tokio::test]
async fn an_input_delivered_again_is_said_once() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    let (first, second) = (input("one"), input("two"));
    for delivered in [&first, &first, &second] {
        client.deliver(delivered.clone()).await.expect("it queues");
    }
    turn(&client).await;
    client.deliver(first.clone()).await.expect("it queues");
    turn(&client).await;
    drop(client);
    assert_eq!(fake.stdin().matches("say ").count(), 2, "{}", fake.stdin());
}

#[tokio::test]
async fn an_input_that_is_not_taken_fails_its_turn_once_and_under_its_own_key() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    let mut keys = Vec::new();
    for _ in 0..2 {
        let mut bad = input("");
        bad.content.push(ContentPart::text("a second part"));
        client.deliver(bad.clone()).await.expect("it queues");
        client.deliver(bad).await.expect("it queues");
        let said = turn(&client).await;
        assert_eq!(failure(&said).0, "input_not_delivered");
        let [EmissionKind::Diagnostic(draft), _] = &said[..] else {
            panic!("{said:?}");
        };
        keys.push(draft.key.clone());
    }
    client.deliver(input("good")).await.expect("it queues");
    let said = turn(&client).await;
    assert!(matches!(said[0], EmissionKind::InputConsumed(_)));
    assert_ne!(keys[0], keys[1]);
    assert_eq!(fake.stdin().matches("say ").count(), 1);
}

#[tokio::test]
async fn a_program_that_dies_in_a_line_ends_the_turn_with_its_reason() {
    let inputs = [input("die")];
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    client.deliver(inputs[0].clone()).await.expect("it queues");
    let said = turn(&client).await;
    let (reason, message) = failure(&said);
    assert_eq!(reason, "engine_exited");
    assert!(message.contains("Some(7)"), "{message}");
    assert!(message.ends_with("starting\nit hurts"), "{message}");
    let stream = client.turn_events().next().await;
    assert!(stream.is_none(), "the stream ends after the process");
    assert!(client.turn_events().next().await.is_none());

    // And the same words when the server is another one by then.
    for point in 2..8 {
        let other = run(Fake::new(|| WELL), &inputs, Some(point)).await;
        let last = other.journal.last().expect("it ended");
        assert!(last.contains("starting\\nit hurts"), "{point}: {last}");
    }
}

#[tokio::test]
async fn after_the_end_nothing_is_taken_and_no_waiting_input_fails() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    fake.write(|out| out.exit(0));
    client.deliver(input("waits")).await.expect("it queues");
    assert!(next(&client).await.commit, "the input may be read first");
    let step = next(&client).await;
    assert!(is_durable(&step));
    client.deliver(input("late")).await.expect("it is dropped");
    assert!(client.turn_events().next().await.is_none());
    let answers = client.interactions().expect("it asks");
    let error = answers.answer("q1", &choose("yes")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exited);
    client.interrupt().await.expect("nothing to stop");
    let at = client.checkpoint();
    client.committed(&at).await.expect("nobody to write to");
    assert!(!fake.stdin().contains("say"));
}

#[tokio::test]
async fn a_stream_that_breaks_is_detached_for_good_and_a_new_client_goes_on() {
    let fake = echo("key", 0);
    *fake.breaks.lock().expect("no panic") = VecDeque::from(vec![2]);
    let fake = Arc::new(fake);
    let client = bound(&fake).await;
    let at = client.checkpoint();
    for _ in 0..2 {
        let error = client.turn_events().next().await.expect("an error");
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Detached);
    }
    assert!(fake.is_running(), "silence is not a verdict");
    let client = attach(&fake, 2, &at).await.expect("it lives");
    client.deliver(input("go on")).await.expect("it queues");
    turn(&client).await;
}

#[tokio::test]
async fn a_bad_answer_or_mode_is_refused_at_once_and_changes_nothing() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    let before = client.checkpoint();
    let answers = client.interactions().expect("it asks");
    let error = answers.answer("q1", &choose("yes")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAnswer);
    let modes = client.permission_modes().expect("it has modes");
    let error = modes.set_mode("wild").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfiguration);
    modes.set_mode("calm").await.expect("it has this one");
    assert_eq!(client.checkpoint(), before);
}

/// The next step that has something in it.
async fn after_signs_of_life(client: &Client) -> Step {
    loop {
        let step = next(client).await;
        if step != Step::default() {
            return step;
        }
    }
}

#[tokio::test]
async fn a_long_line_on_its_way_is_no_silence() {
    let fake = Arc::new(echo("key", 0).in_chunks_of(1 << 20));
    let client = bound(&fake).await;
    let before = client.checkpoint();
    for _ in 0..3 {
        fake.write(|out| out.stdout.extend(vec![b'x'; 1 << 20]));
        assert_eq!(next(&client).await, Step::default());
        assert_eq!(client.checkpoint(), before, "none of it is taken yet");
    }
}

#[tokio::test]
async fn output_without_anything_to_tell_is_freed_all_the_same() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    let mib = vec![b'x'; 1 << 20];
    for (stdout, stderr) in [(true, false), (false, true)] {
        fake.write(|out| {
            if stdout {
                out.stdout.extend(b"noise ");
                out.stdout.extend(&mib);
                out.stdout.push(b'\n');
            }
            if stderr {
                out.stderr.extend(&mib);
                out.stderr.extend(&mib);
            }
        });
        let step = after_signs_of_life(&client).await;
        assert!(step.commit && step.emissions.is_empty());
        client.committed(&client.checkpoint()).await.expect("freed");
        let (freed, written) = (fake.freed(), fake.written());
        assert_eq!(freed.0, written.0);
        assert!(written.1 - freed.1 <= 4 << 10, "all but the tail");
    }
}

#[tokio::test]
async fn an_overlong_line_is_told_and_freed_while_it_comes() {
    let fake = Arc::new(echo("key", 0).in_chunks_of(1 << 20));
    let client = bound(&fake).await;
    fake.write(|out| out.stdout.extend(vec![b'x'; 20 << 20]));
    while fake.freed().0 < 18 << 20 {
        assert!(after_signs_of_life(&client).await.commit);
        client.committed(&client.checkpoint()).await.expect("freed");
    }
    let at = client.checkpoint();
    drop(client);
    let client = attach(&fake, 2, &at).await.expect("it lives");
    fake.write(|out| out.say(""));
    let told = loop {
        let step = after_signs_of_life(&client).await;
        if let [told] = &step.emissions[..] {
            break told.clone();
        }
        assert!(step.commit, "more of it is freed");
    };
    assert!(matches!(told.kind(), EmissionKind::Diagnostic(_)));
    client.deliver(input("and on")).await.expect("it queues");
    turn(&client).await;
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_program_and_leaves_its_last_words_readable() {
    for (deaf, signals) in [
        (0, vec![]),
        (1, vec![Signal::Terminate]),
        (2, vec![Signal::Terminate, Signal::Kill]),
    ] {
        let fake = Arc::new(echo("key", deaf));
        let client = bound(&fake).await;
        // Somebody holds the stream in the middle of a wait, as a select loop does.
        let mut stream = client.turn_events();
        assert!(futures::poll!(stream.next()).is_pending());
        let begin = tokio::time::Instant::now();
        client.close(Duration::from_secs(4)).await.expect("it ends");
        assert!(begin.elapsed() <= Duration::from_secs(5));
        assert!(!fake.is_running());
        assert_eq!(fake.signals(), signals);
        assert!(fake.stdin().ends_with("bye\n"), "{}", fake.stdin());
        while let Some(step) = stream.next().await {
            assert!(step.is_ok());
        }
        client.close(Duration::ZERO).await.expect("twice is fine");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_send_what_no_commit_covers() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    client
        .deliver(input("never said"))
        .await
        .expect("it queues");
    assert!(next(&client).await.commit);
    client.close(Duration::from_secs(4)).await.expect("it ends");
    assert!(!fake.stdin().contains("say"), "{}", fake.stdin());
}

#[tokio::test]
async fn a_checkpoint_of_something_else_is_a_lost_conversation() {
    let fake = Arc::new(echo("key", 0));
    let at = astrabox_engine::Checkpoint::new("{}".to_owned());
    let error = attach(&fake, 1, &at).await.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::ConversationLost);
    let client = bound(&fake).await;
    let error = client.committed(&at).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[tokio::test]
async fn a_stream_that_leaves_bytes_out_is_refused() {
    for stderr in [false, true] {
        let fake = Arc::new(echo("key", 0));
        let client = bound(&fake).await;
        let at = client.checkpoint();
        drop(client);
        *fake.gap.lock().expect("no panic") = Some(stderr);
        let client = attach(&fake, 2, &at).await.expect("it lives");
        fake.write(|out| {
            out.say("noise");
            out.stderr.extend(b"noise\n");
        });
        let error = client.turn_events().next().await.expect("an error");
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.to_string().contains("output is missing"), "{error}");
    }
}

/// What the program says of what it wanted.
async fn said(fake: &Arc<Fake>, client: &Client, text: &str) -> String {
    client.deliver(input(text)).await.expect("it queues");
    turn(client).await;
    let stdin = fake.stdin();
    let last = stdin.lines().last().expect("it was told something");
    last.to_owned()
}

#[tokio::test]
async fn a_job_stays_in_the_workspace_and_follows_no_link() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    for (text, told) in [
        ("want /workspace/a", "have two"),
        (
            "want /workspace/none",
            "have not: `/workspace/none`: /workspace/none",
        ),
        (
            "want /workspace/link",
            "have not: `/workspace/link` is a symbolic link",
        ),
        (
            "want /workspace/link/x",
            "have not: `/workspace/link` is a symbolic link",
        ),
        (
            "want /etc/passwd",
            "have not: `/etc/passwd` is not below /workspace",
        ),
        (
            "want /workspace2/a",
            "have not: `/workspace2/a` is not below /workspace",
        ),
        (
            "keep /workspace/link",
            "have not: `/workspace/link` is a symbolic link",
        ),
        ("keep /workspace/new", "have Nothing"),
    ] {
        assert_eq!(said(&fake, &client, text).await, told, "{text}");
    }
    let files = fake.files.lock().expect("no panic");
    assert_eq!(files["/workspace/new"].as_deref(), Some("kept"));
    assert_eq!(files["/workspace/link"], None);
}

#[tokio::test]
async fn a_job_begins_only_after_its_checkpoint_is_committed() {
    let fake = Arc::new(echo("key", 0));
    let client = bound(&fake).await;
    client
        .deliver(input("keep /workspace/b"))
        .await
        .expect("it queues");
    assert!(next(&client).await.commit);
    let before = client.checkpoint();
    client.committed(&before).await.expect("it writes");
    // The program took the input, and wants the file written.
    let mut step = next(&client).await;
    while !step.commit {
        step = next(&client).await;
    }
    client
        .committed(&before)
        .await
        .expect("nothing new is durable");
    let early = client.turn_events().next().now_or_never();
    assert!(early.is_none(), "it is not begun");
    let kept = |fake: &Fake| {
        fake.files
            .lock()
            .expect("no panic")
            .contains_key("/workspace/b")
    };
    assert!(!kept(&fake));
    let at = client.checkpoint();
    client.committed(&at).await.expect("it writes");
    assert!(next(&client).await.commit);
    assert!(kept(&fake));
    drop(client);

    // What came of it was not committed: it is done again.
    fake.files.lock().expect("no panic").remove("/workspace/b");
    let client = attach(&fake, 2, &at).await.expect("it lives");
    client
        .bind_conversation(bind(Some("key")))
        .await
        .expect("the same");
    turn(&client).await;
    assert!(kept(&fake));
    assert_eq!(fake.stdin().matches("have Nothing").count(), 1);
}
