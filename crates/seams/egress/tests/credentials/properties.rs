//! What holds for every text, however it is made and cut.

use astrabox_egress::{
    CanonicalTarget, PathPattern, Refusal, RefusalReason, RequestRules, Surface, holds_placeholder,
};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{Lent, POST, grant, placeholder, plan, stolen};

const VALUE: &str = "V4lue-of-the-credential";

/// A usable credential, and one of another host.
fn rules() -> RequestRules {
    POST.rules(&plan(vec![
        grant("vcrd_a", "api.test"),
        grant("vcrd_b", "other.test"),
    ]))
}

fn values() -> Lent {
    Lent::of(&[("vcrd_a", VALUE), ("vcrd_b", VALUE)])
}

/// Pieces of text that are near to a placeholder, and some that are one.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let own = placeholder("vcrd_a").to_string();
    let own_too = own.clone();
    prop_oneof![
        4 => vec(any::<u8>(), 0..40),
        4 => "[a-z%\\\\&{}\": -]{0,40}".prop_map(String::into_bytes),
        3 => (0..14_usize).prop_map(move |length| own.as_bytes()[..length].to_vec()),
        3 => Just(own_too.into_bytes()),
    ]
}

/// A piece that is refused.
fn poison() -> impl Strategy<Value = (Vec<u8>, RefusalReason)> {
    let own = placeholder("vcrd_a").to_string();
    prop_oneof![
        Just((
            stolen("vcrd_a").to_string().into_bytes(),
            RefusalReason::Unknown
        )),
        Just((
            placeholder("vcrd_b").to_string().into_bytes(),
            RefusalReason::Destination
        )),
        (0..14_usize, any::<bool>()).prop_map(move |(at, json)| {
            let byte = own.as_bytes()[at];
            let escape = if json {
                format!("\\u{byte:04x}")
            } else {
                format!("%{byte:02X}")
            };
            let text = format!("{}{escape}{}", &own[..at], &own[at + 1..]);
            (text.into_bytes(), RefusalReason::Encoded)
        }),
    ]
}

/// Rewrites a body that is cut into pieces of these sizes, over and over.
fn rewrite(body: &[u8], sizes: &[usize]) -> Result<Vec<u8>, Refusal> {
    let mut rest = Bytes::copy_from_slice(body);
    let mut rewriter = rules().rewriter(Surface::Body);
    let mut out: Vec<Bytes> = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let piece = rest.split_to(rest.len().min(*size));
        rewriter.push(piece, &values(), &mut out)?;
    }
    rewriter.finish(&mut out)?;
    Ok(out.concat())
}

