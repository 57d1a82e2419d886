//! The test's side: makes specs, talks to drivers, and looks at the host.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use astrabox_runner_core::isolation::{
    Base, BoxSpec, Limits, PermissionLevel, Volume, destroy_leftovers, prepare_loop_image,
};
use tempfile::TempDir;

use crate::Needs;
use crate::protocol::{Answer, Ask, Ended, Numbers};

/// An ordinary user, for the tests without root.
const SOMEBODY: u32 = 54_321;

pub(crate) const IMAGE: &str = "/opt/astrabox/image";
pub(crate) const PROBE: &str = "/opt/astrabox/image/probe";

/// Large enough for a journal, as real ones have.
pub(crate) const VOLUME_BYTES: u64 = 64 << 20;

pub(crate) fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why a test cannot run here, if it cannot.
pub(crate) fn lacks(needs: Needs) -> Option<String> {
    let report = astrabox_runner_core::isolation::probe_host();
    let missing = |names: &[&str]| {
        let bad = report
            .checks
            .iter()
            .find(|check| names.contains(&&*check.name) && !check.ok);
        bad.map(|check| format!("{}: {}; {}", check.name, check.detail, check.remedy))
    };
    match needs {
        Needs::Root if !am_root() => Some("needs root".into()),
        Needs::Root => missing(&[
            "kernel",
            "namespaces",
            "seccomp",
            "loop_devices",
            "mkfs_ext4",
            "cgroup_memory",
            "cgroup_pids",
            "cgroup_cpu",
            "cgroup_freezer",
        ]),
        Needs::Rootless => missing(&["kernel", "namespaces", "seccomp"]),
    }
}

/// The directory that all tests of this process share.
fn shared() -> &'static Path {
    static SHARED: OnceLock<PathBuf> = OnceLock::new();
    SHARED.get_or_init(|| {
        let dir = TempDir::with_prefix("astrabox-isolation-")
            .expect("makes a directory")
            .keep();
        readable(&dir);
        fs::create_dir(dir.join("image")).expect("makes a directory");
        let own = std::env::current_exe().expect("knows itself");
        fs::copy(own, dir.join("image/probe")).expect("copies itself");
        dir
    })
}

/// A tree with this program in it, that everybody can read: image, and driver on the host.
pub(crate) fn image() -> PathBuf {
    shared().join("image")
}

/// To be called when all tests are over.
pub(crate) fn remove_shared() {
    fs::remove_dir_all(shared()).expect("removes the shared directory");
}

fn readable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("sets permissions");
}

/// Numbers that no other process and no other test has.
fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn root_id() -> String {
    format!("test-{}", std::process::id())
}

/// A box to be, and the directory that it has on the host.
pub(crate) struct Plan {
    pub(crate) dir: TempDir,
    pub(crate) spec: BoxSpec,
    pub(crate) rootless: bool,
    /// A cgroup to make the box from, instead of the test's own.
    pub(crate) group: Option<PathBuf>,
}

impl Plan {
    pub(crate) fn root() -> Self {
        Self::new(false)
    }

    pub(crate) fn rootless() -> Self {
        Self::new(true)
    }

    fn new(rootless: bool) -> Self {
        let dir = TempDir::with_prefix("astrabox-box-").expect("makes a directory");
        readable(dir.path());
        let run_dir = dir.path().join("run");
        fs::create_dir(&run_dir).expect("makes a directory");
        let volume = if rootless {
            let path = dir.path().join("volume");
            fs::create_dir(&path).expect("makes a directory");
            Volume::Directory { path }
        } else {
            let path = dir.path().join("volume.ext4");
            prepare_loop_image(&shared().join("cache"), &path, VOLUME_BYTES)
                .expect("makes an image");
            Volume::LoopImage { path }
        };
        if rootless && am_root() {
            for path in [&run_dir, volume.path()] {
                std::os::unix::fs::chown(path, Some(SOMEBODY), Some(SOMEBODY)).expect("gives it");
            }
        }
        let number = unique();
        let spec = BoxSpec {
            sandbox_id: format!("box-{number}"),
            root_id: root_id(),
            run_dir,
            base: Base::Host,
            image: Some(image()),
            volume,
            host_uid: 1_990_000_000 + std::process::id() * 64 + number,
            limits: Limits {
                memory_bytes: 128 << 20,
                pids: 64,
                cpu_millis: 2000,
                disk_bytes: VOLUME_BYTES,
                file_bytes: 96 << 20,
            },
            level: PermissionLevel::Default,
            hostname: "testbox".into(),
            egress_port: 3128,
        };
        Self {
            dir,
            spec,
            rootless,
            group: None,
        }
    }

