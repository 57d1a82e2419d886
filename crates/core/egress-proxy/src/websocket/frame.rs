//! Frames: their heads, read strictly, and written with a mask.

use bytes::{Buf, BytesMut};

/// The opcodes of RFC 6455, section 5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    const fn of(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }
}

/// The head of a frame that a client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) last: bool,
    pub(super) opcode: Opcode,
    pub(super) length: u64,
    pub(super) mask: [u8; 4],
}

/// A frame that a client must not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Takes the head of a frame off the buffer; nothing when more is needed.
pub(super) fn take_head(buffer: &mut BytesMut) -> Result<Option<Head>, Malformed> {
    let (Some(first), Some(second)) = (buffer.first().copied(), buffer.get(1).copied()) else {
        return Ok(None);
    };
    let opcode = Opcode::of(first & 0x0f).ok_or(Malformed)?;
    let last = first & 0x80 != 0;
    // No extension was agreed on, so the reserved bits are zero; a client masks every frame.
    if first & 0x70 != 0 || second & 0x80 == 0 {
        return Err(Malformed);
    }
    let short = second & 0x7f;
    if opcode.is_control() && (!last || short > 125) {
        return Err(Malformed);
    }
    let extended = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if buffer.len() < 2 + extended + 4 {
        return Ok(None);
    }
    buffer.advance(2);
    let length = match short {
        126 => u64::from(buffer.get_u16()),
        127 => buffer.get_u64(),
        short => u64::from(short),
    };
    let minimal = match short {
        126 => length > 125,
        127 => length > 0xffff && i64::try_from(length).is_ok(),
        _ => true,
    };
    let mut mask = [0; 4];
    buffer.copy_to_slice(&mut mask);
    if !minimal {
        return Err(Malformed);
    }
    Ok(Some(Head {
        last,
        opcode,
        length,
        mask,
    }))
}

/// Masks, or takes a mask off, from `offset` bytes after the payload's beginning on.
pub(super) fn apply_mask(bytes: &mut [u8], mask: [u8; 4], offset: u64) {
    // Only the place within the mask matters.
    let start = (offset % 4) as usize;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte ^= mask[(start + at) % 4];
    }
}

/// Writes a whole masked frame.
pub(super) fn write(out: &mut Vec<u8>, last: bool, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    out.push(if last { 0x80 } else { 0 } | opcode.bits());
    match payload.len() {
        // Both casts are of lengths within the range that the arm states.
        length @ 0..=125 => out.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(&mut out[start..], mask, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 4];

    #[test]
    fn a_frame_of_any_length_is_read_as_it_was_written_and_wherever_it_is_cut() {
        for length in [0, 1, 125, 126, 127, 0xffff, 0x1_0000] {
            let payload: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let mut frame = Vec::new();
            write(&mut frame, true, Opcode::Text, &payload, MASK);
            let whole = BytesMut::from(&frame[..]);
            let head_length = frame.len() - length;
            for cut in 0..head_length {
                let mut part = BytesMut::from(&frame[..cut]);
                assert_eq!(take_head(&mut part), Ok(None), "{length} {cut}");
                assert_eq!(part.len(), cut, "something was taken");
            }
            let mut buffer = whole;
            let head = take_head(&mut buffer).unwrap().unwrap();
            assert_eq!(head.length, length as u64);
            apply_mask(&mut buffer, head.mask, 0);
            assert_eq!(&buffer[..], payload);
        }
    }

    #[test]
    fn a_mask_goes_on_where_the_payload_was_cut() {
        let mut whole = *b"a payload";
        apply_mask(&mut whole, MASK, 0);
        let (first, second) = whole.split_at_mut(3);
        apply_mask(first, MASK, 0);
        apply_mask(second, MASK, 3);
        assert_eq!(&whole, b"a payload");
    }

    #[test]
    fn what_no_client_may_send_is_refused() {
        for frame in [
            &b"\x81\x01x"[..],
            b"\xc1\x81\0\0\0\0x",
            b"\x83\x81\0\0\0\0x",
            b"\x8b\x81\0\0\0\0x",
            b"\x09\x81\0\0\0\0x",
            b"\x88\xfe\x00\x80\0\0\0\0",
            b"\x81\xfe\x00\x01\0\0\0\0x",
            b"\x81\xff\0\0\0\0\0\0\0\x01\0\0\0\0x",
            b"\x81\xff\x80\0\0\0\0\0\0\x01\0\0\0\0x",
        ] {
            assert_eq!(
                take_head(&mut BytesMut::from(frame)),
                Err(Malformed),
                "{frame:?}"
            );
        }
    }
}
