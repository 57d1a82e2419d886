//! Which system calls a box may make, as data: the kernel's surface that an agent can touch.
//!
//! An allow-list in the manner of the container engines' default profile (moby 28,
//! `profiles/seccomp/default.json`), narrowed by what a box has no use for. What is in no list here is
//! refused with EPERM if it is older than the newest one named, and is not there (ENOSYS) if newer.

use libc::c_long;

/// A call that is allowed for some arguments only.
#[derive(PartialEq)]
pub(super) struct Rule {
    pub(super) number: c_long,
    /// Allowed if all conditions of one of these hold.
    pub(super) any_of: &'static [&'static [Condition]],
}

/// A condition on one argument. The kernel truncates these arguments to 32 bits itself unless the
/// test says otherwise.
#[derive(PartialEq)]
pub(super) struct Condition {
    pub(super) argument: u32,
    pub(super) test: Test,
}

/// What the low half of an argument, or its high half, has to be.
#[derive(PartialEq)]
pub(super) enum Test {
    Equal(u32),
    NotEqual(u32),
    Masked(u32, u32),
    HighEqual(u32),
}

use Test::{Equal, HighEqual, Masked, NotEqual};

const fn arg(argument: u32, test: Test) -> Condition {
    Condition { argument, test }
}

/// Every flag of clone and unshare that makes a namespace (but time's, which clone cannot name).
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
const NEW_TIME: u32 = libc::CLONE_NEWTIME as u32;

const INET: u32 = libc::AF_INET as u32;
const INET6: u32 = libc::AF_INET6 as u32;
const UNIX: u32 = libc::AF_UNIX as u32;
const NETLINK: u32 = libc::AF_NETLINK as u32;
const STREAM: Test = Masked(0xF, libc::SOCK_STREAM as u32);
const DATAGRAM: Test = Masked(0xF, libc::SOCK_DGRAM as u32);
const TCP: u32 = libc::IPPROTO_TCP as u32;
const UDP: u32 = libc::IPPROTO_UDP as u32;

/// Calls whose arguments decide.
pub(super) const CONDITIONAL: &[Rule] = &[
    // Threads and processes yes, namespaces no. (clone3 hides its flags in memory, so it is ABSENT.)
    Rule {
        number: libc::SYS_clone,
        any_of: &[&[arg(0, Masked(NAMESPACES, 0))]],
    },
    // Taking one's own copy of files or directories is harmless.
    Rule {
        number: libc::SYS_unshare,
        any_of: &[&[arg(0, Masked(NAMESPACES | NEW_TIME, 0))]],
    },
    // Local sockets; TCP and UDP, of which only the loopback leads anywhere; the routing tables, which
    // the C library reads. Not raw and packet sockets, not AF_VSOCK and AF_ALG, which no namespace
    // confines, and none of the rare families whose code has seen little use and many bugs.
    Rule {
        number: libc::SYS_socket,
        any_of: &[
            &[arg(0, Equal(UNIX))],
            &[arg(0, Equal(INET)), arg(1, STREAM), arg(2, Equal(0))],
            &[arg(0, Equal(INET)), arg(1, STREAM), arg(2, Equal(TCP))],
            &[arg(0, Equal(INET)), arg(1, DATAGRAM), arg(2, Equal(0))],
            &[arg(0, Equal(INET)), arg(1, DATAGRAM), arg(2, Equal(UDP))],
            &[arg(0, Equal(INET6)), arg(1, STREAM), arg(2, Equal(0))],
            &[arg(0, Equal(INET6)), arg(1, STREAM), arg(2, Equal(TCP))],
            &[arg(0, Equal(INET6)), arg(1, DATAGRAM), arg(2, Equal(0))],
            &[arg(0, Equal(INET6)), arg(1, DATAGRAM), arg(2, Equal(UDP))],
            &[
                arg(0, Equal(NETLINK)),
                arg(2, Equal(libc::NETLINK_ROUTE as u32)),
            ],
        ],
    },
    Rule {
        number: libc::SYS_socketpair,
        any_of: &[&[arg(0, Equal(UNIX))]],
    },
    // Typing into a terminal for somebody else (TIOCSTI), or pasting into a console (TIOCLINUX).
    Rule {
        number: libc::SYS_ioctl,
        any_of: &[&[
            arg(1, NotEqual(libc::TIOCSTI as u32)),
            arg(1, NotEqual(libc::TIOCLINUX as u32)),
        ]],
    },
    // The execution domains of Linux, with and without an old version number, and asking which it is.
    Rule {
        number: libc::SYS_personality,
        any_of: &[
            &[arg(0, Equal(0))],
            &[arg(0, Equal(0x0000_0008))],
            &[arg(0, Equal(0x0002_0000))],
            &[arg(0, Equal(0x0002_0008))],
            &[arg(0, Equal(0xFFFF_FFFF))],
        ],
    },
    // One's own limits, and reading those of others: the box's first process has the same user, and
    // must not have its limits lowered under it.
    Rule {
        number: libc::SYS_prlimit64,
        any_of: &[
            &[arg(0, Equal(0))],
            &[arg(2, Equal(0)), arg(2, HighEqual(0))],
        ],
    },
];