    /// A volume of another size, where the volume is an image.
    pub(crate) fn with_volume_of(mut self, bytes: u64) -> Self {
        if !self.rootless {
            let path = self.dir.path().join("other.ext4");
            prepare_loop_image(&shared().join("cache"), &path, bytes).expect("makes an image");
            self.spec.volume = Volume::LoopImage { path };
            self.spec.limits.disk_bytes = bytes;
        }
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut BoxSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    pub(crate) fn start(self) -> TestBox {
        self.try_start()
            .unwrap_or_else(|failed| panic!("no box: {}", failed.0))
    }

    /// The program that will hold the box, as the user and in the group that it is to have.
    fn driver(&self) -> Command {
        const ENTER: &str = "echo 0 > \"$0/cgroup.procs\" && exec setpriv \"$@\"";
        let program = image().join("probe");
        match &self.group {
            Some(group) => {
                let mut command = Command::new("sh");
                command.args(["-c", ENTER]).arg(group).arg("--clear-groups");
                command
                    .arg(format!("--reuid={SOMEBODY}"))
                    .arg(format!("--regid={SOMEBODY}"));
                command.arg(program);
                command
            }
            None => {
                let mut command = Command::new(program);
                if self.rootless && am_root() {
                    command.uid(SOMEBODY).gid(SOMEBODY);
                }
                command
            }
        }
    }

    /// A box, or why there is none and the plan.
    pub(crate) fn try_start(self) -> Result<TestBox, Box<(String, Self)>> {
        let path = self.dir.path().join("spec.json");
        fs::write(&path, serde_json::to_vec(&self.spec).expect("serialises")).expect("writes");
        let mut command = self.driver();
        command
            .arg("driver")
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut driver = command.spawn().expect("starts the driver");
        let asks = driver.stdin.take().expect("is a pipe");
        let mut answers = BufReader::new(driver.stdout.take().expect("is a pipe"));
        match read_answer(&mut answers) {
            Answer::Created {
                init_pid,
                init_start_time,
                host_owner,
            } => Ok(TestBox {
                plan: self,
                init_pid,
                init_start_time,
                host_owner,
                driver,
                asks,
                answers,
                destroyed: false,
            }),
            Answer::Failed(error) => {
                driver.wait().expect("ends");
                Err(Box::new((error, self)))
            }
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// A group of the unified hierarchy that belongs to an ordinary user, as a service manager gives it.
pub(crate) struct Delegated(PathBuf);

impl Delegated {
    /// None where there is no such hierarchy, or no right to make a group in it.
    pub(crate) fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let name = format!("astrabox-delegated-{}-{}", std::process::id(), unique());
        let dir = Path::new(mount.split(' ').nth(4)?).join(own).join(name);
        fs::create_dir(&dir).ok()?;
        let made = Self(dir);
        for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
            std::os::unix::fs::chown(made.0.join(file), Some(SOMEBODY), Some(SOMEBODY)).ok()?;
        }
        Some(made)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for _ in 0..400 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            watch(Duration::from_millis(5));
        }
    }
}

fn read_answer(answers: &mut BufReader<ChildStdout>) -> Answer {
    let mut line = String::new();
    answers.read_line(&mut line).expect("hears the driver");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

/// A running box. It is destroyed with the test, whatever becomes of the test.
pub(crate) struct TestBox {
    pub(crate) plan: Plan,
    pub(crate) init_pid: i32,
    pub(crate) init_start_time: u64,
    pub(crate) host_owner: (u32, u32),
    driver: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    destroyed: bool,
}

impl TestBox {
    pub(crate) fn ask(&mut self, ask: &Ask) -> Answer {
        let mut line = serde_json::to_vec(ask).expect("serialises");
        line.push(b'\n');
        self.asks.write_all(&line).expect("the driver listens");
        match read_answer(&mut self.answers) {
            Answer::Failed(error) => {
                let ask = format!("{ask:?}");
                panic!("{}: {error}", &ask[..ask.len().min(400)])
            }
            answer => answer,
        }
    }

    /// As [`ask`](Self::ask), where a failure is an answer.
    pub(crate) fn try_ask(&mut self, ask: &Ask) -> Result<Answer, String> {
        let mut line = serde_json::to_vec(ask).expect("serialises");
        line.push(b'\n');
        self.asks.write_all(&line).expect("the driver listens");
        match read_answer(&mut self.answers) {
            Answer::Failed(error) => Err(error),
            answer => Ok(answer),
        }
    }

    pub(crate) fn run(&mut self, argv: &[&str]) -> Ended {
        let argv = argv.iter().map(|arg| (*arg).to_owned()).collect();
        match self.ask(&Ask::Run {
            argv,
            env: Vec::new(),
            cwd: "/workspace".into(),
        }) {
            Answer::Ended(ended) => ended,
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Runs a shell script that has to succeed and returns what it wrote, trimmed.
    pub(crate) fn shell(&mut self, script: &str) -> String {
        let ended = self.run(&["sh", "-c", script]);
        assert_eq!(ended.code, Some(0), "{script}: {ended:?}");
        ended.stdout.trim().to_owned()
    }

    pub(crate) fn start(&mut self, argv: &[&str]) -> (u64, u32) {
        let argv = argv.iter().map(|arg| (*arg).to_owned()).collect();
        match self.ask(&Ask::Start { argv }) {
            Answer::Started { tag, pid } => (tag, pid),
            other => panic!("unexpected {other:?}"),
        }
    }

    pub(crate) fn wait(&mut self, tag: u64) -> Ended {
        match self.ask(&Ask::Wait { tag }) {
            Answer::Ended(ended) => ended,
            other => panic!("unexpected {other:?}"),
        }
    }

    pub(crate) fn stats(&mut self) -> Numbers {
        match self.ask(&Ask::Stats) {
            Answer::Stats(numbers) => numbers,
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Kills the driver as the kernel would for lack of memory: without a word.
    pub(crate) fn kill_driver(&mut self) {
        self.driver.kill().expect("kills the driver");
        self.driver.wait().expect("reaps the driver");
    }

    pub(crate) fn driver_fds(&self) -> usize {
        let dir = format!("/proc/{}/fd", self.driver.id());
        fs::read_dir(dir).expect("looks at the driver").count()
    }

    pub(crate) fn destroy(mut self) -> Plan {
        self.ask(&Ask::Destroy);
        self.driver.wait().expect("the driver ends");
        self.destroyed = true;
        self.leave()
    }

    /// What is left when the box is gone.
    pub(crate) fn leave(mut self) -> Plan {
        self.destroyed = true;
        let empty = Plan {
            dir: TempDir::new().expect("makes a directory"),
            spec: self.plan.spec.clone(),
            rootless: self.plan.rootless,
            group: None,
        };
        std::mem::replace(&mut self.plan, empty)
    }
}

impl Drop for TestBox {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        if !self.destroyed {
            let _ = destroy_leftovers(&self.plan.spec);
        }
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < deadline, "{what} does not come about");
        watch(Duration::from_millis(5));
    }
}

/// Lets time pass, to see that nothing happens or how much of it is used.
#[expect(
    clippy::disallowed_methods,
    reason = "that nothing happens is no condition to wait for"
)]
pub(crate) fn watch(time: Duration) {
    std::thread::sleep(time);
}

/// Says what is not tested and why.
pub(crate) fn skipped(what: &str, reason: &str) {
    // Nobody to tell is no reason to fail.
    let line = format!("skipped {what}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The processes that belong to a host uid.
pub(crate) fn processes_of(uid: u32) -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").expect("lists processes").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let field = |key: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(key));
                line.and_then(|line| line.split_whitespace().next())
            };
            // Who has ended and waits for a parent to notice is no process any more.
            let ended = matches!(field("State:"), None | Some("Z" | "X"));
            !ended && field("Uid:") == Some(&uid.to_string())
        })
        .collect()
}

