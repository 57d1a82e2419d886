//! The kernel calls that rustix does not have, each behind a safe signature.
#![expect(
    unsafe_code,
    reason = "the kernel's namespaces, loop devices and filters have no safe wrapper"
)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::mount::MountAttrFlags;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn check_int(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Which side of [`fork_into`] this is.
pub(super) enum Forked {
    /// The new process.
    Child,
    /// The caller, with the child's pid and pidfd.
    Parent(i32, OwnedFd),
}

/// Forks into new namespaces and, if given, into a cgroup of version 2.
///
/// The caller must be single-threaded, unless the child only makes system calls.
pub(super) fn fork_into(namespaces: i32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: i32 = -1;
    // SAFETY: all-zero is a valid clone_args: no flags, no stack, no tls.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (namespaces as u64) | libc::CLONE_PIDFD as u64;
    args.pidfd = &raw mut pidfd as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM this is a fork: the child gets its own copy of everything. A lock held
    // by a thread that the child lacks could only block it, and the callers see to it that there is
    // none or that the child takes none. `args` and `pidfd` outlive the call.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw mut args,
            size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    // SAFETY: CLONE_PIDFD made the kernel store a fresh descriptor there, owned by nobody else.
    Ok(Forked::Parent(pid as i32, unsafe {
        OwnedFd::from_raw_fd(pidfd)
    }))
}

/// Leaves the process at once, running nothing of it.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no precondition.
    unsafe { libc::_exit(code) }
}

const STUB_STACK: usize = 16 << 10;

/// A process that does nothing but be in a user namespace of its own, until killed.
pub(super) struct Stub {
    pub(super) pid: i32,
    // The stub runs on it, so it lives as long as the stub.
    _stack: Box<[u128]>,
}

impl Stub {
    /// Starts one. It shares the caller's memory, which makes it cheap, and touches none but its stack.
    pub(super) fn start() -> io::Result<Self> {
        extern "C" fn wait_for_the_end(_: *mut libc::c_void) -> libc::c_int {
            loop {
                // SAFETY: waits for no descriptor and no time. It sets errno, which the caller shares,
                // only on return, and it returns only for a signal with a handler, which nobody sends.
                unsafe { libc::syscall(libc::SYS_ppoll, 0, 0, 0, 0) };
            }
        }
        let mut stack = vec![0u128; STUB_STACK / size_of::<u128>()].into_boxed_slice();
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_NEWUSER | libc::SIGCHLD;
        // SAFETY: the stack is aligned, large enough for one frame, and outlives the process, which
        // `Drop` ends and reaps. The function neither returns nor touches shared state.
        let pid = unsafe { libc::clone(wait_for_the_end, top.cast(), flags, std::ptr::null_mut()) };
        check_int(pid)?;
        Ok(Self { pid, _stack: stack })
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        // SAFETY: the pid is our unreaped child, so it cannot belong to another process; waitpid
        // takes a null status.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, std::ptr::null_mut(), 0) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
        }
    }
}

/// A program to replace a new process by, prepared so that nothing has to be allocated on the way.
pub(super) struct Exec<'a> {
    /// Paths to try, in order.
    pub(super) candidates: &'a [CString],
    pub(super) argv: &'a [CString],
    pub(super) env: &'a [CString],
    pub(super) cwd: &'a CStr,
    /// What becomes 0, 1 and 2; each above 2 and closed on exec.
    pub(super) stdio: [BorrowedFd<'a>; 3],
}

/// How far an [`execute`] came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExecStage {
    Fork,
    Directory,
    Exec,
}

const SPAWN_STACK: usize = 64 << 10;

/// Starts a program in a session of its own; returns its pid once it runs.
///
/// # Errors
/// What failed, with its errno; then there is no process left.
pub(super) fn execute(exec: &Exec<'_>) -> Result<i32, (ExecStage, i32)> {
    struct Shared<'a> {
        exec: &'a Exec<'a>,
        argv: Vec<*const libc::c_char>,
        env: Vec<*const libc::c_char>,
        failure: Option<(ExecStage, i32)>,
    }
    extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the pointer is the parent's `shared`, and the parent is suspended until exec or
        // exit (CLONE_VFORK), so this is the only reference in use.
        let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
        // SAFETY: argv and env are null-terminated arrays of strings that outlive this process's
        // share of the memory. Only raw system calls are made and nothing is allocated.
        let failure = unsafe { become_program(shared.exec, &shared.argv, &shared.env) };
        shared.failure = Some(failure);
        exit_now(127)
    }
    let pointers = |strings: &[CString]| {
        let mut all: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        all.push(std::ptr::null());
        all
    };
    let mut shared = Shared {
        exec,
        argv: pointers(exec.argv),
        env: pointers(exec.env),
        failure: None,
    };
    let mut stack = vec![0u128; SPAWN_STACK / size_of::<u128>()].into_boxed_slice();
    let top = stack.as_mut_ptr_range().end;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK suspends this thread, the only one, until the child has left this memory,
    // so stack and `shared` outlive its use of them.
    let pid = unsafe { libc::clone(child, top.cast(), flags, (&raw mut shared).cast()) };
    if pid < 0 {
        return Err((ExecStage::Fork, errno()));
    }
    match shared.failure {
        None => Ok(pid),
        Some(failure) => {
            // SAFETY: the pid is our unreaped child, which has exited.
            while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } < 0
                && errno() == libc::EINTR
            {}
            Err(failure)
        }
    }
}

