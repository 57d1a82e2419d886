use std::fmt::{Debug, Display};
use std::net::IpAddr;
use std::str::FromStr;

use astrabox_egress::{AddressRange, Destination, DestinationPattern, Host, HostPattern};

/// The input is the text.
pub fn host(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(host) = survives::<Host>(text) {
        check_host(&host);
    }
    if let Some(pattern) = survives::<HostPattern>(text) {
        // A wildcard never means the name behind it.
        let shown = pattern.to_string();
        if let Some(apex) = shown.strip_prefix("*.")
            && let Ok(destination) = Destination::http(apex)
        {
            assert!(
                !pattern.matches(&destination.host, destination.port),
                "{text:?}"
            );
        }
    }
    survives::<DestinationPattern>(text);
    if let Ok(range) = text.parse::<AddressRange>() {
        let again = String::from(range).parse::<AddressRange>();
        assert_eq!(again, Ok(range), "{text:?}");
    }
    for destination in [Destination::tunnel(text), Destination::http(text)] {
        let Ok(destination) = destination else {
            continue;
        };
        check_host(&destination.host);
        let again = Destination::tunnel(&destination.to_string()).expect("it is canonical");
        assert_eq!(
            (&again.host, again.port),
            (&destination.host, destination.port)
        );
        let exact = HostPattern::exact(destination.host.clone(), destination.port);
        assert!(exact.matches(&destination.host, destination.port));
        assert_eq!(exact.to_string().parse(), Ok(exact), "{text:?}");
    }
}

/// The canonical form of a value is read as the same value.
fn survives<T: FromStr + Display + Debug + PartialEq>(text: &str) -> Option<T> {
    let value: T = text.parse().ok()?;
    let again = value.to_string().parse().ok();
    assert_eq!(again.as_ref(), Some(&value), "{text:?}");
    Some(value)
}

fn check_host(host: &Host) {
    let Host::Name(name) = host else { return };
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    assert!(name.bytes().all(plain), "{name:?}");
    assert!(!name.is_empty() && name.len() <= 253, "{name:?}");
    assert!(
        !name.starts_with('.') && !name.ends_with('.') && !name.contains(".."),
        "{name:?}"
    );
    assert!(name.parse::<IpAddr>().is_err(), "{name:?} is an address");
    assert!(!is_number_form(name), "{name:?} is an address to some");
}

/// What `inet_aton` takes for an address: up to four numbers, each decimal, octal or hexadecimal.
fn is_number_form(name: &str) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let number = |part: &&str| match part.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()),
    };
    parts.len() <= 4 && parts.iter().all(number)
}
