use proptest::prelude::*;

use super::*;

const CAPACITY: u64 = 2 << 20;

/// The byte that belongs at an offset.
fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

fn bytes_at(offset: u64, length: u64) -> Bytes {
    (offset..offset + length).map(byte_at).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Append(u64),
    /// A reader, and how much it wants.
    Read(usize, usize),
    /// Acknowledges this share of what is held, in thousandths.
    Free(u64),
    /// A reader begins anew from the lowest offset.
    Rejoin(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop_oneof![1..200_u64, 1..300_000_u64].prop_map(Step::Append),
        4 => (0..3_usize, prop_oneof![1..100_usize, 1..100_000_usize])
            .prop_map(|(reader, limit)| Step::Read(reader, limit)),
        2 => (0..=1000_u64).prop_map(Step::Free),
        1 => (0..3_usize).prop_map(Step::Rejoin),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_order_of_write_read_and_free_loses_or_repeats_a_byte(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path().join("stdout"), CAPACITY);
        let mut readers = [0_u64; 3];
        for step in steps {
            match step {
                Step::Append(length) => {
                    let length = length.min(spool.room());
                    spool.append(bytes_at(spool.next(), length)).unwrap();
                }
                Step::Read(reader, limit) => {
                    let offset = readers[reader];
                    match spool.read(offset, limit) {
                        Ok(data) => {
                            prop_assert_eq!(&data, &bytes_at(offset, data.len() as u64));
                            prop_assert!(data.len() <= limit);
                            prop_assert_eq!(data.is_empty(), offset == spool.next());
                            readers[reader] += data.len() as u64;
                        }
                        Err(SpoolError::Freed { lowest, .. }) => {
                            prop_assert!(offset < lowest);
                            prop_assert_eq!(lowest, spool.lowest());
                        }
                        Err(other) => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Free(share) => {
                    let held = spool.next() - spool.lowest();
                    let offset = spool.lowest() + held * share / 1000;
                    spool.free(offset).unwrap();
                    prop_assert_eq!(spool.lowest(), offset);
                }
                Step::Rejoin(reader) => readers[reader] = spool.lowest(),
            }
            prop_assert!(spool.next() - spool.lowest() <= CAPACITY);
        }
        // What is left can be read to the end, also by whoever comes after this runner.
        let mut offset = spool.lowest();
        while offset < spool.next() {
            let data = spool.read(offset, 70_000).unwrap();
            prop_assert_eq!(&data, &bytes_at(offset, data.len() as u64));
            offset += data.len() as u64;
        }
        let restored = Spool::restore(dir.path().join("stdout")).unwrap();
        prop_assert_eq!(restored.next(), spool.next());
        prop_assert!(restored.lowest() <= spool.lowest());
        let mut offset = restored.lowest();
        while offset < restored.next() {
            let data = restored.read(offset, 70_000).unwrap();
            prop_assert_eq!(&data, &bytes_at(offset, data.len() as u64));
            offset += data.len() as u64;
        }
    }
}

#[test]
fn freed_bytes_leave_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::new(dir.path().to_owned(), 1 << 20);
    let on_disk = || -> u64 {
        let lengths = state::segments(dir.path()).unwrap();
        lengths.iter().map(|segment| segment.length).sum()
    };
    for _ in 0..100 {
        spool
            .append(bytes_at(spool.next(), spool.room().min(70_000)))
            .unwrap();
        let half = (spool.lowest() + spool.next()) / 2;
        spool.free(half).unwrap();
        assert!(on_disk() <= (1 << 20) + (1 << 18), "{}", on_disk());
    }
    spool.append(bytes_at(spool.next(), KEEP_BYTES)).unwrap();
    spool.free(spool.next()).unwrap();
    assert_eq!(on_disk(), 0);
    assert_eq!(spool.room(), spool.capacity());
}

#[test]
fn offsets_outside_are_refused_with_the_range_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::new(dir.path().to_owned(), 1 << 20);
    spool.append(bytes_at(0, 10)).unwrap();
    spool.free(4).unwrap();
    let freed = spool.read(3, 1).unwrap_err().kind();
    assert_eq!(
        freed,
        RunnerErrorKind::OffsetFreed {
            lowest: 4,
            next: 10
        }
    );
    let ahead = spool.read(11, 1).unwrap_err().kind();
    assert_eq!(
        ahead,
        RunnerErrorKind::OffsetAhead {
            lowest: 4,
            next: 10
        }
    );
    assert_eq!(spool.free(11).unwrap_err().kind(), ahead);
    spool.free(2).unwrap();
    assert_eq!(
        spool.lowest(),
        4,
        "an older acknowledgement changes nothing"
    );
    assert_eq!(spool.read(10, 1).unwrap(), Bytes::new());
}

#[test]
fn a_failed_append_changes_nothing_and_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("spool");
    fs::write(&blocked, "a file where the directory should be").unwrap();
    let mut spool = Spool::new(blocked.clone(), 1 << 20);
    assert!(spool.append(bytes_at(0, 10)).is_err());
    assert_eq!(spool.next(), 0);
    fs::remove_file(&blocked).unwrap();
    spool.append(bytes_at(0, 10)).unwrap();
    assert_eq!(spool.read(0, 100).unwrap(), bytes_at(0, 10));
}