/// Runs in the new process; returns only if it could not become the program.
///
/// # Safety
/// `argv` and `env` must be null-terminated arrays of valid strings.
unsafe fn become_program(
    exec: &Exec<'_>,
    argv: &[*const libc::c_char],
    env: &[*const libc::c_char],
) -> (ExecStage, i32) {
    // SAFETY: plain system calls on descriptors and strings that are valid; the signal set is
    // initialised by sigemptyset before it is read.
    unsafe {
        libc::setsid();
        for (target, fd) in exec.stdio.iter().enumerate() {
            if libc::dup2(fd.as_raw_fd(), target as i32) < 0 {
                return (ExecStage::Fork, errno());
            }
        }
        // Everything is closed on exec already; this holds if something forgot to say so.
        libc::syscall(
            libc::SYS_close_range,
            3u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if libc::chdir(exec.cwd.as_ptr()) != 0 {
            return (ExecStage::Directory, errno());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        let mut failure = libc::ENOENT;
        for candidate in exec.candidates {
            libc::execve(candidate.as_ptr(), argv.as_ptr(), env.as_ptr());
            match errno() {
                libc::ENOENT | libc::ENOTDIR => {}
                // As execvp: go on looking, but say so if nothing else is found.
                libc::EACCES => failure = libc::EACCES,
                other => return (ExecStage::Exec, other),
            }
        }
        (ExecStage::Exec, failure)
    }
}

fn errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Changes what a mount, and with `recursive` everything below it, allows.
pub(super) fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    attributes: MountAttrFlags,
    user_namespace: Option<BorrowedFd<'_>>,
    recursive: bool,
) -> io::Result<()> {
    // SAFETY: all-zero is a valid mount_attr: nothing set, nothing cleared.
    let mut attr: libc::mount_attr = unsafe { std::mem::zeroed() };
    attr.attr_set = attributes.bits().into();
    if let Some(namespace) = user_namespace {
        attr.attr_set |= libc::MOUNT_ATTR_IDMAP;
        attr.userns_fd = namespace.as_raw_fd() as u64;
    }
    let mut flags = libc::AT_EMPTY_PATH;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: path is a valid string and attr a valid structure of the size given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Puts a filter on this process and on all that it starts.
pub(super) fn install_seccomp(program: &[libc::sock_filter]) -> io::Result<()> {
    let fprog = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: fprog points to `len` instructions that live until the call returns; the kernel copies
    // and verifies them.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const fprog,
        )
    })?;
    Ok(())
}

/// Whether the kernel knows this seccomp action.
pub(super) fn has_seccomp_action(action: u32) -> bool {
    // SAFETY: the call only reads the action.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    answer == 0
}

/// Gives up every capability that an exec could bring back.
pub(super) fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..64 {
        // SAFETY: prctl with plain numbers. The first number that is no capability ends the list.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if dropped != 0 {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::EINVAL) {
                Ok(())
            } else {
                Err(error)
            };
        }
    }
    Ok(())
}

/// Leaves the session keyring of whoever started the runner.
pub(super) fn join_new_keyring() {
    const KEYCTL_JOIN_SESSION_KEYRING: i32 = 1;
    // SAFETY: a null name asks for an anonymous keyring. Without keys in the kernel there is none to
    // leave, so a failure says nothing.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0) };
}

/// Makes file accesses of this thread count as those of the given owner.
pub(super) fn set_file_owner(uid: u32, gid: u32) {
    // SAFETY: both calls take plain numbers; they cannot fail for a process that may change ids, and
    // for another they change nothing. The group goes first, while changing it is still allowed.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
    }
}

