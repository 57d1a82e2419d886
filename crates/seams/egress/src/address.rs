//! Which addresses are special, and which an operator lets through.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Decision, DenyReason};

/// What an address is, as far as a policy cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressClass {
    /// A public unicast address.
    Public,
    /// A cloud's metadata service: never reachable (EG5).
    Metadata,
    /// Loopback, private, link-local, shared, multicast, reserved: denied unless the operator names it (EG6).
    Special,
}

/// Classifies an address; an IPv4 address inside an IPv6 form is judged by the embedded address (EG6).
#[must_use]
pub fn classify(address: IpAddr) -> AddressClass {
    let address = embedded_v4(address).map_or(address, IpAddr::V4);
    if is_metadata(address) {
        return AddressClass::Metadata;
    }
    let special = match address {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
    };
    if special {
        AddressClass::Special
    } else {
        AddressClass::Public
    }
}

/// Whether the address is a known metadata service.
#[must_use]
pub fn is_metadata(address: IpAddr) -> bool {
    match embedded_v4(address).map_or(address, IpAddr::V4) {
        IpAddr::V4(v4) => {
            matches!(
                v4.octets(),
                [169, 254, 169, 254]
                    | [169, 254, 170, 2]
                    | [169, 254, 170, 23]
                    | [100, 100, 100, 200]
            )
        }
        IpAddr::V6(v6) => {
            v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
                || v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)
                || v6 == Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)
        }
    }
}

/// The IPv4 address inside ::ffff:0:0/96, ::/96, 64:ff9b::/96, 64:ff9b:1::/48, 2002::/16 and 2001::/32 (Teredo).
fn embedded_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(v6) = address else { return None };
    let s = v6.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        [0x2001, 0, .., high, low] => v4(!high, !low),
        _ => None,
    }
}

fn special_v4(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_broadcast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && (c == 0 || c == 2))
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19))
        || (a == 198 && b == 51 && c == 100)
        || (a == 203 && b == 0 && c == 113)
}

fn special_v6(v6: Ipv6Addr) -> bool {
    let first = v6.segments()[0];
    // Only 2000::/3 is handed out as public unicast; of it, these are not for the public.
    (first & 0xe000) != 0x2000
        || (first == 0x2001 && v6.segments()[1] < 0x200)
        || (first == 0x2001 && v6.segments()[1] == 0xdb8)
        || (first == 0x3fff && v6.segments()[1] < 0x1000)
}

/// A range of addresses in the form `10.0.0.0/8`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    base: IpAddr,
    bits: u8,
}

impl AddressRange {
    /// Whether the range holds this address; IPv4 inside IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.holds(embedded_v4(address).map_or(address, IpAddr::V4))
    }

    /// Whether the range holds exactly this address, whatever is embedded in it.
    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        mask(address, self.bits) == mask(self.base, self.bits)
    }

    pub(crate) fn base(&self) -> IpAddr {
        self.base
    }

    /// The lowest address of the range.
    pub(crate) fn first(&self) -> IpAddr {
        mask(self.base, self.bits)
    }
}

/// The address with all bits behind the prefix at zero.
fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let gap = 32_u32.saturating_sub(bits.into());
            let mask = u32::MAX.checked_shl(gap).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let gap = 128_u32.saturating_sub(bits.into());
            let mask = u128::MAX.checked_shl(gap).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

/// What an operator says about addresses. Asked about every address before it is dialled, however the policy came to
/// allow the destination.
#[derive(Debug, Clone, Copy)]
pub struct AddressRules<'a> {
    /// Never reached by any sandbox, public or not (EG21).
    pub denied: &'a [AddressRange],
    /// Reached although they are special (EG6).
    pub allowed: &'a [AddressRange],
}

