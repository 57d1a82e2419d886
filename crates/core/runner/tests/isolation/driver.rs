//! The process that holds one box, as the runner would, and does what the test asks.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use astrabox_runner_core::isolation::{
    BoxSpec, InitMessage, IsolatedBox, IsolationError, ProcessEnd, SpawnRequest,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::protocol::{Answer, Ask, Ended, Numbers};

const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let spec = std::fs::read(&arguments[0]).expect("reads the spec");
    let spec: BoxSpec = serde_json::from_slice(&spec).expect("understands the spec");
    let made = match IsolatedBox::create(&spec) {
        Ok(made) => made,
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            say(&Answer::Failed(format!(
                "{error}{}",
                source.unwrap_or_default()
            )));
            return ExitCode::FAILURE;
        }
    };
    say(&Answer::Created {
        init_pid: made.init_pid(),
        init_start_time: made.init_start_time(),
        host_owner: made.host_owner(),
    });
    let mut driver = Driver {
        made,
        programs: HashMap::new(),
        next_tag: 1,
    };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let ask: Ask = serde_json::from_str(&line).expect("understands the test");
        if matches!(ask, Ask::Destroy) {
            match driver.made.destroy() {
                Ok(()) => say(&Answer::Done),
                Err(error) => say(&Answer::Failed(error.to_string())),
            }
            return ExitCode::SUCCESS;
        }
        let answer = driver.answer(ask);
        say(&answer.unwrap_or_else(|error| Answer::Failed(error.to_string())));
    }
    // The test is gone; so is the box, when it is dropped.
    ExitCode::SUCCESS
}

fn say(answer: &Answer) {
    let mut line = serde_json::to_vec(answer).expect("serialises");
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)
        .and_then(|()| out.flush())
        .expect("the test listens");
}

struct Program {
    pid: Option<u32>,
    outputs: [Option<OwnedFd>; 2],
    said: [Vec<u8>; 2],
    end: Option<Ended>,
}

struct Driver {
    made: IsolatedBox,
    programs: HashMap<u64, Program>,
    next_tag: u64,
}

impl Driver {
    fn answer(&mut self, ask: Ask) -> Result<Answer, IsolationError> {
        match ask {
            Ask::Run { argv, env, cwd } => {
                let tag = self.start(argv, env, &cwd)?;
                self.wait(tag)
            }
            Ask::Start { argv } => {
                let tag = self.start(argv, Vec::new(), "/workspace")?;
                self.pump(|driver| driver.program(tag).pid.is_some() || driver.ended(tag))?;
                let pid = self.program(tag).pid.unwrap_or(0);
                Ok(Answer::Started { tag, pid })
            }
            Ask::Wait { tag } => self.wait(tag),
            Ask::Signal { pid, signal, group } => {
                self.made.signal(pid, signal, group).map(|()| Answer::Done)
            }
            Ask::Freeze => self.made.freeze().map(|()| Answer::Done),
            Ask::Thaw => self.made.thaw().map(|()| Answer::Done),
            Ask::KillAll => self.made.kill_all().map(|()| Answer::Done),
            Ask::Stats => Ok(Answer::Stats(self.stats())),
            Ask::Posture => Ok(Answer::Posture(Box::new(self.made.posture().clone()))),
            Ask::PollLimits => Ok(Answer::Breach(
                self.made.poll_limits().map(|breach| format!("{breach:?}")),
            )),
            Ask::Accept => self.accept(),
            Ask::Put { path, content } => Ok(self.put(&path, &content)),
            Ask::Destroy => Ok(Answer::Failed("handled by the loop".into())),
        }
    }

