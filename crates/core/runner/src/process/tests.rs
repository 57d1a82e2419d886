use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use astrabox_runner_protocol::state::StateDir;
use bytes::BytesMut;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::spool::Spool;

const PATIENCE: Duration = Duration::from_secs(20);

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// A process whose two outputs are pipes in the test's hands.
struct Fixture {
    process: Arc<Process>,
    writers: [Option<std::io::PipeWriter>; 2],
    dir: TempDir,
}

impl Fixture {
    fn new(capacity: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let output = |stream| {
            let (reader, writer) = std::io::pipe().unwrap();
            rustix::io::ioctl_fionbio(&reader, true).unwrap();
            let receiver = Receiver::from_owned_fd(reader.into()).unwrap();
            let spool = Spool::new(state.output("engine", stream), capacity);
            (Output::new(receiver, spool), Some(writer))
        };
        let (stdout, stdout_writer) = output(OutputStream::Stdout);
        let (stderr, stderr_writer) = output(OutputStream::Stderr);
        let process = Arc::new(Process::new(
            "engine".into(),
            1,
            "digest".into(),
            1,
            Streams {
                stdin: None,
                stdout,
                stderr,
            },
            Counters::default(),
            CancellationToken::new(),
        ));
        process.set_running(7);
        Self {
            process,
            writers: [stdout_writer, stderr_writer],
            dir,
        }
    }

    fn pump(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            tasks.spawn(pump::output(self.process.clone(), stream, |_| {}));
        }
        tasks
    }
}

fn end(status: Option<ExitStatus>, memory_limit: bool) -> End {
    End {
        status,
        memory_limit,
        otherwise: ExitReason::BoxDied,
    }
}

/// The next event at the cursor, waiting for it.
async fn next_event(process: &Process, cursor: &mut Cursor) -> Result<AttachEvent, SpoolError> {
    let mut changes = process.changes();
    timeout(PATIENCE, async {
        loop {
            changes.mark_unchanged();
            if let Some(event) = process.read(cursor)? {
                return Ok(event);
            }
            changes.changed().await.unwrap();
        }
    })
    .await
    .expect("an event")
}

async fn until(process: &Process, condition: impl Fn(&ProcessInfo) -> bool) {
    let mut changes = process.changes();
    let wait = async {
        loop {
            changes.mark_unchanged();
            if condition(&process.info()) {
                return;
            }
            changes.changed().await.unwrap();
        }
    };
    timeout(PATIENCE, wait).await.expect("the condition");
}

#[tokio::test]
async fn a_full_spool_makes_the_writer_wait_until_output_is_acknowledged() {
    const CAPACITY: u64 = 256 << 10;
    const TOTAL: u64 = 2 << 20;
    let mut fixture = Fixture::new(CAPACITY);
    let tasks = fixture.pump();
    let mut stdout = fixture.writers[0].take().unwrap();
    let writer = std::thread::spawn(move || {
        let content: Vec<u8> = (0..TOTAL).map(byte_at).collect();
        stdout.write_all(&content).unwrap();
    });
    until(&fixture.process, |info| info.stdout.full).await;
    assert_eq!(fixture.process.info().stdout.next_offset, CAPACITY);
    assert!(
        !writer.is_finished(),
        "the pipe holds less than what is left to write"
    );

    let mut cursor = Cursor::new(0, 0);
    while cursor.stdout < TOTAL {
        let before = cursor.stdout;
        let event = next_event(&fixture.process, &mut cursor).await.unwrap();
        let AttachEvent::Output {
            stream,
            offset,
            data,
        } = event
        else {
            panic!("{event:?}")
        };
        assert_eq!((stream, offset), (OutputStream::Stdout, before));
        assert!(
            data.iter()
                .zip(offset..)
                .all(|(byte, at)| *byte == byte_at(at))
        );
        fixture.process.acknowledge(cursor.stdout, 0).unwrap();
        assert!(fixture.process.info().stdout.next_offset - cursor.stdout <= CAPACITY);
    }
    writer.join().unwrap();
    fixture.writers = [None, None];
    timeout(PATIENCE, tasks.join_all())
        .await
        .expect("the pumps end with their pipes");
}

