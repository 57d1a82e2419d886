//! EN3, EN4, EN9 and EN10 with programs that fail: whatever a program does, the adapter says so in time and leaves
//! no process behind.

use std::time::Duration;

use astrabox_engine::{BindRequest, Checkpoint, Conversation, EngineClient, Error, ErrorKind};
use astrabox_sandbox::{IMAGE_ROOT, SpawnSpec};
use tokio::time::Instant;

use super::EngineBench;
use super::bench::{BIND, PLACEHOLDER, environment};
use crate::case::{check, check_eq};
use crate::doubles::{MemoryWorkload, Program, program};
use crate::suite::cases;
use crate::{Case, Checked, Doing as _, Stop};

pub(super) fn cases() -> Vec<Case<EngineBench>> {
    cases![
        the_program_is_started_as_the_sandbox_wants_it [EN3],
        a_program_that_cannot_be_started_is_an_error [EN3],
        a_connection_lost_at_the_start_leaves_no_process [EN3],
        preparing_leaves_nothing_running_and_may_be_repeated [EN3],
        a_program_that_ends_is_not_a_conversation [EN3 EN4],
        a_program_that_talks_nonsense_is_not_a_conversation [EN4 EN11],
        a_program_that_floods_nonsense_is_not_a_conversation [EN4],
        a_silent_program_is_not_waited_for_forever [EN4],
        a_connection_lost_while_binding_is_detached [EN4 EN10],
        a_checkpoint_of_somebody_else_is_refused [EN3 EN4],
        an_unbound_program_can_be_closed [EN3],
    ]
}

/// How long an activation may take, in the case's own time.
const ACTIVATE: Duration = Duration::from_secs(120);

fn silent() -> Program {
    program(|mut io| async move {
        while io.read().await.is_some() {}
        0
    })
}

/// Activates over this box. What comes is the client, or why there is none.
async fn activate(
    bench: &EngineBench,
    workload: &MemoryWorkload,
) -> Result<Result<Box<dyn EngineClient>, Error>, Stop> {
    let activating = bench.activate(workload, 1, Conversation::New);
    tokio::time::timeout(ACTIVATE, activating)
        .await
        .map_err(|_| Stop::failed("`activate` does not come back"))
}

/// Binds a new conversation, which must fail in time; gives the error.
async fn cannot_bind(bench: &EngineBench, workload: &MemoryWorkload) -> Result<Error, Stop> {
    let client = match activate(bench, workload).await? {
        Ok(client) => client,
        Err(error) => return Ok(error),
    };
    let begun = Instant::now();
    let request = BindRequest {
        expected: None,
        within: BIND,
    };
    let bound = tokio::time::timeout(BIND * 4, client.bind_conversation(request))
        .await
        .map_err(|_| Stop::failed("`bind_conversation` does not keep its deadline"))?;
    let took = begun.elapsed();
    check!(
        took <= BIND + Duration::from_secs(5),
        "binding took {} s, allowed were {} s",
        took.as_secs(),
        BIND.as_secs()
    );
    match bound {
        Ok(bound) => Err(Stop::failed(format!("it bound {:?}", bound.native_key))),
        Err(error) => Ok(error),
    }
}

/// Lets processes that were signalled end.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn the_program_is_started_as_the_sandbox_wants_it(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::running(silent());
    let client = activate(bench, &workload).await?.doing("activate")?;
    let spawned = workload.spawned();
    check!(!spawned.is_empty(), "no program was started");
    for spec in &spawned {
        check_spawn(spec)?;
    }
    drop(client);
    Ok(())
}

fn check_spawn(spec: &SpawnSpec) -> Checked {
    let program = spec.argv.first().map_or("", String::as_str);
    check!(
        program.starts_with(&format!("{IMAGE_ROOT}/"))
            || program.starts_with("/usr/bin/")
            || program.starts_with("/bin/"),
        "the program {program:?} is neither of the image nor of the base"
    );
    for argument in &spec.argv {
        check!(
            !argument.contains(PLACEHOLDER),
            "what stands for the model's key is in the arguments"
        );
    }
    for (name, value) in environment() {
        check_eq!(spec.env.get(&name), Some(&value), "the variable {name}");
    }
    check!(
        spec.cwd.is_within("/workspace") || spec.cwd.is_within("/home/agent"),
        "it works in {}",
        spec.cwd
    );
    Ok(())
}

async fn a_program_that_cannot_be_started_is_an_error(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::without_programs();
    let activated = activate(bench, &workload).await?;
    check!(
        activated.is_err(),
        "`activate` gave a client without a program"
    );
    check_eq!(workload.running_processes(), [], "what runs");
    Ok(())
}

async fn a_connection_lost_at_the_start_leaves_no_process(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::running(silent());
    workload.refuse_attach();
    let activated = activate(bench, &workload).await?;
    check!(
        activated.is_err(),
        "`activate` gave a client without a connection"
    );
    settled().await;
    check_eq!(
        workload.running_processes(),
        [],
        "what runs after the error"
    );
    Ok(())
}

async fn preparing_leaves_nothing_running_and_may_be_repeated(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::running(program(|_| async { 0 }));
    let context = EngineBench::prepare_context(&workload);
    for time in ["prepare", "prepare again"] {
        let preparing = tokio::time::timeout(ACTIVATE, bench.adapter().prepare(&context));
        let prepared = preparing.await;
        prepared
            .map_err(|_| Stop::failed("`prepare` does not come back"))?
            .doing(time)?;
    }
    settled().await;
    check_eq!(workload.running_processes(), [], "what runs");
    Ok(())
}

