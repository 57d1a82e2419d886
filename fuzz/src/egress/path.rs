use astrabox_egress::{CanonicalTarget, PathPattern};

/// The input is a path pattern, a line feed, and a target.
pub fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (pattern, target) = text.split_once('\n').unwrap_or(("/**", text));
    let pattern = pattern.parse::<PathPattern>().ok();
    if let Some(pattern) = &pattern {
        assert_eq!(pattern.to_string().parse().as_ref(), Ok(pattern));
    }
    let Ok(canonical) = CanonicalTarget::parse(target) else {
        return;
    };
    assert_eq!(
        CanonicalTarget::parse(canonical.as_str()).as_ref(),
        Ok(&canonical),
        "{target:?}"
    );
    let query = target.split_once('?').map(|(_, query)| query);
    assert_eq!(canonical.query(), query, "{target:?}");
    let readings = readings(canonical.path());
    for reading in &readings {
        let mut segments = reading.split(|byte| *byte == b'/');
        assert!(!segments.any(is_dots), "{target:?}");
    }
    let Some(pattern) = pattern else { return };
    let matched = pattern.matches(&canonical);
    if canonical.doubt().is_some() {
        assert!(!matched, "{target:?}");
        return;
    }
    assert_eq!(
        matched,
        reference(&pattern.to_string(), canonical.path()),
        "{text:?}"
    );
    // However a server reads it, it stays below the part of the pattern that is letters only.
    let shown = pattern.to_string();
    let fixed = shown.split('*').next().unwrap_or_default();
    let fixed = fixed.rsplit_once('/').map_or("", |(before, _)| before);
    for reading in readings.iter().filter(|_| matched) {
        assert!(reading.starts_with(fixed.as_bytes()), "{text:?}");
    }
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// What servers could make of a path: read once to five times, backslashes for slashes, parameters cut.
fn readings(path: &str) -> Vec<Vec<u8>> {
    let mut readings = Vec::new();
    let mut read = path.as_bytes().to_vec();
    for _ in 0..5 {
        let mut seen = Vec::new();
        let mut parameter = false;
        for byte in &read {
            match byte {
                b'/' | b'\\' => {
                    parameter = false;
                    seen.push(b'/');
                }
                b';' => parameter = true,
                _ if parameter => {}
                _ => seen.push(*byte),
            }
        }
        readings.push(seen);
        read = decoded(&read);
    }
    readings
}

fn decoded(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let digits = text
            .get(at + 1..at + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let hexadecimal =
            digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match hexadecimal.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if text[at] == b'%' => {
                plain.push(byte);
                at += 3;
            }
            _ => {
                plain.push(text[at]);
                at += 1;
            }
        }
    }
    plain
}

/// The slow and plain way to match.
fn reference(pattern: &str, path: &str) -> bool {
    let wanted: Vec<&str> = pattern.split('/').collect();
    let given: Vec<&str> = path.split('/').collect();
    let (wanted, all_below) = match wanted.split_last() {
        Some((&"**", before)) => (before, true),
        _ => (&wanted[..], false),
    };
    let enough = if all_below {
        given.len() >= wanted.len()
    } else {
        given.len() == wanted.len()
    };
    enough
        && wanted
            .iter()
            .zip(&given)
            .all(|(pattern, segment)| segment_fits(pattern, segment))
}

fn segment_fits(pattern: &str, segment: &str) -> bool {
    if pattern == "*" {
        return !segment.is_empty();
    }
    // One unit for each character, an escape being one.
    let mut units: Vec<&str> = Vec::new();
    let mut rest = segment;
    while !rest.is_empty() {
        let length = if rest.starts_with('%') { 3 } else { 1 };
        units.push(&rest[..length]);
        rest = &rest[length..];
    }
    // fits[t]: the pattern so far means the first t units.
    let mut fits = vec![false; units.len() + 1];
    fits[0] = true;
    for character in pattern.chars() {
        let mut next = vec![false; fits.len()];
        for at in 0..fits.len() {
            next[at] = match character {
                '*' => fits[at] || (at > 0 && next[at - 1]),
                _ => {
                    let mut buffer = [0; 4];
                    at > 0 && fits[at - 1] && units[at - 1] == character.encode_utf8(&mut buffer)
                }
            };
        }
        fits = next;
    }
    fits[units.len()]
}
