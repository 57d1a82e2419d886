use std::io::Read as _;

use proptest::prelude::*;

use super::*;

const CAPACITY: u64 = 1 << 20;

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn bytes_at(offset: u64, length: u64) -> Bytes {
    (offset..offset + length).map(byte_at).collect()
}

struct Pipe {
    stdin: Stdin,
    reader: std::io::PipeReader,
    received: u64,
    _dir: tempfile::TempDir,
}

impl Pipe {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let sender = pipe::Sender::from_owned_fd(writer.into()).unwrap();
        let spool = Spool::new(dir.path().join("stdin"), CAPACITY);
        Self {
            stdin: Stdin::new(sender, spool),
            reader,
            received: 0,
            _dir: dir,
        }
    }

    /// Lets the process read at most `limit` bytes, which must be the right ones.
    async fn read(&mut self, limit: usize) {
        self.pump().await;
        let waiting = rustix::io::ioctl_fionread(&self.reader).unwrap();
        let mut buffer = vec![0; limit.min(usize::try_from(waiting).unwrap())];
        self.reader.read_exact(&mut buffer).unwrap();
        assert_eq!(buffer, bytes_at(self.received, buffer.len() as u64));
        self.received += buffer.len() as u64;
    }

    /// Delivers until the pipe is full or nothing is left.
    async fn pump(&mut self) {
        let mut blocked = false;
        loop {
            match self.stdin.step() {
                Step::Progress => blocked = false,
                // A fresh pipe is known to be writable only after it was waited for once.
                Step::Blocked(pipe) if !blocked => {
                    blocked = true;
                    let patience = std::time::Duration::from_millis(20);
                    let _ = tokio::time::timeout(patience, pipe.writable()).await;
                }
                _ => return,
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    /// Writes this many bytes, beginning this far below the next offset.
    Write(u64, u64),
    Read(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (0..300_000_u64, prop_oneof![0..50_u64, 0..250_000_u64])
            .prop_map(|(back, length)| Op::Write(back, length)),
        1 => (1..200_000_usize).prop_map(Op::Read),
    ];
    prop::collection::vec(op, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn repeated_and_overlapping_writes_deliver_each_byte_once(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut pipe = Pipe::new();
            let mut next = 0;
            for op in ops {
                match op {
                    Op::Write(back, length) => {
                        let offset = next - back.min(next);
                        match pipe.stdin.accept(offset, &bytes_at(offset, length)) {
                            Ok(Acceptance::Done(after)) => {
                                assert_eq!(after, next.max(offset + length));
                                next = after;
                            }
                            Ok(Acceptance::NoRoom) => {
                                let info = pipe.stdin.info();
                                let rest = offset + length - info.accepted;
                                assert!(info.accepted - info.delivered + rest > CAPACITY);
                            }
                            Err(error) => {
                                let kind = error.kind();
                                assert!(matches!(kind, RunnerErrorKind::OffsetFreed { .. }), "{kind:?}");
                            }
                        }
                    }
                    Op::Read(limit) => pipe.read(limit).await,
                }
                assert_eq!(pipe.stdin.info().accepted, next);
            }
            while pipe.received < next {
                pipe.read(usize::MAX).await;
            }
            assert_eq!(pipe.stdin.info().delivered, next);
        });
    }
}

#[tokio::test]
async fn a_gap_and_other_bytes_are_refused_and_change_nothing() {
    let mut pipe = Pipe::new();
    let hello = Bytes::from_static(b"hello");
    assert_eq!(pipe.stdin.accept(0, &hello).unwrap(), Acceptance::Done(5));
    assert_eq!(pipe.stdin.accept(0, &hello).unwrap(), Acceptance::Done(5));
    let gap = pipe.stdin.accept(6, &hello).unwrap_err().kind();
    assert_eq!(gap, RunnerErrorKind::OffsetAhead { lowest: 0, next: 5 });
    let other = pipe
        .stdin
        .accept(0, &Bytes::from_static(b"help"))
        .unwrap_err()
        .kind();
    assert_eq!(other, RunnerErrorKind::StdinConflict);
    let longer = Bytes::from_static(b"lo world");
    assert_eq!(pipe.stdin.accept(3, &longer).unwrap(), Acceptance::Done(11));
    pipe.pump().await;
    let mut text = [0; 11];
    pipe.reader.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"hello world");
}

#[tokio::test]
async fn closing_waits_for_what_was_accepted_and_cannot_overtake_a_write() {
    let mut pipe = Pipe::new();
    pipe.stdin.accept(0, &bytes_at(0, 200_000)).unwrap();
    assert_eq!(
        pipe.stdin.close(5).unwrap_err().kind(),
        RunnerErrorKind::StdinConflict
    );
    pipe.stdin.close(200_000).unwrap();
    let late = pipe
        .stdin
        .accept(200_000, &bytes_at(200_000, 1))
        .unwrap_err()
        .kind();
    assert_eq!(late, RunnerErrorKind::StdinClosed);
    let repeated = pipe.stdin.accept(100, &bytes_at(100, 9)).unwrap();
    assert_eq!(repeated, Acceptance::Done(200_000));
    while pipe.received < 200_000 {
        pipe.read(usize::MAX).await;
    }
    pipe.pump().await;
    let mut rest = Vec::new();
    pipe.reader.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_reader_that_has_gone_closes_stdin() {
    let mut pipe = Pipe::new();
    pipe.stdin.accept(0, &bytes_at(0, 10)).unwrap();
    let (reader, _) = std::io::pipe().unwrap();
    pipe.reader = reader;
    pipe.pump().await;
    assert!(!pipe.stdin.info().open);
    let refused = pipe.stdin.accept(10, &bytes_at(10, 1)).unwrap_err().kind();
    assert_eq!(refused, RunnerErrorKind::StdinClosed);
}
