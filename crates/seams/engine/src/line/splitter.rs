//! Bytes to lines: on LF only, up to a cap, in any chunking.

use serde::{Deserialize, Serialize};

/// The longest line that is kept whole (16 MiB). A longer one is drained and reported by its head and length.
pub const LINE_CAP: usize = 16 << 20;

/// How much of an overlong line is kept.
const HEAD: usize = 4 << 10;

/// Splits a byte stream. Its serialised form is small: the bytes of an unfinished line are read again from the
/// stream, but for an overlong one, of which only head and length are kept.
#[derive(Debug)]
pub struct Splitter {
    cap: usize,
    buffer: Vec<u8>,
    /// Where the next line begins in `buffer`.
    start: usize,
    /// How far `buffer` is known to hold no LF.
    scanned: usize,
    /// The stream offset of `buffer[0]`.
    base: u64,
    draining: Option<Draining>,
}

/// An overlong line that is being read away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draining {
    head: String,
    length: u64,
}

/// What the splitter found.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole line without its LF; a CR before the LF is kept.
    Line(Vec<u8>),
    /// A line over the cap, ended now.
    Overlong {
        /// Its first bytes, as text.
        head: String,
        /// Its whole length, bytes.
        length: u64,
    },
}

impl Splitter {
    /// Begins at `offset`, in the middle of an overlong line if `draining` says so.
    #[must_use]
    pub fn new(offset: u64, draining: Option<Draining>) -> Self {
        Self::with_cap(LINE_CAP, offset, draining)
    }

    fn with_cap(cap: usize, offset: u64, draining: Option<Draining>) -> Self {
        Self {
            cap,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            base: offset,
            draining,
        }
    }

    /// The offset from which reading goes on after a restart: the begin of the unfinished line, or the end of
    /// what was drained.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The offset of the next byte to feed.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// The overlong line that is being drained.
    #[must_use]
    pub fn draining(&self) -> Option<&Draining> {
        self.draining.as_ref()
    }

