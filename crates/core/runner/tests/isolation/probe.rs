//! What runs inside a box: makes one system call after another that no box should need, and says what
//! the kernel answered.
#![expect(
    unsafe_code,
    reason = "the calls that a box must not make have no safe wrapper"
)]

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

use libc::c_long;

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let rest: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match rest[..] {
        ["calls"] => report(&calls()),
        ["network"] => report(&network()),
        ["ways"] => report(&ways()),
        ["routing"] => report(&routing()),
        ["say", text] => say_to_proxy(text),
        ["abstract-listen"] => listen_abstract(),
        ["abstract-connect"] => connect_abstract(),
        ["unix-connect", path] => said(UnixStream::connect(path).is_ok()),
        ["nested"] => report(&nested()),
        _ => return ExitCode::from(64),
    }
    ExitCode::SUCCESS
}

type Answers = BTreeMap<&'static str, i32>;

/// One line per call: its name and errno, 0 if it succeeded.
fn report(answers: &Answers) {
    let mut out = io::stdout().lock();
    for (name, errno) in answers {
        writeln!(out, "{name} {errno}").expect("writes");
    }
}

fn call(number: c_long, arguments: [usize; 6]) -> i32 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: every caller passes arguments that are valid for the call, or that the kernel refuses
    // before it looks at them.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 {
        io::Error::last_os_error().raw_os_error().unwrap_or(-1)
    } else {
        0
    }
}

/// In a process of its own, so that a success changes nothing here; 1000 plus the signal if it dies.
fn call_apart(number: c_long, arguments: [usize; 6]) -> i32 {
    apart(|| call(number, arguments))
}

fn apart(work: impl FnOnce() -> i32) -> i32 {
    let (mut ours, mut theirs) = UnixStream::pair().expect("makes a pair");
    // SAFETY: this process has one thread, so the child can go on as if it were this one.
    match unsafe { libc::fork() } {
        -1 => -2,
        0 => {
            let answer = work();
            theirs.write_all(&answer.to_le_bytes()).expect("writes");
            // SAFETY: ends the child without running anything of its parent's.
            unsafe { libc::_exit(0) }
        }
        pid => {
            drop(theirs);
            let mut bytes = [0; 4];
            let said = ours.read_exact(&mut bytes);
            let mut status = 0;
            // SAFETY: the pid is this process's child and status is writable.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            match said {
                Ok(()) => i32::from_le_bytes(bytes),
                Err(_) => 1000 + libc::WTERMSIG(status),
            }
        }
    }
}

