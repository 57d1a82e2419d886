use std::time::Duration;

use astrabox_runner_core::protocol::{
    AttachEvent, ExitReason, ExitStatus, ProcessState, RunnerErrorKind, SignalTarget, SpawnCommand,
};
use bytes::Bytes;

use crate::support::{Box, shell, until};

fn cat(name: &str) -> SpawnCommand {
    SpawnCommand {
        stdin: true,
        ..shell(name, "exec cat")
    }
}

#[tokio::test]
async fn a_process_gives_its_output_its_errors_and_its_exit() {
    let sandbox = Box::new().await;
    let (out, err, exit) = sandbox
        .run("one", "echo out; echo err >&2; pwd; exit 7")
        .await;
    assert_eq!((out.as_str(), err.as_str()), ("out\n/workspace\n", "err\n"));
    assert_eq!(
        (exit.reason, exit.status),
        (ExitReason::Exited, Some(ExitStatus::Code(7)))
    );
    assert_eq!((exit.stdout_end, exit.stderr_end), (15, 4));
    let (out, _, _) = sandbox.run("two", "env; id -u; cat").await;
    assert!(out.contains("PATH=") && out.ends_with("1000\n"), "{out}");
    assert!(!out.contains("CARGO"), "nothing is inherited: {out}");
}

#[tokio::test]
async fn stdin_is_delivered_once_however_often_it_is_written() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    sandbox.spawn(cat("cat")).await;
    let hello = Bytes::from_static(b"hello ");
    for _ in 0..3 {
        assert_eq!(
            client.write_stdin("cat", 0, hello.clone()).await.unwrap(),
            6
        );
    }
    let second = sandbox.connect().await;
    let overlap = Bytes::from_static(b"lo world\n");
    assert_eq!(second.write_stdin("cat", 3, overlap).await.unwrap(), 12);
    let gap = client
        .write_stdin("cat", 13, hello.clone())
        .await
        .unwrap_err();
    assert_eq!(
        gap.kind(),
        RunnerErrorKind::OffsetAhead {
            lowest: 0,
            next: 12
        }
    );
    let other = client
        .write_stdin("cat", 0, Bytes::from_static(b"HELLO"))
        .await
        .unwrap_err();
    assert_eq!(other.kind(), RunnerErrorKind::StdinConflict);
    let early = client.close_stdin("cat", Some(6)).await.unwrap_err();
    assert_eq!(early.kind(), RunnerErrorKind::StdinConflict);
    client.close_stdin("cat", Some(12)).await.unwrap();
    client.close_stdin("cat", None).await.unwrap();
    let (out, _, exit) = sandbox.collect("cat", 0, 0).await;
    assert_eq!(
        (out.as_str(), exit.status),
        ("hello world\n", Some(ExitStatus::Code(0)))
    );
    let late = client
        .write_stdin("cat", 12, hello.clone())
        .await
        .unwrap_err();
    assert_eq!(late.kind(), RunnerErrorKind::ProcessEnded);
    assert_eq!(
        client.write_stdin("cat", 0, hello).await.unwrap(),
        12,
        "still the same answer"
    );
}

