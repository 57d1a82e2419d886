use std::collections::BTreeSet;

use super::*;

/// Interprets the few instructions that the program uses, as the kernel would.
fn run(program: &[sock_filter], arch: u32, number: u32, args: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&number.to_ne_bytes());
    data.extend_from_slice(&arch.to_ne_bytes());
    data.extend_from_slice(&0u64.to_ne_bytes());
    args.iter()
        .for_each(|arg| data.extend_from_slice(&arg.to_le_bytes()));
    let (mut at, mut accumulator) = (0usize, 0u32);
    loop {
        let op = program[at];
        at += 1;
        let branch = |taken: bool| usize::from(if taken { op.jt } else { op.jf });
        match op.code {
            LOAD_WORD => {
                let offset = op.k as usize;
                let word = data[offset..offset + 4].try_into().expect("four bytes");
                accumulator = u32::from_ne_bytes(word);
            }
            AND => accumulator &= op.k,
            JUMP => at += op.k as usize,
            JUMP_EQUAL => at += branch(accumulator == op.k),
            JUMP_AT_LEAST => at += branch(accumulator >= op.k),
            RETURN => return op.k,
            other => panic!("instruction {other:#x} at {at}"),
        }
    }
}

fn answer(level: PermissionLevel, number: libc::c_long, args: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    run(&program(level), NATIVE, number as u32, all)
}

#[test]
fn every_number_gets_the_answer_of_its_list() {
    for level in [PermissionLevel::Default, PermissionLevel::Advanced] {
        let (program, verdicts) = (program(level), verdicts(level));
        let newest = *verdicts.keys().next_back().expect("not empty");
        for number in 0..=newest {
            let expected = match verdicts.get(&number) {
                Some(Verdict::Constant(answer)) => *answer,
                Some(Verdict::Conditional(_)) => continue,
                None => DENY,
            };
            assert_eq!(run(&program, NATIVE, number, [0; 6]), expected, "{number}");
        }
        for number in [newest + 1, 5000, 0x4000_0000, 0x4000_0001, u32::MAX] {
            assert_eq!(run(&program, NATIVE, number, [0; 6]), NOT_THERE, "{number}");
        }
    }
}