/// Answered as if the kernel did not have them: programs then use the older call, which can be checked.
pub(super) const ABSENT: &[c_long] = &[
    // Its flags lie in memory, out of a filter's sight. The C libraries fall back to clone.
    libc::SYS_clone3,
    // A second way to make most system calls, past this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Mount tables in another form; the tools fall back to /proc/self/mountinfo.
    STATMOUNT,
    LISTMOUNT,
];

// Not in the libc crate's tables; from 424 on the same number on every architecture.
#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: c_long = 333;
#[cfg(target_arch = "aarch64")]
const IO_PGETEVENTS: c_long = 292;
const STATMOUNT: c_long = 457;
const LISTMOUNT: c_long = 458;
const CACHESTAT: c_long = 451;
const FCHMODAT2: c_long = 452;
const FUTEX_WAKE: c_long = 454;
const FUTEX_WAIT: c_long = 455;
const FUTEX_REQUEUE: c_long = 456;
const MSEAL: c_long = 462;
const SETXATTRAT: c_long = 463;
const GETXATTRAT: c_long = 464;
const LISTXATTRAT: c_long = 465;
const REMOVEXATTRAT: c_long = 466;

/// More, for programs that sandbox their own children: all of it works only in a user namespace that
/// the program has made itself, because the box's own one has no capability left.
pub(super) const ALLOWED_ADVANCED: &[c_long] = &[
    libc::SYS_clone,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Allowed whatever their arguments.
pub(super) const ALLOWED: &[c_long] = &[
    // Files: reading and writing.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_readahead,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    CACHESTAT,
    // Files: names, attributes, directories. Devices are made by nobody: mknod makes pipes.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_readlinkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_name_to_handle_at,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    GETXATTRAT,
    LISTXATTRAT,
    REMOVEXATTRAT,
    // Files: being told of changes. (fanotify watches whole file systems: not for a box.)
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Kernel asynchronous I/O, the old kind, that databases use.
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
    // Memory. (userfaultfd lets a program stop the kernel in mid-copy: it is in no list.)
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_remap_file_pages,
    libc::SYS_memfd_create,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_membarrier,
    libc::SYS_get_mempolicy,
    libc::SYS_process_mrelease,
    MSEAL,
    // Processes: life and death.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    // Processes: looking into one's own. The kernel allows it for the box's own processes only; the
    // runner is in another pid namespace and the first process is not dumpable. Debuggers need it.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    // Processes: who and what they are. Changing ids succeeds for the one id that exists.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_prctl,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    // Scheduling, within what the cgroup gives.
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getattr,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getparam,
    libc::SYS_sched_setparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_getcpu,
    // Threads and their signals.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    FUTEX_WAKE,
    FUTEX_WAIT,
    FUTEX_REQUEUE,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    libc::SYS_restart_syscall,
    // Time. Setting the clock needs a capability that nobody here has, so it is in no list.
    libc::SYS_gettimeofday,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // Waiting for descriptors.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    // Sockets, once made.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    // System V and POSIX IPC: the box has its own namespace of it.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    // Confining oneself further.
    libc::SYS_seccomp,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    // Chance.
    libc::SYS_getrandom,
    // The older forms of the above, which only this architecture has.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_create,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_eventfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_signalfd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getpgrp,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_alarm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    // The C library's shadow stacks, where the processor has them.
    #[cfg(target_arch = "x86_64")]
    453, // map_shadow_stack
    // Speed-ups of probes that a tracer puts into a program; the kernel calls them on its behalf.
    #[cfg(target_arch = "x86_64")]
    335, // uretprobe
];