impl AddressRules<'_> {
    /// The verdict on one address, in this order: metadata services, denied ranges, special addresses. `stated` says
    /// that the operator wrote this very address down for the destination, so it may be special.
    #[must_use]
    pub fn judge(&self, address: IpAddr, stated: bool) -> Decision {
        let class = classify(address);
        if class == AddressClass::Metadata {
            return Decision::Deny(DenyReason::Metadata);
        }
        // Denied in the form that is dialled, and by what is embedded in it.
        let holds = |range: &AddressRange| range.holds(address) || range.contains(address);
        if self.denied.iter().any(holds) {
            return Decision::Deny(DenyReason::AddressDenied);
        }
        let allowed = || self.allowed.iter().any(|range| range.contains(address));
        if class == AddressClass::Public || stated || allowed() {
            Decision::Allow
        } else {
            Decision::Deny(DenyReason::AddressNotAllowed)
        }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = address
            .parse()
            .map_err(|_| format!("`{text}` is not an address or a range"))?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => match bits.parse::<u8>() {
                Ok(value) if value <= most && !bits.starts_with('+') => value,
                _ => {
                    return Err(format!(
                        "`{text}`: the prefix length is a number from 0 to {most}"
                    ));
                }
            },
        };
        Ok(Self { base, bits })
    }
}

impl TryFrom<String> for AddressRange {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AddressRange> for String {
    fn from(range: AddressRange) -> Self {
        format!("{}/{}", range.base, range.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eg5_metadata_is_known_in_every_form() {
        for text in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "169.254.170.2",
            "100.100.100.200",
            "fd00:ec2::254",
        ] {
            assert_eq!(
                classify(text.parse().expect(text)),
                AddressClass::Metadata,
                "{text}"
            );
        }
    }

    #[test]
    fn eg6_special_addresses_are_known() {
        for text in [
            "127.0.0.1",
            "127.255.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.0.1",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.1",
            "240.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::",
            "::7f00:1",
            "2001:db8::1",
            "64:ff9b:1::a00:1",
        ] {
            assert_eq!(
                classify(text.parse().expect(text)),
                AddressClass::Special,
                "{text}"
            );
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "64:ff9b::101:101",
            "192.0.1.1",
        ] {
            assert_eq!(
                classify(text.parse().expect(text)),
                AddressClass::Public,
                "{text}"
            );
        }
    }

    #[test]
    fn eg21_denied_ranges_come_before_every_permission() {
        let ranges = |texts: &[&str]| -> Vec<AddressRange> {
            texts.iter().map(|text| text.parse().expect(text)).collect()
        };
        let denied = ranges(&["203.1.0.0/16", "10.9.0.0/16", "64:ff9b::/96"]);
        let allowed = ranges(&["10.0.0.0/8", "169.254.0.0/16"]);
        let rules = AddressRules {
            denied: &denied,
            allowed: &allowed,
        };
        for (address, stated, wanted) in [
            ("1.1.1.1", false, Decision::Allow),
            (
                "203.1.2.3",
                false,
                Decision::Deny(DenyReason::AddressDenied),
            ),
            ("203.1.2.3", true, Decision::Deny(DenyReason::AddressDenied)),
            (
                "::ffff:203.1.2.3",
                false,
                Decision::Deny(DenyReason::AddressDenied),
            ),
            (
                "2002:cb01:203::",
                false,
                Decision::Deny(DenyReason::AddressDenied),
            ),
            (
                "64:ff9b::101:101",
                false,
                Decision::Deny(DenyReason::AddressDenied),
            ),
            ("10.8.0.1", false, Decision::Allow),
            ("10.9.0.1", false, Decision::Deny(DenyReason::AddressDenied)),
            (
                "192.168.0.1",
                false,
                Decision::Deny(DenyReason::AddressNotAllowed),
            ),
            ("192.168.0.1", true, Decision::Allow),
            (
                "169.254.169.254",
                true,
                Decision::Deny(DenyReason::Metadata),
            ),
        ] {
            let verdict = rules.judge(address.parse().expect(address), stated);
            assert_eq!(verdict, wanted, "{address} {stated}");
        }
    }

    #[test]
    fn a_range_holds_what_it_says() {
        for (range, address, wanted) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("fd00::/8", "fd12::1", true),
            ("::/0", "10.0.0.1", false),
        ] {
            let range: AddressRange = range.parse().expect(range);
            assert_eq!(
                range.contains(address.parse().expect(address)),
                wanted,
                "{range:?} {address}"
            );
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "a/8", "::/129", "10.0.0.0/"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
    }
}