    fn start(
        &mut self,
        argv: Vec<String>,
        env: Vec<(String, String)>,
        cwd: &str,
    ) -> Result<u64, IsolationError> {
        let tag = self.next_tag;
        self.next_tag += 1;
        let (out_read, out_write) = pipe_with(PipeFlags::CLOEXEC).expect("makes a pipe");
        let (err_read, err_write) = pipe_with(PipeFlags::CLOEXEC).expect("makes a pipe");
        for fd in [&out_read, &err_read] {
            rustix::io::ioctl_fionbio(fd, true).expect("sets a flag");
        }
        let mut full = vec![("PATH".into(), "/usr/bin:/bin".into())];
        full.extend(
            env.into_iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        self.made.spawn(SpawnRequest {
            tag,
            argv: argv.into_iter().map(Into::into).collect(),
            env: full,
            cwd: cwd.into(),
            stdin: File::open("/dev/null").expect("opens").into(),
            stdout: out_write,
            stderr: err_write,
        })?;
        let outputs = [Some(out_read), Some(err_read)];
        self.programs.insert(
            tag,
            Program {
                pid: None,
                outputs,
                said: Default::default(),
                end: None,
            },
        );
        Ok(tag)
    }

    fn program(&self, tag: u64) -> &Program {
        &self.programs[&tag]
    }

    fn ended(&self, tag: u64) -> bool {
        self.program(tag).end.is_some()
    }

    fn wait(&mut self, tag: u64) -> Result<Answer, IsolationError> {
        self.pump(|driver| driver.ended(tag))?;
        // Descendants may hold the pipes open, so what is there by now is what counts.
        self.read_outputs();
        let program = self.programs.remove(&tag).expect("was started");
        let [stdout, stderr] = program
            .said
            .map(|said| String::from_utf8_lossy(&said).into_owned());
        Ok(Answer::Ended(Ended {
            stdout,
            stderr,
            ..program.end.unwrap_or_default()
        }))
    }

    /// Serves box and pipes until something is so.
    fn pump(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), IsolationError> {
        let deadline = Instant::now() + DEADLINE;
        while !done(self) {
            assert!(Instant::now() < deadline, "the box did not do it in time");
            let outputs = self
                .programs
                .values()
                .flat_map(|program| program.outputs.iter().flatten());
            let mut fds = vec![PollFd::from_borrowed_fd(self.made.init_fd(), PollFlags::IN)];
            fds.extend(outputs.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
            let slice = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            poll(&mut fds, Some(&slice)).expect("polls");
            drop(fds);
            self.read_outputs();
            for message in self.made.read_messages()? {
                self.take(message);
            }
        }
        Ok(())
    }

    fn read_outputs(&mut self) {
        let mut buffer = vec![0; 64 << 10];
        for program in self.programs.values_mut() {
            for (output, said) in program.outputs.iter_mut().zip(&mut program.said) {
                while let Some(fd) = output {
                    match rustix::io::read(fd, &mut buffer) {
                        Ok(0) => *output = None,
                        Ok(length) => said.extend_from_slice(&buffer[..length]),
                        Err(_) => break,
                    }
                }
            }
        }
    }

    fn take(&mut self, message: InitMessage) {
        match message {
            InitMessage::Started { tag, pid } => {
                self.change(tag, |program| program.pid = Some(pid))
            }
            InitMessage::SpawnFailed { tag, stage, errno } => self.end(
                tag,
                Ended {
                    spawn_failure: Some((format!("{stage:?}"), errno)),
                    ..Ended::default()
                },
            ),
            InitMessage::Exited {
                tag,
                status,
                memory_limit,
            } => {
                let (code, signal) = match status {
                    ProcessEnd::Code(code) => (Some(code), None),
                    ProcessEnd::Signal(signal) => (None, Some(signal)),
                };
                self.end(
                    tag,
                    Ended {
                        code,
                        signal,
                        memory_limit,
                        ..Ended::default()
                    },
                );
            }
            InitMessage::InitGone { memory_limit } => {
                let tags: Vec<_> = self.programs.keys().copied().collect();
                for tag in tags {
                    self.end(
                        tag,
                        Ended {
                            box_gone: true,
                            memory_limit,
                            ..Ended::default()
                        },
                    );
                }
            }
        }
    }

    fn change(&mut self, tag: u64, change: impl FnOnce(&mut Program)) {
        if let Some(program) = self.programs.get_mut(&tag) {
            change(program);
        }
    }

    fn end(&mut self, tag: u64, end: Ended) {
        self.change(tag, |program| {
            program.end.get_or_insert(end);
        });
    }

    fn stats(&mut self) -> Numbers {
        let stats = self.made.stats();
        Numbers {
            memory: stats.memory_bytes,
            pids: stats.pids,
            cpu_usec: stats.cpu_usec,
            oom_kills: stats.oom_kills,
            pids_denied: stats.pids_denied,
            disk_used: stats.disk_used_bytes,
            disk_limit: stats.disk_limit_bytes,
        }
    }

    fn accept(&mut self) -> Result<Answer, IsolationError> {
        let listener = TcpListener::from(self.made.take_egress_listener()?);
        let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        let slice = Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&slice)), Ok(1), "nobody called");
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.set_nonblocking(false).expect("sets a flag");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("reads");
        Ok(Answer::Text(text))
    }

    fn put(&self, path: &str, content: &str) -> Answer {
        let files = self.made.files();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mode = Mode::from_raw_mode(0o644);
        match openat2(files.root(), path, flags, mode, resolve) {
            Ok(fd) => match File::from(fd).write_all(content.as_bytes()) {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Failed(error.to_string()),
            },
            Err(error) => Answer::Failed(error.to_string()),
        }
    }
}
