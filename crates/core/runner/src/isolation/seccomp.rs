//! Turns the table of allowed system calls into a program for the kernel's filter.
//!
//! The kernel asks the program about every system call number when it is installed, to know which ones
//! it can let through without asking again. A search tree over ranges of numbers answers that several
//! times faster than the usual chain of comparisons, and a box has one installation.

use std::collections::BTreeMap;

use libc::sock_filter;

use super::PermissionLevel;
use super::seccomp_table::{ABSENT, ALLOWED, ALLOWED_ADVANCED, CONDITIONAL, Condition, Rule, Test};

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets into `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
/// Known and not for a box: the program learns that it may not.
const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// Not there: the program falls back to an older way.
const NOT_THERE: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// What to answer for a range of numbers.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Constant(u32),
    Conditional(&'static Rule),
}

/// The filter for a level.
pub(super) fn program(level: PermissionLevel) -> Vec<sock_filter> {
    let mut out = vec![
        load(ARCHITECTURE),
        // Another architecture's numbers mean other calls: i386 programs end here.
        jump_if(JUMP_EQUAL, NATIVE, 1, 0),
        ret(KILL),
        load(NUMBER),
    ];
    out.extend(tree(&ranges(&verdicts(level))));
    out
}

/// Every number that gets another answer than its unknown neighbours.
fn verdicts(level: PermissionLevel) -> BTreeMap<u32, Verdict> {
    let mut all = BTreeMap::new();
    let mut constant = |numbers: &[libc::c_long], answer| {
        all.extend(
            numbers
                .iter()
                .map(|number| (*number as u32, Verdict::Constant(answer))),
        );
    };
    constant(ABSENT, NOT_THERE);
    constant(ALLOWED, ALLOW);
    for rule in CONDITIONAL {
        all.insert(rule.number as u32, Verdict::Conditional(rule));
    }
    if level == PermissionLevel::Advanced {
        all.extend(
            ALLOWED_ADVANCED
                .iter()
                .map(|number| (*number as u32, Verdict::Constant(ALLOW))),
        );
    }
    all
}

/// Joins neighbours with the same answer: the first number of each range and its answer, ascending.
fn ranges(verdicts: &BTreeMap<u32, Verdict>) -> Vec<(u32, Verdict)> {
    let last = verdicts.keys().next_back().copied().unwrap_or(0);
    let mut ranges: Vec<(u32, Verdict)> = Vec::new();
    for number in 0..=last {
        let verdict = verdicts
            .get(&number)
            .copied()
            .unwrap_or(Verdict::Constant(DENY));
        if ranges.last().is_none_or(|(_, before)| *before != verdict) {
            ranges.push((number, verdict));
        }
    }
    // Newer than this table, and on x86-64 the x32 numbers, which begin at 0x40000000.
    ranges.push((last + 1, Verdict::Constant(NOT_THERE)));
    ranges
}

/// A binary search that ends in each range's answer.
fn tree(ranges: &[(u32, Verdict)]) -> Vec<sock_filter> {
    match ranges {
        [] => vec![ret(DENY)],
        [(_, Verdict::Constant(answer))] => vec![ret(*answer)],
        [(_, Verdict::Conditional(rule))] => conditions(rule),
        _ => {
            let middle = ranges.len() / 2;
            let (low, high) = (tree(&ranges[..middle]), tree(&ranges[middle..]));
            // A conditional jump reaches 255 instructions, an unconditional one any.
            let mut out = vec![
                jump_if(JUMP_AT_LEAST, ranges[middle].0, 0, 1),
                jump(low.len()),
            ];
            out.extend(low);
            out.extend(high);
            out
        }
    }
}

/// Allows if all conditions of any alternative hold.
fn conditions(rule: &Rule) -> Vec<sock_filter> {
    let mut out = Vec::new();
    for alternative in rule.any_of {
        let mut block = Vec::new();
        for (index, condition) in alternative.iter().enumerate() {
            // To the end of the alternative: the conditions that follow and its return.
            let to_end = 3 * (alternative.len() - index - 1) + 1;
            block.extend(condition_code(condition, to_end as u8));
        }
        block.push(ret(ALLOW));
        out.extend(block);
    }
    out.push(ret(DENY));
    out
}

/// Three instructions that go on if the condition holds and else skip `to_end` more.
fn condition_code(condition: &Condition, to_end: u8) -> [sock_filter; 3] {
    let offset = ARGUMENTS + 8 * condition.argument;
    let (word, mask, value, if_equal, if_other) = match condition.test {
        Test::Equal(value) => (offset, u32::MAX, value, 0, to_end),
        Test::NotEqual(value) => (offset, u32::MAX, value, to_end, 0),
        Test::Masked(mask, value) => (offset, mask, value, 0, to_end),
        Test::HighEqual(value) => (offset + 4, u32::MAX, value, 0, to_end),
    };
    [
        load(word),
        sock_filter {
            code: AND,
            jt: 0,
            jf: 0,
            k: mask,
        },
        jump_if(JUMP_EQUAL, value, if_equal, if_other),
    ]
}

fn load(offset: u32) -> sock_filter {
    sock_filter {
        code: LOAD_WORD,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

fn ret(answer: u32) -> sock_filter {
    sock_filter {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: answer,
    }
}

fn jump(distance: usize) -> sock_filter {
    sock_filter {
        code: JUMP,
        jt: 0,
        jf: 0,
        k: distance as u32,
    }
}

fn jump_if(code: u16, value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter {
        code,
        jt: then,
        jf: otherwise,
        k: value,
    }
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