#[tokio::test]
async fn the_end_comes_after_all_output_even_if_a_descendant_keeps_the_pipe() {
    let mut fixture = Fixture::new(1 << 20);
    let [stdout, stderr] = [0, 1].map(|index| fixture.writers[index].take());
    let (mut stdout, mut stderr) = (stdout.unwrap(), stderr.unwrap());
    stdout.write_all(b"out").unwrap();
    stderr.write_all(b"error").unwrap();
    // Ended before anything was read: what is in the pipes belongs to the process.
    let status = Some(ExitStatus::Code(3));
    fixture
        .process
        .set_ended(end(status, false), Counters::default());
    stdout.write_all(b" of a descendant").unwrap();
    let tasks = fixture.pump();
    let mut cursor = Cursor::new(0, 0);
    let mut seen = Vec::new();
    let exit = loop {
        match next_event(&fixture.process, &mut cursor).await.unwrap() {
            AttachEvent::Output { data, .. } => seen.push(data),
            AttachEvent::Exited(exit) => break exit,
        }
    };
    assert_eq!(seen, [&b"out"[..], b"error"]);
    assert_eq!((exit.stdout_end, exit.stderr_end), (3, 5));
    assert_eq!((exit.reason, exit.status), (ExitReason::Exited, status));
    // The descendant is neither blocked nor killed by what it writes.
    let write = move || stdout.write_all(&vec![b'x'; 1 << 20]).map(|()| stdout);
    let written = timeout(PATIENCE, tokio::task::spawn_blocking(write)).await;
    let _stdout = written.expect("somebody reads the pipe").unwrap().unwrap();
    assert_eq!(fixture.process.info().stdout.next_offset, 3);
    assert!(!fixture.process.is_settled());
    fixture.process.acknowledge(3, 5).unwrap();
    assert!(fixture.process.is_settled());
    fixture.process.set_forgotten();
    timeout(PATIENCE, tasks.join_all())
        .await
        .expect("forgetting ends the pumps");
    let gone = next_event(&fixture.process, &mut cursor).await;
    assert!(matches!(gone, Err(SpoolError::Dropped)), "{gone:?}");
}

#[test]
fn the_reason_is_what_ended_it() {
    use ExitReason::{BoxDied, DiskLimit, Exited, Killed, MemoryLimit, PidsLimit, WallTime};
    use ExitStatus::{Code, Signal};
    type Prepare = fn(&Process);
    let nothing: Prepare = |_| {};
    let term: Prepare = |process| process.note_signal(15);
    let wall: Prepare = |process| process.set_cause(WallTime);
    // Prepared how, the status, ended for memory, kills for memory, forks refused.
    type Case = (Prepare, Option<ExitStatus>, bool, u64, u64, ExitReason);
    let cases: [Case; 17] = [
        (nothing, Some(Code(0)), false, 0, 0, Exited),
        (nothing, Some(Code(0)), false, 0, 2, Exited),
        (nothing, Some(Code(2)), false, 0, 2, PidsLimit),
        (nothing, Some(Code(2)), false, 0, 0, Exited),
        (nothing, Some(Signal(9)), false, 0, 0, Exited),
        // A child was killed for memory, and later somebody in the box killed the process.
        (nothing, Some(Signal(9)), false, 1, 0, Exited),
        (nothing, Some(Signal(9)), true, 1, 0, MemoryLimit),
        (nothing, None, true, 1, 0, MemoryLimit),
        // A shell whose child was killed.
        (nothing, Some(Code(137)), false, 1, 0, MemoryLimit),
        (nothing, Some(Code(137)), false, 0, 0, Exited),
        // One file longer than a file may be, written by itself or by a child.
        (nothing, Some(Signal(25)), false, 0, 0, DiskLimit),
        (nothing, Some(Code(153)), false, 0, 0, DiskLimit),
        (nothing, None, false, 0, 0, BoxDied),
        (term, Some(Signal(15)), false, 0, 0, Killed),
        (term, Some(Code(0)), false, 0, 0, Exited),
        (term, None, false, 0, 0, BoxDied),
        (wall, Some(Signal(9)), true, 1, 0, WallTime),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _context = runtime.enter();
    for (number, case) in cases.into_iter().enumerate() {
        let (prepare, status, memory_limit, oom_kills, forks_refused, expected) = case;
        let fixture = Fixture::new(1 << 20);
        prepare(&fixture.process);
        let counters = Counters {
            oom_kills,
            forks_refused,
        };
        fixture
            .process
            .set_ended(end(status, memory_limit), counters);
        let exit = fixture.process.info().exit.unwrap();
        assert_eq!(exit.reason, expected, "case {number}");
        assert_eq!(
            (exit.oom_kills, exit.forks_refused),
            (oom_kills, forks_refused)
        );
        fixture
            .process
            .set_ended(end(Some(Code(9)), false), counters);
        assert_eq!(
            fixture.process.info().exit.unwrap(),
            exit,
            "a process ends once"
        );
    }
}

#[tokio::test]
async fn a_later_runner_tells_the_output_and_the_end_of_an_earlier_ones_process() {
    let mut fixture = Fixture::new(1 << 20);
    let tasks = fixture.pump();
    fixture.writers[0]
        .as_mut()
        .unwrap()
        .write_all(b"before the kill")
        .unwrap();
    until(&fixture.process, |info| info.stdout.next_offset == 15).await;
    fixture.process.acknowledge(7, 0).unwrap();
    fixture.process.stop.cancel();
    tasks.join_all().await;
    let state = StateDir::new(fixture.dir.path());
    let restored = |record| {
        let output =
            |stream| Output::ended(Spool::restore(state.output("engine", stream)).unwrap());
        Process::restored(
            record,
            output(OutputStream::Stdout),
            output(OutputStream::Stderr),
        )
    };
    let later = restored(fixture.process.record());
    let mut cursor = Cursor::new(7, 0);
    let first = next_event(&later, &mut cursor).await.unwrap();
    assert!(matches!(first, AttachEvent::Output { data, .. } if data == b"the kill"[..]));
    let AttachEvent::Exited(exit) = next_event(&later, &mut cursor).await.unwrap() else {
        panic!("the end")
    };
    assert_eq!(
        (exit.reason, exit.status),
        (ExitReason::RunnerRestarted, None)
    );
    assert_eq!(exit.stdout_end, 15);
    let refused = later.accept_stdin(0, &b"x"[..].into());
    assert!(matches!(refused, Err(AcceptError::Ended)), "{refused:?}");
}

#[derive(Debug, Clone)]
enum Op {
    /// Writes to stdout (false) or stderr (true).
    Write(bool, usize),
    /// A reader takes this many events.
    Read(usize, usize),
    /// A reader drops its connection and attaches again where it was.
    Reattach(usize),
    /// Acknowledges what the slowest reader has seen.
    Acknowledge,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (any::<bool>(), 1..40_000_usize).prop_map(|(stream, length)| Op::Write(stream, length)),
        3 => (0..2_usize, 1..4_usize).prop_map(|(reader, count)| Op::Read(reader, count)),
        1 => (0..2_usize).prop_map(Op::Reattach),
        1 => Just(Op::Acknowledge),
    ];
    prop::collection::vec(op, 1..40)
}