#[tokio::test]
async fn input_longer_than_every_buffer_arrives_whole() {
    let sandbox = Box::new().await;
    sandbox
        .spawn(SpawnCommand {
            stdin: true,
            ..shell("sum", "sleep 0.2; exec md5sum")
        })
        .await;
    let long: Bytes = (0..5_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let next = sandbox
        .client
        .write_stdin("sum", 0, long.clone())
        .await
        .unwrap();
    assert_eq!(next, 5_000_000);
    sandbox.client.close_stdin("sum", Some(next)).await.unwrap();
    let (out, _, _) = sandbox.collect("sum", 0, 0).await;
    std::fs::write(sandbox.spec.state_dir.join("reference"), &long).unwrap();
    let reference = std::process::Command::new("md5sum")
        .arg(sandbox.spec.state_dir.join("reference"))
        .output()
        .unwrap();
    assert_eq!(out.as_bytes()[..32], reference.stdout[..32]);
}

#[tokio::test]
async fn a_lost_reader_loses_nothing_and_the_process_goes_on() {
    let sandbox = Box::new().await;
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; read x; echo $x";
    sandbox
        .spawn(SpawnCommand {
            stdin: true,
            ..shell("engine", script)
        })
        .await;
    let mut seen = Vec::new();
    {
        let first = sandbox.connect().await;
        let mut attachment = first.attach("engine", 0, 0).await.unwrap();
        while seen.len() < 1000 {
            if let AttachEvent::Output { data, .. } = attachment.next().await.unwrap().unwrap() {
                seen.extend_from_slice(&data);
            }
        }
    }
    let line = Bytes::from_static(b"still here\n");
    sandbox.client.write_stdin("engine", 0, line).await.unwrap();
    let (rest, _, _) = sandbox.collect("engine", seen.len() as u64, 0).await;
    seen.extend_from_slice(rest.as_bytes());
    let expected: String = (0..2000).map(|i| format!("line {i}\n")).collect();
    assert_eq!(String::from_utf8(seen).unwrap(), expected + "still here\n");
    let freed = sandbox.client.ack("engine", 100, 0).await.unwrap().0;
    assert_eq!(freed.lowest_offset, 100);
    let gone = sandbox.client.attach("engine", 99, 0).await.unwrap_err();
    let next = freed.next_offset;
    assert_eq!(
        gone.kind(),
        RunnerErrorKind::OffsetFreed { lowest: 100, next }
    );
    let ahead = sandbox.client.ack("engine", next + 1, 0).await.unwrap_err();
    assert_eq!(
        ahead.kind(),
        RunnerErrorKind::OffsetAhead { lowest: 100, next }
    );
}

#[tokio::test]
async fn a_process_waits_while_its_spool_is_full() {
    let sandbox = Box::new().await;
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo done >&2";
    let command = SpawnCommand {
        spool_bytes: 1 << 20,
        ..shell("writer", script)
    };
    sandbox.spawn(command).await;
    until("a full spool", || async {
        sandbox
            .client
            .process("writer")
            .await
            .unwrap()
            .unwrap()
            .stdout
            .full
    })
    .await;
    let info = sandbox.client.process("writer").await.unwrap().unwrap();
    assert_eq!(
        (info.state, info.stdout.next_offset),
        (ProcessState::Running, 1 << 20)
    );
    let mut attachment = sandbox.client.attach("writer", 0, 0).await.unwrap();
    let mut total = 0;
    let exit = loop {
        match attachment.next().await.unwrap().unwrap() {
            AttachEvent::Output {
                offset,
                data,
                stream,
            } => {
                if stream == astrabox_runner_core::protocol::OutputStream::Stdout {
                    assert_eq!(offset, total);
                    total += data.len() as u64;
                    sandbox.client.ack("writer", total, 0).await.unwrap();
                }
            }
            AttachEvent::Exited(exit) => break exit,
        }
    };
    assert_eq!(
        (total, exit.stdout_end, exit.stderr_end),
        (3_000_001, 3_000_001, 5)
    );
}

#[tokio::test]
async fn the_same_spawn_starts_one_process_and_another_is_refused() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    let mut command = shell("once", "echo $$; sleep 100");
    command.env.push(("A".into(), "1".into()));
    let (first, second) =
        tokio::join!(client.spawn(command.clone()), client.spawn(command.clone()));
    assert_eq!(first.unwrap().pid, second.unwrap().pid);
    command.env.reverse();
    let again = sandbox
        .connect()
        .await
        .spawn(command.clone())
        .await
        .unwrap();
    assert_eq!(again.state, ProcessState::Running);
    command.argv[2].push(' ');
    let other = client.spawn(command).await.unwrap_err();
    assert_eq!(other.kind(), RunnerErrorKind::NameTaken);
    let status = client.status().await.unwrap();
    assert_eq!(status.processes.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_started_says_why_and_leaves_its_name_free() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    const ENOENT: i32 = 2;
    let missing = SpawnCommand {
        argv: vec!["/no/such".into()],
        ..shell("x", "")
    };
    let no_directory = SpawnCommand {
        cwd: "/no/such".into(),
        ..shell("x", "")
    };
    for command in [missing, no_directory] {
        let error = client.spawn(command).await.unwrap_err();
        assert_eq!(error.kind(), RunnerErrorKind::SpawnFailed { errno: ENOENT });
    }
    let invalid = [
        SpawnCommand {
            name: "../x".into(),
            ..shell("", "")
        },
        SpawnCommand {
            argv: Vec::new(),
            ..shell("x", "")
        },
        SpawnCommand {
            cwd: "workspace".into(),
            ..shell("x", "")
        },
        SpawnCommand {
            env: vec![("A=B".into(), "x".into())],
            ..shell("x", "")
        },
    ];
    for command in invalid {
        let error = client.spawn(command).await.unwrap_err();
        assert_eq!(error.kind(), RunnerErrorKind::InvalidArgument, "{error}");
    }
    assert!(client.status().await.unwrap().processes.is_empty());
    assert!(sandbox.state.read_processes().unwrap().is_empty());
    let (_, _, exit) = sandbox.run("x", "true").await;
    assert_eq!(exit.status, Some(ExitStatus::Code(0)));
}

#[tokio::test]
async fn an_unknown_name_is_not_found_and_changes_nothing() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    let errors = [
        client.attach("nobody", 0, 0).await.map(drop),
        client
            .write_stdin("nobody", 0, Bytes::from_static(b"x"))
            .await
            .map(drop),
        client.close_stdin("nobody", None).await,
        client.ack("nobody", 0, 0).await.map(drop),
        client
            .signal(SignalTarget::Process("nobody".into()), 15)
            .await,
        client
            .signal(SignalTarget::Group("nobody".into()), 15)
            .await,
        client.forget("nobody").await,
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().kind(), RunnerErrorKind::NotFound);
    }
    assert_eq!(client.process("nobody").await.unwrap(), None);
}