/// The groups, in any hierarchy, of the boxes of this test process.
pub(crate) fn cgroups_of(sandbox_id: &str) -> Vec<PathBuf> {
    let own = format!("astrabox-{}", root_id());
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("reads the mounts");
    let points = mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4));
    points
        .flat_map(|point| walk(Path::new(point), 4))
        .filter(|dir| dir.parent().is_some_and(|root| root.ends_with(&own)))
        .filter(|dir| dir.ends_with(sandbox_id))
        .collect()
}

fn walk(dir: &Path, depth: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut all = Vec::new();
    for entry in dirs {
        all.push(entry.path());
        if depth > 0 {
            all.extend(walk(&entry.path(), depth - 1));
        }
    }
    all
}

/// Whether a loop device holds a file.
pub(crate) fn is_loop_bound(image: &Path) -> bool {
    let entries = fs::read_dir("/sys/block")
        .expect("lists block devices")
        .flatten();
    let image = image.to_string_lossy().into_owned();
    entries.into_iter().any(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        backing.is_ok_and(|path| path.trim() == image)
    })
}

/// The network namespaces, by number, that some process is in.
pub(crate) fn network_namespaces() -> BTreeSet<String> {
    let entries = fs::read_dir("/proc").expect("lists processes").flatten();
    entries
        .filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn owner_of(path: &Path) -> (u32, u32) {
    let found = fs::symlink_metadata(path).expect("is there");
    (found.uid(), found.gid())
}