fn calls() -> Answers {
    let text = |text: &'static CStr| text.as_ptr() as usize;
    let none = [0usize; 6];
    let mut all = Answers::new();
    let mut apart = |name, number, arguments| {
        all.insert(name, call_apart(number, arguments));
    };
    let flag = |flag: i32| [flag as usize, 0, 0, 0, 0, 0];
    apart("unshare_user", libc::SYS_unshare, flag(libc::CLONE_NEWUSER));
    apart("unshare_mount", libc::SYS_unshare, flag(libc::CLONE_NEWNS));
    apart("unshare_files", libc::SYS_unshare, flag(libc::CLONE_FILES));
    apart(
        "clone_user",
        libc::SYS_clone,
        flag(libc::CLONE_NEWUSER | libc::SIGCHLD),
    );
    apart("clone3", libc::SYS_clone3, none);
    apart(
        "setns",
        libc::SYS_setns,
        [open("/proc/self/ns/uts"), 0, 0, 0, 0, 0],
    );
    let tmpfs = text(c"tmpfs");
    apart(
        "mount",
        libc::SYS_mount,
        [tmpfs, text(c"/tmp"), tmpfs, 0, 0, 0],
    );
    apart("umount", libc::SYS_umount2, [text(c"/tmp"), 0, 0, 0, 0, 0]);
    apart(
        "pivot_root",
        libc::SYS_pivot_root,
        [text(c"/"), text(c"/tmp"), 0, 0, 0, 0],
    );
    apart("chroot", libc::SYS_chroot, [text(c"/tmp"), 0, 0, 0, 0, 0]);
    apart(
        "open_tree",
        libc::SYS_open_tree,
        [usize::MAX, text(c"/usr"), 1, 0, 0, 0],
    );
    apart("fsopen", libc::SYS_fsopen, [tmpfs, 0, 0, 0, 0, 0]);
    apart("mount_setattr", libc::SYS_mount_setattr, none);
    apart("io_uring_setup", libc::SYS_io_uring_setup, none);
    apart("bpf", libc::SYS_bpf, none);
    apart("perf_event_open", libc::SYS_perf_event_open, none);
    apart("userfaultfd", libc::SYS_userfaultfd, none);
    apart("keyctl", libc::SYS_keyctl, none);
    apart("add_key", libc::SYS_add_key, none);
    apart("request_key", libc::SYS_request_key, none);
    apart("kexec_load", libc::SYS_kexec_load, none);
    apart("init_module", libc::SYS_init_module, none);
    apart("finit_module", libc::SYS_finit_module, none);
    apart("open_by_handle_at", libc::SYS_open_by_handle_at, none);
    apart("reboot", libc::SYS_reboot, none);
    apart("syslog", libc::SYS_syslog, [3, 0, 0, 0, 0, 0]);
    apart("swapon", libc::SYS_swapon, none);
    apart("clock_settime", libc::SYS_clock_settime, none);
    apart(
        "sethostname",
        libc::SYS_sethostname,
        [text(c"x"), 1, 0, 0, 0, 0],
    );
    apart("setuid_root", libc::SYS_setuid, none);
    apart("setgroups", libc::SYS_setgroups, none);
    let device = libc::makedev(1, 1) as usize;
    let mode = (libc::S_IFCHR | 0o600) as usize;
    apart(
        "mknod",
        libc::SYS_mknodat,
        [usize::MAX, text(c"/tmp/mem"), mode, device, 0, 0],
    );
    apart(
        "personality",
        libc::SYS_personality,
        [0x0040_0000, 0, 0, 0, 0, 0],
    );
    apart(
        "ptrace_first",
        libc::SYS_ptrace,
        [libc::PTRACE_ATTACH as usize, 1, 0, 0, 0, 0],
    );
    apart(
        "pidfd_getfd_first",
        libc::SYS_pidfd_getfd,
        [pidfd_of_first(), 0, 0, 0, 0, 0],
    );
    let limit = [0u64; 2];
    let limit = &raw const limit as usize;
    let fsize = libc::RLIMIT_FSIZE as usize;
    apart(
        "prlimit_first",
        libc::SYS_prlimit64,
        [1, fsize, limit, 0, 0, 0],
    );
    apart(
        "kill_first",
        libc::SYS_kill,
        [1, libc::SIGKILL as usize, 0, 0, 0, 0],
    );
    apart(
        "stop_first",
        libc::SYS_kill,
        [1, libc::SIGSTOP as usize, 0, 0, 0, 0],
    );
    apart("newer_than_all", 5000, none);
    #[cfg(target_arch = "x86_64")]
    apart("x32", 0x4000_0000 + libc::SYS_getpid, none);
    for (name, family, kind, protocol) in [
        ("socket_unix", libc::AF_UNIX, libc::SOCK_STREAM, 0),
        ("socket_tcp", libc::AF_INET, libc::SOCK_STREAM, 0),
        ("socket_udp6", libc::AF_INET6, libc::SOCK_DGRAM, 0),
        (
            "socket_route",
            libc::AF_NETLINK,
            libc::SOCK_RAW,
            libc::NETLINK_ROUTE,
        ),
        (
            "socket_netfilter",
            libc::AF_NETLINK,
            libc::SOCK_RAW,
            libc::NETLINK_NETFILTER,
        ),
        (
            "socket_raw",
            libc::AF_INET,
            libc::SOCK_RAW,
            libc::IPPROTO_ICMP,
        ),
        ("socket_packet", libc::AF_PACKET, libc::SOCK_RAW, 0x300),
        ("socket_vsock", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
        ("socket_alg", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
    ] {
        let arguments = [family as usize, kind as usize, protocol as usize, 0, 0, 0];
        apart(name, libc::SYS_socket, arguments);
    }
    all.insert("tiocsti", terminal_input());
    #[cfg(target_arch = "x86_64")]
    all.insert("i386", i386());
    all
}

fn open(path: &str) -> usize {
    let file = std::fs::File::open(path).expect("opens");
    let fd = file.as_raw_fd() as usize;
    std::mem::forget(file);
    fd
}

fn pidfd_of_first() -> usize {
    // SAFETY: plain numbers.
    (unsafe { libc::syscall(libc::SYS_pidfd_open, 1, 0) }) as usize
}

/// Types into a terminal of one's own.
fn terminal_input() -> i32 {
    let terminal = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/ptmx");
    let terminal = terminal.expect("there is a terminal");
    let letter = b'x';
    // SAFETY: TIOCSTI reads one byte.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const letter) };
    if result < 0 {
        io::Error::last_os_error().raw_os_error().unwrap_or(-1)
    } else {
        0
    }
}

/// Asks for the pid in the way of a 32-bit program.
#[cfg(target_arch = "x86_64")]
fn i386() -> i32 {
    apart(|| {
        let number: u64 = 20;
        let result: u64;
        // SAFETY: getpid takes no argument; the kernel saves all registers but rax on this entry,
        // except r8 to r11, which are named.
        unsafe {
            std::arch::asm!(
                "int 0x80", inlateout("rax") number => result,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        result as i32
    })
}

fn network() -> Answers {
    let errno = |result: io::Result<()>| {
        result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)
    };
    let short = Duration::from_secs(2);
    let tcp = |address: &str| {
        let address = address.parse().expect("is an address");
        errno(TcpStream::connect_timeout(&address, short).map(drop))
    };
    let udp = |address: &str| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("binds");
        errno(socket.send_to(b"x", address).map(drop))
    };
    let own = TcpListener::bind("127.0.0.1:0").expect("binds");
    let own = own.local_addr().expect("is bound").to_string();
    Answers::from([
        ("own", tcp(&own)),
        ("proxy", tcp("127.0.0.1:3128")),
        ("private", tcp("10.0.0.1:80")),
        ("public", tcp("192.0.2.1:443")),
        ("link_local", tcp("169.254.169.254:80")),
        ("public6", tcp("[2001:db8::1]:443")),
        ("name_server", udp("192.0.2.53:53")),
    ])
}

/// Every way out of an ordinary machine. The addresses are for documentation, or nobody's.
fn ways() -> Answers {
    let errno = |result: io::Result<()>| {
        result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0)
    };
    let short = Duration::from_secs(2);
    let tcp = |address: &str| {
        let address = address.parse().expect("is an address");
        errno(TcpStream::connect_timeout(&address, short).map(drop))
    };
    let udp = |from: &str, address: &str| {
        let socket = UdpSocket::bind(from).expect("binds");
        errno(socket.send_to(b"x", address).map(drop))
    };
    let socket = |family: i32, kind: i32, protocol: i32| {
        let arguments = [family as usize, kind as usize, protocol as usize, 0, 0, 0];
        call(libc::SYS_socket, arguments)
    };
    Answers::from([
        ("https", tcp("192.0.2.1:443")),
        ("http", tcp("192.0.2.1:80")),
        ("ssh", tcp("192.0.2.1:22")),
        ("smtp", tcp("192.0.2.1:25")),
        ("redis", tcp("192.0.2.1:6379")),
        ("https6", tcp("[2001:db8::1]:443")),
        ("quic", udp("0.0.0.0:0", "192.0.2.1:443")),
        ("quic6", udp("[::]:0", "[2001:db8::1]:443")),
        ("dns", udp("0.0.0.0:0", "192.0.2.53:53")),
        ("dns_tcp", tcp("192.0.2.53:53")),
        ("dns_tls", tcp("192.0.2.53:853")),
        ("multicast_dns", udp("0.0.0.0:0", "224.0.0.251:5353")),
        ("metadata", tcp("169.254.169.254:80")),
        ("metadata6", tcp("[fd00:ec2::254]:80")),
        ("gateway", tcp("10.0.2.2:80")),
        ("mapped", tcp("[::ffff:192.0.2.1]:443")),
        ("translated", tcp("[64:ff9b::192.0.2.1]:443")),
        ("broadcast", udp("0.0.0.0:0", "255.255.255.255:67")),
        (
            "raw_icmp",
            socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP),
        ),
        ("packet", socket(libc::AF_PACKET, libc::SOCK_RAW, 0x300)),
        ("vsock", socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)),
    ])
}

