//! The end of a byte stream, for the reason of an exit.

/// How many bytes are kept (4 KiB).
const KEPT: usize = 4 << 10;

/// The last bytes of standard error. It begins where reading must begin again after a restart, so that an exit
/// tells the same whether or not there was one.
#[derive(Debug)]
pub(super) struct Tail {
    begin: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// An empty one at `offset`.
    pub(super) fn new(offset: u64) -> Self {
        Self {
            begin: offset,
            bytes: Vec::new(),
        }
    }

    /// The offset of the first byte that is kept.
    pub(super) fn begin(&self) -> u64 {
        self.begin
    }

    /// The offset of the next byte to feed.
    pub(super) fn end(&self) -> u64 {
        self.begin + self.bytes.len() as u64
    }

    /// Takes more bytes. Bytes below [`Self::end`] were seen before and are skipped.
    pub(super) fn feed(&mut self, offset: u64, bytes: &[u8]) {
        let seen = usize::try_from(self.end().saturating_sub(offset)).unwrap_or(usize::MAX);
        self.bytes
            .extend_from_slice(bytes.get(seen..).unwrap_or_default());
        let surplus = self.bytes.len().saturating_sub(KEPT);
        self.bytes.drain(..surplus);
        self.begin += surplus as u64;
    }

    /// What is kept, as text; a character that was cut at the begin is left out.
    pub(super) fn text(&self) -> String {
        let whole = self.bytes.iter().position(|byte| byte & 0xC0 != 0x80);
        String::from_utf8_lossy(&self.bytes[whole.unwrap_or(self.bytes.len())..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_in_any_chunking() {
        let text = "ä".repeat(KEPT);
        for size in [1, 3, 100, KEPT + 1] {
            let mut tail = Tail::new(10);
            for chunk in text.as_bytes().chunks(size) {
                tail.feed(tail.end(), chunk);
            }
            assert_eq!(tail.end(), 10 + text.len() as u64);
            assert_eq!(tail.begin(), tail.end() - KEPT as u64);
            assert_eq!(tail.text(), "ä".repeat(KEPT / 2), "chunks of {size}");
        }
    }

    #[test]
    fn a_cut_character_is_left_out_and_seen_bytes_are_skipped() {
        let mut tail = Tail::new(0);
        tail.feed(0, &[b'a'; KEPT]);
        tail.feed(KEPT as u64 - 1, "aäb".as_bytes());
        assert_eq!(tail.end(), KEPT as u64 + 3);
        tail.feed(tail.end(), &[b'b'; KEPT - 2]);
        assert_eq!(tail.text(), "b".repeat(KEPT - 1));
    }

    #[test]
    fn reading_again_from_the_begin_gives_the_same() {
        let mut first = Tail::new(0);
        let text: String = (0..2000).map(|n| format!("{n} ")).collect();
        first.feed(0, text.as_bytes());
        let mut second = Tail::new(first.begin());
        let from = usize::try_from(first.begin()).expect("it is small");
        second.feed(first.begin(), &text.as_bytes()[from..]);
        assert_eq!(first.text(), second.text());
    }
}