/// Sets all signals to their default action, blocks them, and returns where SIGCHLD is told instead.
pub(super) fn take_signals() -> io::Result<OwnedFd> {
    // SAFETY: the sets are initialised by sigfillset and sigemptyset; signal() with SIG_DFL is
    // refused for two signals and harmless for the rest.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut children: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut children);
        libc::sigaddset(&raw mut children, libc::SIGCHLD);
        let fd = libc::signalfd(
            -1,
            &raw const children,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        );
        check_int(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// How a child ended.
pub(super) struct Ended {
    pub(super) pid: i32,
    pub(super) signaled: bool,
    /// The exit code or the signal.
    pub(super) value: i32,
}

/// Reaps one child, if one has ended.
pub(super) fn reap() -> Option<Ended> {
    let mut status = 0;
    // SAFETY: status is writable for the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then(|| {
        let signaled = libc::WIFSIGNALED(status);
        let value = if signaled {
            libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        };
        Ended {
            pid,
            signaled,
            value,
        }
    })
}

/// Sends any signal, by number, to a process, a group (negative) or all (-1).
pub(super) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes plain numbers.
    let result = unsafe { libc::kill(pid, signal) };
    check_int(result)?;
    Ok(())
}

/// Brings the loopback interface of this network namespace up.
pub(super) fn loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all-zero is a valid ifreq; the name is shorter than its field and null-terminated.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is a valid ifreq with its flags set.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    };
    check_int(result)?;
    Ok(())
}

/// Points 0, 1 and 2 at something else.
pub(super) fn replace_stdio(by: BorrowedFd<'_>) -> io::Result<()> {
    for standard in 0..3 {
        // SAFETY: dup2 on valid descriptors; nobody owns the standard ones.
        let result = unsafe { libc::dup2(by.as_raw_fd(), standard) };
        check_int(result)?;
    }
    Ok(())
}

/// Shows this process, and all that it starts, its present cgroups as the topmost ones.
pub(super) fn unshare_cgroup() -> io::Result<()> {
    // SAFETY: a new cgroup namespace changes nothing that other code relies on.
    let result = unsafe { libc::unshare(libc::CLONE_NEWCGROUP) };
    check_int(result)?;
    Ok(())
}

/// Closes every descriptor above 2 but these.
///
/// Only for a process that never again drops an owned descriptor that it inherited.
pub(super) fn close_all_but(keep: &[BorrowedFd<'_>]) {
    let mut keep: Vec<u32> = keep.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    keep.sort_unstable();
    let mut from = 3;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if from < fd {
            let last = if fd == u32::MAX { fd } else { fd - 1 };
            // SAFETY: whoever owned these descriptors is in the parent, or is never dropped here.
            unsafe { libc::syscall(libc::SYS_close_range, from, last, 0) };
        }
        from = from.max(fd.saturating_add(1));
    }
}

/// Writes over the command line that `ps` shows for this process.
pub(super) fn rename_process(name: &CStr) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return;
    };
    // Fields after the parenthesised name start with the third; 48 and 49 bound the arguments.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |number: usize| {
        after_name
            .split_whitespace()
            .nth(number - 3)
            .and_then(|text| text.parse::<usize>().ok())
    };
    let (Some(start), Some(end)) = (field(48), field(49)) else {
        return;
    };
    if start == 0 || end <= start {
        return;
    }
    // SAFETY: the kernel says that these addresses hold this process's arguments, on its own initial
    // stack, which is writable; the process is single-threaded and does not read them again. prctl
    // gets a valid string.
    unsafe {
        let area = std::slice::from_raw_parts_mut(start as *mut u8, end - start);
        area.fill(0);
        for (place, byte) in area.iter_mut().zip(name.to_bytes()) {
            *place = *byte;
        }
        libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0);
    }
}

const LOOP_CTL_GET_FREE: u64 = 0x4C82;
const LOOP_CONFIGURE: u64 = 0x4C0A;
const LOOP_GET_STATUS64: u64 = 0x4C05;
const LOOP_CLR_FD: u64 = 0x4C01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// The number of a loop device that was free a moment ago.
pub(super) fn loop_get_free(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
    Ok(check_int(result)? as u32)
}

/// Binds a loop device to a file until its last user is gone.
pub(super) fn loop_configure(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all-zero is a valid loop_config: defaults throughout.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = file.as_raw_fd() as u32;
    config.info.flags = LO_FLAGS_AUTOCLEAR;
    // SAFETY: config has the layout that the request reads.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    check_int(result)?;
    Ok(())
}

/// Device and inode of the file behind a bound loop device.
pub(super) fn loop_backing(device: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    // SAFETY: all-zero is a valid loop_info64, which the request overwrites.
    let mut info: LoopInfo = unsafe { std::mem::zeroed() };
    // SAFETY: info has the layout that the request writes.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) };
    check_int(result)?;
    Ok((info.device, info.inode))
}

/// Lets go of the file behind a loop device, now or when its last user is gone.
pub(super) fn loop_clear(device: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes no argument.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD as _) };
    check_int(result)?;
    Ok(())
}