/// Asks the kernel by rtnetlink(7) to change the network: what an administrator of it could.
fn routing() -> Answers {
    const RTM_NEWLINK: u16 = 16;
    const RTM_NEWADDR: u16 = 20;
    const RTM_NEWROUTE: u16 = 24;
    /// NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE.
    const FLAGS: u16 = 1 | 4 | 0x400;
    let ask = |kind: u16, body: &[u8]| {
        let mut message = Vec::new();
        let length = u32::try_from(16 + body.len()).expect("it is short");
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(FLAGS.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        // SAFETY: plain numbers; the descriptor is this function's own.
        let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) };
        assert!(socket >= 0, "routing can be asked about");
        let mut answer = [0_u8; 512];
        // SAFETY: both buffers are as long as is said, and live through the calls.
        let got = unsafe {
            libc::send(socket, message.as_ptr().cast(), message.len(), 0);
            libc::recv(socket, answer.as_mut_ptr().cast(), answer.len(), 0)
        };
        // SAFETY: closes the function's own descriptor.
        unsafe { libc::close(socket) };
        assert!(got >= 20, "no answer");
        // An acknowledgement is an error message with the code 0 (netlink(7)).
        -i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes"))
    };
    let mut link = vec![0; 16];
    // Interface 1, the loopback: IFF_UP off.
    link[4..8].copy_from_slice(&1_i32.to_ne_bytes());
    link[12..16].copy_from_slice(&1_u32.to_ne_bytes());
    let address = [libc::AF_INET as u8, 24, 0, 0, 1, 0, 0, 0];
    let route = [libc::AF_INET as u8, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    Answers::from([
        ("link_down", ask(RTM_NEWLINK, &link)),
        ("address", ask(RTM_NEWADDR, &address)),
        ("default_route", ask(RTM_NEWROUTE, &route)),
    ])
}