#[tokio::test]
async fn signals_reach_the_process_its_group_or_the_whole_box() {
    let sandbox = Box::new().await;
    let client = &sandbox.client;
    let trap = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let ready = |name: &'static str| {
        let client = client.clone();
        async move {
            until("the process's first word", || async {
                client
                    .process(name)
                    .await
                    .unwrap()
                    .unwrap()
                    .stdout
                    .next_offset
                    > 0
            })
            .await;
        }
    };
    sandbox.spawn(shell("trap", trap)).await;
    ready("trap").await;
    client
        .signal(SignalTarget::Process("trap".into()), 15)
        .await
        .unwrap();
    let (out, _, exit) = sandbox.collect("trap", 0, 0).await;
    assert!(out.ends_with("caught\n"), "{out}");
    assert_eq!(
        (exit.reason, exit.status),
        (ExitReason::Exited, Some(ExitStatus::Code(3)))
    );
    let ended = client
        .signal(SignalTarget::Process("trap".into()), 15)
        .await
        .unwrap_err();
    assert_eq!(ended.kind(), RunnerErrorKind::ProcessEnded);

    // The group takes the children along, which would keep the pipe and the box busy.
    sandbox
        .spawn(shell("group", "sleep 1000 & echo ready; wait"))
        .await;
    ready("group").await;
    client
        .signal(SignalTarget::Group("group".into()), 9)
        .await
        .unwrap();
    let (_, _, exit) = sandbox.collect("group", 0, 0).await;
    assert_eq!(
        (exit.reason, exit.status),
        (ExitReason::Killed, Some(ExitStatus::Signal(9)))
    );

    let stubborn = "trap '' TERM INT HUP; (setsid sleep 1000 &) ; echo ready; sleep 1000";
    sandbox.spawn(shell("stubborn", stubborn)).await;
    ready("stubborn").await;
    client.signal(SignalTarget::Box, 9).await.unwrap();
    let (_, _, exit) = sandbox.collect("stubborn", 0, 0).await;
    assert_eq!(exit.reason, ExitReason::Killed);
    until("one process left", || async {
        sandbox.processes().len() == 1
    })
    .await;
    let (out, _, _) = sandbox.run("after", "echo usable").await;
    assert_eq!(out, "usable\n");
    for wrong in [0, 32, -9] {
        let error = client.signal(SignalTarget::Box, wrong).await.unwrap_err();
        assert_eq!(error.kind(), RunnerErrorKind::InvalidArgument);
    }
}

#[tokio::test]
async fn the_oldest_settled_process_makes_room_and_a_busy_table_refuses() {
    let sandbox = Box::with(|spec| spec.max_processes = 3).await;
    let client = &sandbox.client;
    for name in ["a", "b", "c"] {
        sandbox.run(name, "echo x").await;
    }
    let full = client.spawn(shell("d", "true")).await.unwrap_err();
    assert_eq!(full.kind(), RunnerErrorKind::TooManyProcesses);
    client.ack("b", 2, 0).await.unwrap();
    sandbox.run("d", "true").await;
    let names: Vec<String> = client
        .status()
        .await
        .unwrap()
        .processes
        .into_iter()
        .map(|process| process.name)
        .collect();
    assert_eq!(names, ["a", "c", "d"]);
    client.forget("a").await.unwrap();
    assert!(!sandbox.state.process("a").exists());
    sandbox.spawn(shell("e", "sleep 100")).await;
    let running = client.forget("e").await.unwrap_err();
    assert_eq!(running.kind(), RunnerErrorKind::ProcessRunning);
}

#[tokio::test]
async fn an_attached_reader_hears_a_line_at_once() {
    let sandbox = Box::new().await;
    sandbox.spawn(cat("echo")).await;
    let mut attachment = sandbox.client.attach("echo", 0, 0).await.unwrap();
    let mut offset = 0;
    let mut times = Vec::new();
    for _ in 0..200 {
        let sent = std::time::Instant::now();
        let line = Bytes::from_static(b"a line\n");
        offset = sandbox
            .client
            .write_stdin("echo", offset, line)
            .await
            .unwrap();
        let event = attachment.next().await.unwrap().unwrap();
        assert!(matches!(event, AttachEvent::Output { data, .. } if data == b"a line\n"[..]));
        times.push(sent.elapsed());
    }
    times.sort();
    // There and back, through the engine, in an unoptimised build on a busy machine; optimised and at rest
    // it is a fraction of this.
    assert!(times[100] < Duration::from_millis(20), "{:?}", times[100]);
}
