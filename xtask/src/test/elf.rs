//! Whether a built program is static, read from its ELF program headers.

use anyhow::{Context as _, Result, ensure};

/// `p_type` of the header that names a dynamic loader.
const PT_INTERP: u32 = 3;

/// Whether the 64-bit little-endian ELF `image` asks for a dynamic loader.
pub(super) fn needs_loader(image: &[u8]) -> Result<bool> {
    ensure!(
        image.starts_with(b"\x7fELF\x02\x01"),
        "no 64-bit little-endian ELF file"
    );
    let table = usize::try_from(u64::from_le_bytes(field(image, 32)?))?;
    let size = usize::from(u16::from_le_bytes(field(image, 54)?));
    let count = usize::from(u16::from_le_bytes(field(image, 56)?));
    for index in 0..count {
        let kind = u32::from_le_bytes(field(image, table.saturating_add(index * size))?);
        if kind == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}

fn field<const N: usize>(image: &[u8], at: usize) -> Result<[u8; N]> {
    image
        .get(at..at.saturating_add(N))
        .and_then(|bytes| bytes.try_into().ok())
        .context("the ELF file ends in its headers")
}

#[cfg(test)]
mod tests {
    use super::{PT_INTERP, needs_loader};

    /// A header with one program header of the given type behind it.
    fn image(kind: u32) -> Vec<u8> {
        let mut image = vec![0; 64];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[32] = 64;
        image[54] = 56;
        image[56] = 1;
        image.extend(kind.to_le_bytes());
        image.resize(64 + 56, 0);
        image
    }

    #[test]
    fn a_loader_is_seen_and_its_absence_too() {
        assert!(needs_loader(&image(PT_INTERP)).unwrap());
        assert!(!needs_loader(&image(1)).unwrap());
    }

    #[test]
    fn a_file_cut_short_or_of_another_kind_is_an_error() {
        assert!(needs_loader(b"#!/bin/sh").is_err());
        assert!(needs_loader(&image(1)[..64]).is_err());
    }
}