/// The slow and plain way: look at every byte.
fn model(body: &[u8]) -> Vec<u8> {
    let own = placeholder("vcrd_a");
    let own = own.as_str().as_bytes();
    let mut out = Vec::new();
    let mut rest = body;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(own) {
            out.extend_from_slice(VALUE.as_bytes());
            rest = behind;
        } else {
            out.push(*first);
            rest = behind;
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn eg19_every_cut_gives_what_the_plain_way_gives(
        pieces in vec(piece(), 0..8),
        sizes in vec(1..90_usize, 1..6),
    ) {
        let body = pieces.concat();
        match rewrite(&body, &sizes) {
            Ok(out) => {
                prop_assert_eq!(&out, &model(&body));
                let own = placeholder("vcrd_a");
                let own = own.as_str().as_bytes();
                prop_assert!(!out.windows(own.len()).any(|window| window == own));
            }
            // Pieces can meet in a marker without digits, or an escaped one.
            Err(refusal) => prop_assert!(matches!(
                refusal.reason,
                RefusalReason::Unknown | RefusalReason::Encoded
            )),
        }
        let whole = rewrite(&body, &[usize::MAX]);
        prop_assert_eq!(whole.is_ok(), rewrite(&body, &sizes).is_ok());
    }

    #[test]
    fn eg19_what_holds_no_placeholder_is_the_same_bytes(
        body in vec(any::<u8>(), 0..3000),
        sizes in vec(1..700_usize, 1..6),
    ) {
        prop_assume!(!holds_placeholder(&body));
        prop_assert_eq!(rewrite(&body, &sizes), Ok(body));
    }

    #[test]
    fn eg13_what_is_refused_is_refused_in_every_cut_and_says_no_value(
        before in vec(piece(), 0..4),
        (poison, reason) in poison(),
        after in vec(any::<u8>(), 0..60),
        sizes in vec(1..90_usize, 1..6),
    ) {
        // A blank, so that no piece runs into it.
        let body = [before.concat(), b" ".to_vec(), poison, b" ".to_vec(), after].concat();
        let refusal = rewrite(&body, &sizes).expect_err("it is poisoned");
        if before.is_empty() {
            prop_assert_eq!(refusal.reason, reason);
        }
        let said = format!("{refusal} {refusal:?}");
        prop_assert!(!said.contains(VALUE));
        let header = rules().header("x-key", &body, &values());
        let Err(refusal) = header else {
            return Err(TestCaseError::fail("the header was let through"));
        };
        let said = format!("{refusal} {refusal:?}");
        prop_assert!(!said.contains(VALUE));
    }

    #[test]
    fn eg17_a_header_becomes_what_the_plain_way_gives(pieces in vec(piece(), 0..6)) {
        let value = pieces.concat();
        if let Ok(replaced) = rules().header("x-key", &value, &values()) {
            let out = replaced.as_ref().map_or(&value[..], |replaced| &replaced.value[..]);
            prop_assert_eq!(out, &model(&value)[..]);
            prop_assert_eq!(replaced.is_none(), out == value);
        }
    }

    #[test]
    fn eg7_eg8_a_canonical_target_is_a_fixed_point_without_dots(
        text in "/([a-c.;%/\\\\~ ]|%2[efEF5]|%5[cC]|%25|\\.\\.){0,24}(\\?[a-z%=&+/.]{0,8})?"
    ) {
        if let Ok(target) = CanonicalTarget::parse(&text) {
            let again = CanonicalTarget::parse(target.as_str());
            prop_assert_eq!(again.as_ref(), Ok(&target));
            let query = text.split_once('?').map(|(_, query)| query);
            prop_assert_eq!(target.query(), query);
            let mut read = target.path().to_owned();
            for _ in 0..5 {
                let parts = read.split(['/', '\\']);
                for part in parts.map(|part| part.split(';').next().unwrap_or(part)) {
                    prop_assert!(part != "." && part != "..", "{} in {}", part, target);
                }
                for (escape, character) in
                    [("%25", "%"), ("%2E", "."), ("%2e", "."), ("%2F", "/"), ("%2f", "/"), ("%5C", "\\"), ("%5c", "\\"), ("%3B", ";")]
                {
                    read = read.replace(escape, character);
                }
            }
        }
    }

    #[test]
    fn eg10_a_pattern_means_its_own_paths(
        segments in vec("[a-z.-]{1,6}", 1..5),
        below in vec("[a-z]{1,4}", 0..3),
        stars in vec(any::<bool>(), 5),
    ) {
        prop_assume!(segments.iter().all(|segment| segment != "." && segment != ".."));
        let path = format!("/{}", segments.join("/"));
        let starred: Vec<&str> = segments
            .iter()
            .zip(&stars)
            .map(|(segment, star)| if *star { "*" } else { segment })
            .collect();
        let parse = |text: String| text.parse::<PathPattern>().expect("a pattern");
        let target = |text: &str| CanonicalTarget::parse(text).expect("a target");
        let pattern = parse(format!("/{}", starred.join("/")));
        let prefix = parse(format!("/{}/**", starred.join("/")));
        let deeper = [std::slice::from_ref(&path), &below].concat().join("/");
        prop_assert!(pattern.matches(&target(&path)));
        prop_assert!(prefix.matches(&target(&deeper)));
        prop_assert_eq!(pattern.matches(&target(&deeper)), below.is_empty());
        let sibling = target(&format!("{path}-other"));
        let last = stars[segments.len() - 1];
        prop_assert_eq!(prefix.matches(&sibling), last);
    }
}
