//! Sizes as people write them: `512MiB`, `10GiB`, or plain bytes.

/// Reads a size. For clap.
pub(crate) fn read(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err("write it as bytes, or with KiB, MiB, GiB or TiB".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "it begins with a number".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "it is too large".to_owned())
}

/// Writes a size for people.
pub(crate) fn show(bytes: u64) -> String {
    let mut rest = bytes;
    let mut below = 0;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest < 1024 {
            return with_tenth(rest, below, unit);
        }
        below = rest % 1024;
        rest /= 1024;
    }
    with_tenth(rest, below, "TiB")
}

fn with_tenth(whole: u64, below: u64, unit: &str) -> String {
    match (below * 10 / 1024, whole) {
        (tenth @ 1.., 0..10) => format!("{whole}.{tenth} {unit}"),
        _ => format!("{whole} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [
            ("0", 0),
            ("7B", 7),
            ("4KiB", 4096),
            ("512MiB", 512 << 20),
            ("10GiB", 10 << 30),
        ] {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "GiB", "1GB", "1.5GiB", "-1", "99999999999TiB"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (10 << 30, "10 GiB"),
            (3 << 40, "3 TiB"),
        ] {
            assert_eq!(show(bytes), text);
        }
    }
}