fn say_to_proxy(text: &str) {
    let mut stream = TcpStream::connect("127.0.0.1:3128").expect("the listener is there");
    stream.write_all(text.as_bytes()).expect("writes");
}

fn abstract_address() -> SocketAddr {
    SocketAddr::from_abstract_name(b"astrabox-isolation-test").expect("is an address")
}

fn listen_abstract() {
    let listener = UnixListener::bind_addr(&abstract_address()).expect("binds");
    println_now("ready");
    let _ = listener.accept();
}

fn connect_abstract() {
    said(UnixStream::connect_addr(&abstract_address()).is_ok());
}

fn said(connected: bool) {
    println_now(if connected { "connected" } else { "alone" });
}

fn println_now(text: &str) {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .expect("writes");
}

/// What a program can do that has made itself a user namespace, at the level that allows that.
fn nested() -> Answers {
    let mut all = Answers::new();
    let text = |text: &'static CStr| text.as_ptr() as usize;
    let new = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC;
    all.insert(
        "unshare",
        call(libc::SYS_unshare, [new as usize, 0, 0, 0, 0, 0]),
    );
    // As root of its own namespace, so that what fails does not fail for want of a user.
    for (file, map) in [
        ("setgroups", "deny"),
        ("uid_map", "0 1000 1"),
        ("gid_map", "0 1000 1"),
    ] {
        std::fs::write(format!("/proc/self/{file}"), map).expect("maps its own user");
    }
    let tmpfs = text(c"tmpfs");
    all.insert(
        "mount_own",
        call(libc::SYS_mount, [tmpfs, text(c"/tmp"), tmpfs, 0, 0, 0]),
    );
    // What covers the host's own programs must not come off, nor the read-only base become writable.
    all.insert(
        "uncover",
        call(libc::SYS_umount2, [text(c"/usr/local"), 2, 0, 0, 0, 0]),
    );
    let remount = (libc::MS_REMOUNT | libc::MS_BIND) as usize;
    all.insert(
        "rewrite_usr",
        call(libc::SYS_mount, [0, text(c"/usr"), 0, remount, 0, 0]),
    );
    let bind = libc::MS_BIND as usize;
    all.insert(
        "bind_usr",
        call(
            libc::SYS_mount,
            [text(c"/usr"), text(c"/tmp"), 0, bind, 0, 0],
        ),
    );
    let mode = (libc::S_IFCHR | 0o600) as usize;
    let device = libc::makedev(1, 1) as usize;
    all.insert(
        "mknod",
        call(
            libc::SYS_mknodat,
            [usize::MAX, text(c"/tmp/m"), mode, device, 0, 0],
        ),
    );
    all.insert(
        "ptrace_first",
        call(
            libc::SYS_ptrace,
            [libc::PTRACE_ATTACH as usize, 1, 0, 0, 0, 0],
        ),
    );
    all.insert("setns_first", {
        match std::fs::File::open("/proc/1/ns/net") {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(-1),
        }
    });
    all.insert("bpf", call(libc::SYS_bpf, [0; 6]));
    let vsock = [
        libc::AF_VSOCK as usize,
        libc::SOCK_STREAM as usize,
        0,
        0,
        0,
        0,
    ];
    all.insert("socket_vsock", call(libc::SYS_socket, vsock));
    all
}