#[test]
fn arguments_decide_where_the_table_says_so() {
    use PermissionLevel::{Advanced, Default};
    let new_user = libc::CLONE_NEWUSER as u64;
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
    let (stream, raw) = (libc::SOCK_STREAM as u64, libc::SOCK_RAW as u64);
    let cloexec = stream | libc::SOCK_CLOEXEC as u64;
    let [unix, inet, inet6, netlink, packet, alg, vsock] = [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
        libc::AF_PACKET,
        libc::AF_ALG,
        libc::AF_VSOCK,
    ]
    .map(|family| family as u64);
    let cases: &[(PermissionLevel, libc::c_long, &[u64], u32)] = &[
        (Default, libc::SYS_clone, &[thread], ALLOW),
        (Default, libc::SYS_clone, &[libc::SIGCHLD as u64], ALLOW),
        (Default, libc::SYS_clone, &[thread | new_user], DENY),
        (Default, libc::SYS_clone, &[libc::CLONE_NEWNET as u64], DENY),
        (Advanced, libc::SYS_clone, &[new_user], ALLOW),
        (Advanced, libc::SYS_clone3, &[], NOT_THERE),
        (
            Default,
            libc::SYS_unshare,
            &[libc::CLONE_FILES as u64],
            ALLOW,
        ),
        (Default, libc::SYS_unshare, &[new_user], DENY),
        (
            Default,
            libc::SYS_unshare,
            &[libc::CLONE_NEWTIME as u64],
            DENY,
        ),
        (Advanced, libc::SYS_unshare, &[new_user], ALLOW),
        (Default, libc::SYS_mount, &[], DENY),
        (Advanced, libc::SYS_mount, &[], ALLOW),
        (Default, libc::SYS_socket, &[unix, stream, 0], ALLOW),
        (Default, libc::SYS_socket, &[inet, cloexec, 0], ALLOW),
        (Default, libc::SYS_socket, &[inet6, stream, 6], ALLOW),
        (
            Default,
            libc::SYS_socket,
            &[inet, libc::SOCK_DGRAM as u64, 17],
            ALLOW,
        ),
        (Default, libc::SYS_socket, &[inet, raw, 0], DENY),
        (Default, libc::SYS_socket, &[inet, raw, 1], DENY),
        (Default, libc::SYS_socket, &[inet6, raw, 58], DENY),
        (Default, libc::SYS_socket, &[inet, stream, 132], DENY),
        (Default, libc::SYS_socket, &[netlink, raw, 0], ALLOW),
        (Default, libc::SYS_socket, &[netlink, raw, 12], DENY),
        (Default, libc::SYS_socket, &[packet, raw, 0], DENY),
        (Default, libc::SYS_socket, &[alg, stream, 0], DENY),
        (Default, libc::SYS_socket, &[vsock, stream, 0], DENY),
        (Advanced, libc::SYS_socket, &[vsock, stream, 0], DENY),
        // The kernel sees 32 bits of the family, so must the filter.
        (
            Default,
            libc::SYS_socket,
            &[(1 << 32) | unix, stream, 0],
            ALLOW,
        ),
        (Default, libc::SYS_socketpair, &[unix, stream], ALLOW),
        (Default, libc::SYS_socketpair, &[inet, stream], DENY),
        (Default, libc::SYS_ioctl, &[0, libc::TIOCGWINSZ], ALLOW),
        (Default, libc::SYS_ioctl, &[0, libc::TIOCSTI], DENY),
        (
            Default,
            libc::SYS_ioctl,
            &[0, (1 << 32) | libc::TIOCSTI],
            DENY,
        ),
        (Default, libc::SYS_ioctl, &[0, libc::TIOCLINUX], DENY),
        (Default, libc::SYS_personality, &[0xFFFF_FFFF], ALLOW),
        (Default, libc::SYS_personality, &[0x0040_0000], DENY),
        (
            Default,
            libc::SYS_prlimit64,
            &[0, 7, 0x7000_0000_0000, 0],
            ALLOW,
        ),
        (
            Default,
            libc::SYS_prlimit64,
            &[1, 7, 0, 0x7000_0000_0000],
            ALLOW,
        ),
        (
            Default,
            libc::SYS_prlimit64,
            &[1, 7, 0x7000_0000_0000, 0],
            DENY,
        ),
        (Default, libc::SYS_prlimit64, &[1, 7, 0x1000, 0], DENY),
    ];
    for (level, number, args, expected) in cases {
        assert_eq!(
            answer(*level, *number, args),
            *expected,
            "{level:?} {number} {args:x?}"
        );
    }
}

#[test]
fn what_a_box_must_not_do_is_in_no_list() {
    let never = [
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_userfaultfd,
        libc::SYS_open_by_handle_at,
        libc::SYS_swapon,
        libc::SYS_reboot,
        libc::SYS_syslog,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_fanotify_init,
        libc::SYS_kcmp,
        libc::SYS_vhangup,
    ];
    for level in [PermissionLevel::Default, PermissionLevel::Advanced] {
        for number in never {
            assert_eq!(answer(level, number, &[]), DENY, "{number}");
        }
    }
}

#[test]
fn another_architecture_is_killed() {
    const I386: u32 = 0x4000_0003;
    assert_eq!(
        run(&program(PermissionLevel::Advanced), I386, 4, [0; 6]),
        KILL
    );
}

#[test]
fn no_call_is_in_two_lists() {
    let mut seen = BTreeSet::new();
    let conditional = CONDITIONAL.iter().map(|rule| &rule.number);
    for number in ALLOWED.iter().chain(ABSENT).chain(conditional) {
        assert!(seen.insert(*number), "{number} is listed twice");
    }
}

#[test]
fn the_program_fits_and_is_shallow() {
    const BPF_MAXINSNS: usize = 4096;
    assert!(program(PermissionLevel::Default).len() < BPF_MAXINSNS / 4);
}