async fn a_program_that_ends_is_not_a_conversation(bench: &EngineBench) -> Checked {
    for code in [0, 3] {
        let workload = MemoryWorkload::running(program(move |io| async move {
            io.eprint("cannot read the configuration\n");
            code
        }));
        let error = cannot_bind(bench, &workload).await?;
        let kinds = [ErrorKind::Exited, ErrorKind::StartFailed];
        check!(
            kinds.contains(&error.kind()),
            "it is {error}, expected {kinds:?}"
        );
        check!(
            error.to_string().contains("cannot read the configuration"),
            "the error does not tell what the program said at its end: {error}"
        );
        check_eq!(workload.running_processes(), [], "what runs");
    }
    Ok(())
}

/// Lines that no protocol has.
const NONSENSE: [&[u8]; 7] = [
    b"Welcome!\n",
    b"\n",
    b"{}\n",
    b"[1, 2\n",
    b"\xff\xfe\x00\n",
    b"{\"id\": 987654, \"result\": null}\n",
    b"{\"type\": \"nobody-knows-this\", \"method\": \"nobody/knows\"}\n",
];

async fn a_program_that_talks_nonsense_is_not_a_conversation(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::running(program(|mut io| async move {
        for line in NONSENSE {
            io.print(line);
        }
        while io.read().await.is_some() {}
        0
    }));
    let error = cannot_bind(bench, &workload).await?;
    let kinds = [ErrorKind::DeadlineExceeded, ErrorKind::Protocol];
    check!(
        kinds.contains(&error.kind()),
        "it is {error}, expected {kinds:?}"
    );
    Ok(())
}

async fn a_program_that_floods_nonsense_is_not_a_conversation(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::running(program(|io| async move {
        let mut every = tokio::time::interval(Duration::from_millis(50));
        loop {
            every.tick().await;
            io.print(b"{\"type\": \"nobody-knows-this\", \"n\": 1}\n");
            io.eprint("and a warning\n");
        }
    }));
    let error = cannot_bind(bench, &workload).await?;
    let kinds = [ErrorKind::DeadlineExceeded, ErrorKind::Protocol];
    check!(
        kinds.contains(&error.kind()),
        "it is {error}, expected {kinds:?}"
    );
    Ok(())
}

async fn a_silent_program_is_not_waited_for_forever(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::running(silent());
    let error = cannot_bind(bench, &workload).await?;
    check_eq!(
        error.kind(),
        ErrorKind::DeadlineExceeded,
        "the error ({error})"
    );
    Ok(())
}

async fn a_connection_lost_while_binding_is_detached(bench: &EngineBench) -> Checked {
    let workload = MemoryWorkload::running(silent());
    let client = activate(bench, &workload).await?.doing("activate")?;
    let request = BindRequest {
        expected: None,
        within: BIND,
    };
    let cut = async {
        tokio::time::sleep(BIND / 3).await;
        workload.cut();
    };
    let (bound, ()) = tokio::join!(client.bind_conversation(request), cut);
    match bound {
        Ok(bound) => check!(false, "it bound {:?}", bound.native_key),
        Err(error) => check_eq!(error.kind(), ErrorKind::Detached, "the error ({error})"),
    }
    workload.reconnect();
    settled().await;
    check!(
        !workload.running_processes().is_empty(),
        "a lost connection ended the program"
    );
    Ok(())
}

async fn a_checkpoint_of_somebody_else_is_refused(bench: &EngineBench) -> Checked {
    for text in [
        "",
        "{}",
        "null",
        "\"another engine's\"",
        "{\"process\":\"x\"}",
    ] {
        let workload = MemoryWorkload::running(silent());
        let conversation = Conversation::Attach {
            native_key: "somebody".to_owned(),
            checkpoint: Checkpoint::new(text.to_owned()),
        };
        let bound = tokio::time::timeout(ACTIVATE, bench.bind(&workload, 2, conversation)).await;
        let bound = bound.map_err(|_| Stop::failed("reaching nobody does not come back"))?;
        match bound {
            Ok(_) => check!(false, "it accepted the checkpoint {text:?}"),
            Err(error) => check_eq!(
                error.kind(),
                ErrorKind::ConversationLost,
                "the error for the checkpoint {text:?} ({error})"
            ),
        }
        check!(
            workload.spawned().is_empty(),
            "it started a program in place of the lost one"
        );
    }
    Ok(())
}

async fn an_unbound_program_can_be_closed(bench: &EngineBench) -> Checked {
    // One that ends with its input, and one that has to be ended.
    for program in [silent(), program(|_| std::future::pending())] {
        let workload = MemoryWorkload::running(program);
        let client = activate(bench, &workload).await?.doing("activate")?;
        let request = BindRequest {
            expected: None,
            within: Duration::from_secs(1),
        };
        let bound = client.bind_conversation(request).await;
        check!(bound.is_err(), "a silent program was bound");
        let closing = client.close(Duration::from_secs(2));
        let closed = tokio::time::timeout(Duration::from_secs(60), closing).await;
        let closed = closed.map_err(|_| Stop::failed("`close` does not come back"))?;
        closed.doing("close after a failed bind")?;
        settled().await;
        check_eq!(workload.running_processes(), [], "what still runs");
    }
    Ok(())
}