    /// Takes more bytes. Bytes below [`Self::end`] were seen before and are skipped.
    pub fn feed(&mut self, offset: u64, bytes: &[u8]) {
        let seen = usize::try_from(self.end().saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(fresh) = bytes.get(seen..) {
            if self.start > 0 && self.buffer.len() + fresh.len() > self.buffer.capacity() {
                self.compact();
            }
            self.buffer.extend_from_slice(fresh);
        }
    }

    fn compact(&mut self) {
        self.buffer.drain(..self.start);
        self.base += self.start as u64;
        self.scanned -= self.start;
        self.start = 0;
    }

    /// The next finished line.
    pub fn next_piece(&mut self) -> Option<Piece> {
        let at = self.buffer[self.scanned..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|at| self.scanned + at);
        let Some(end) = at else {
            self.scanned = self.buffer.len();
            self.drain_if_overlong();
            return None;
        };
        let line = &self.buffer[self.start..end];
        let piece = match self.draining.take() {
            Some(Draining { head, length }) => Piece::Overlong {
                head,
                length: length + line.len() as u64,
            },
            None if line.len() > self.cap => Piece::Overlong {
                head: head_of(line),
                length: line.len() as u64,
            },
            None => Piece::Line(line.to_vec()),
        };
        self.start = end + 1;
        self.scanned = self.start;
        if self.start == self.buffer.len() {
            self.base += self.start as u64;
            self.buffer.clear();
            self.buffer.shrink_to(256 << 10);
            (self.start, self.scanned) = (0, 0);
        }
        Some(piece)
    }

    fn drain_if_overlong(&mut self) {
        let line = &self.buffer[self.start..];
        if self.draining.is_none() && line.len() <= self.cap {
            return;
        }
        let draining = self.draining.get_or_insert_with(|| Draining {
            head: head_of(line),
            length: 0,
        });
        draining.length += line.len() as u64;
        self.base += self.buffer.len() as u64;
        self.buffer = Vec::new();
        (self.start, self.scanned) = (0, 0);
    }

    /// The unfinished line at the end of the stream, if there is one.
    pub fn finish(&mut self) -> Option<Piece> {
        let line = std::mem::take(&mut self.buffer).split_off(self.start);
        self.base += (self.start + line.len()) as u64;
        (self.start, self.scanned) = (0, 0);
        match self.draining.take() {
            Some(Draining { head, length }) => Some(Piece::Overlong {
                head,
                length: length + line.len() as u64,
            }),
            None if line.is_empty() => None,
            None => Some(Piece::Line(line)),
        }
    }
}

fn head_of(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(HEAD)]).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(cap: usize, chunks: &[&[u8]]) -> Vec<Piece> {
        let mut splitter = Splitter::with_cap(cap, 0, None);
        let (mut offset, mut found) = (0, Vec::new());
        for chunk in chunks {
            splitter.feed(offset, chunk);
            offset += chunk.len() as u64;
            found.extend(std::iter::from_fn(|| splitter.next_piece()));
        }
        found.extend(splitter.finish());
        found
    }

    fn line(text: &str) -> Piece {
        Piece::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn only_lf_ends_a_line() {
        assert_eq!(
            pieces(100, &["a\u{2028}b\r\n\nc\u{85}\x0b".as_bytes()]),
            [line("a\u{2028}b\r"), line(""), line("c\u{85}\x0b")]
        );
    }

    #[test]
    fn a_line_over_the_cap_is_told_by_head_and_length_and_the_next_line_is_whole() {
        let long = [b'x'; 25];
        for size in [1, 7, 10, 26] {
            let text = [&long[..], b"\nnext\n"].concat();
            let chunks: Vec<_> = text.chunks(size).collect();
            let found = pieces(10, &chunks);
            assert_eq!(found.len(), 2, "chunks of {size}");
            assert!(
                matches!(&found[0], Piece::Overlong { length: 25, head } if head.starts_with("xxxxxxxxxx"))
            );
            assert_eq!(found[1], line("next"));
        }
    }

    #[test]
    fn a_restart_in_an_overlong_line_goes_on_where_it_was() {
        let mut first = Splitter::with_cap(10, 100, None);
        first.feed(100, &[b'x'; 15]);
        assert_eq!(first.next_piece(), None);
        assert_eq!(first.offset(), 115);
        let mut second = Splitter::with_cap(10, first.offset(), first.draining().cloned());
        second.feed(115, b"xx\nok\n");
        assert!(matches!(
            second.next_piece(),
            Some(Piece::Overlong { length: 17, .. })
        ));
        assert_eq!(second.next_piece(), Some(line("ok")));
    }

    proptest! {
        #[test]
        fn chunking_never_matters(
            text in proptest::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..400),
            sizes in proptest::collection::vec(1usize..50, 1..60),
        ) {
            let whole = pieces(64, &[&text]);
            let (mut chunks, mut rest) = (Vec::new(), &text[..]);
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break }
                let (chunk, tail) = rest.split_at((*size).min(rest.len()));
                chunks.push(chunk);
                rest = tail;
            }
            let found = pieces(64, &chunks);
            prop_assert_eq!(whole.len(), found.len());
            for (a, b) in whole.iter().zip(&found) {
                match (a, b) {
                    (Piece::Overlong { length: a, .. }, Piece::Overlong { length: b, .. }) => prop_assert_eq!(a, b),
                    (a, b) => prop_assert_eq!(a, b),
                }
            }
        }

        #[test]
        fn a_restart_from_the_offset_gives_the_same_lines(
            text in proptest::collection::vec(prop_oneof![3 => Just(b'a'), 1 => Just(b'\n')], 1..300),
            cut in 0usize..300,
        ) {
            let cut = cut.min(text.len());
            let whole = pieces(20, &[&text]);
            let mut first = Splitter::with_cap(20, 0, None);
            first.feed(0, &text[..cut]);
            let mut found: Vec<_> = std::iter::from_fn(|| first.next_piece()).collect();
            let mut second = Splitter::with_cap(20, first.offset(), first.draining().cloned());
            let from = usize::try_from(first.offset()).unwrap();
            second.feed(first.offset(), &text[from..]);
            found.extend(std::iter::from_fn(|| second.next_piece()));
            found.extend(second.finish());
            prop_assert_eq!(whole.len(), found.len());
        }
    }
}