/// A reader and what it has seen of both streams.
struct Reader {
    cursor: Cursor,
    seen: [BytesMut; 2],
}

impl Reader {
    fn take(&mut self, event: AttachEvent) -> Option<ExitInfo> {
        match event {
            AttachEvent::Output {
                stream,
                offset,
                data,
            } => {
                let seen = &mut self.seen[usize::from(stream == OutputStream::Stderr)];
                assert_eq!(offset, seen.len() as u64, "no hole and no repetition");
                seen.extend_from_slice(&data);
                None
            }
            AttachEvent::Exited(exit) => Some(exit),
        }
    }
}

async fn run(ops: Vec<Op>) {
    let mut fixture = Fixture::new(8 << 20);
    let tasks = fixture.pump();
    let process = fixture.process.clone();
    let new_reader = || Reader {
        cursor: Cursor::new(0, 0),
        seen: Default::default(),
    };
    let mut readers = [new_reader(), new_reader()];
    let mut written = [BytesMut::new(), BytesMut::new()];
    for op in ops {
        match op {
            Op::Write(stderr, length) => {
                let index = usize::from(stderr);
                let start = written[index].len() as u64;
                let data: Vec<u8> = (start..start + length as u64).map(byte_at).collect();
                let writer = fixture.writers[index].as_mut().unwrap();
                writer.write_all(&data).unwrap();
                written[index].extend_from_slice(&data);
                let end = written[index].len() as u64;
                until(&process, |info| {
                    let stream = if stderr { info.stderr } else { info.stdout };
                    stream.next_offset == end
                })
                .await;
            }
            Op::Read(index, count) => {
                for _ in 0..count {
                    if let Some(event) = process.read(&mut readers[index].cursor).unwrap() {
                        assert!(readers[index].take(event).is_none());
                    }
                }
            }
            Op::Reattach(index) => {
                let [stdout, stderr] =
                    [0, 1].map(|stream| readers[index].seen[stream].len() as u64);
                let cursor = Cursor::new(stdout, stderr);
                process.check(&cursor).unwrap();
                readers[index].cursor = cursor;
            }
            Op::Acknowledge => {
                let least = |of: fn(&Cursor) -> u64| {
                    readers
                        .iter()
                        .map(|reader| of(&reader.cursor))
                        .min()
                        .unwrap()
                };
                let (stdout, stderr) =
                    (least(|cursor| cursor.stdout), least(|cursor| cursor.stderr));
                process.acknowledge(stdout, stderr).unwrap();
            }
        }
    }
    fixture.writers = [None, None];
    process.set_ended(end(Some(ExitStatus::Code(0)), false), Counters::default());
    let mut open: VecDeque<usize> = [0, 1].into();
    while let Some(index) = open.pop_front() {
        let event = next_event(&process, &mut readers[index].cursor)
            .await
            .unwrap();
        if readers[index].take(event).is_none() {
            open.push_back(index);
        }
    }
    for reader in readers {
        assert!(reader.seen == written, "every reader has seen everything");
    }
    timeout(PATIENCE, tasks.join_all())
        .await
        .expect("the pumps end");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_order_of_write_read_reattach_and_acknowledge_loses_or_repeats_a_byte(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(ops));
    }
}
