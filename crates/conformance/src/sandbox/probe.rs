//! What the suite runs inside a sandbox.

use serde::{Deserialize, Serialize};

/// A small program that a fixture knows how to run in its sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Probe {
    /// Copies standard input to standard output until its end, then exits with 0.
    Copy,
    /// Prints `line 1`, `line 2` and so on, then exits with 0.
    Count {
        /// How many lines.
        lines: u32,
    },
    /// Prints these texts as they are and exits.
    Say {
        /// To standard output.
        stdout: String,
        /// To standard error.
        stderr: String,
        /// The exit code.
        code: i32,
    },
    /// Waits until it is killed.
    Wait,
    /// Prints 1, 2, 3 and so on, a line each, some every second, until it is killed.
    Tick,
    /// Adds one `x` to the file, then waits until it is killed.
    Mark {
        /// The file.
        path: String,
    },
    /// Prints its environment as `NAME=value` lines, its working directory as `cwd=`, its arguments as `arg=`.
    Surroundings,
    /// Makes a symbolic link and exits with 0.
    Link {
        /// What the link says.
        target: String,
        /// Where it is.
        path: String,
    },
    /// Connects to port 3128 of the loopback and prints the first line that it is told. Exits with 0 when there was
    /// one, with 7 when nobody answered.
    Egress,
    /// Runs this text in a POSIX shell.
    Script(String),
}

impl Probe {
    /// A text on standard output and exit code 0.
    #[must_use]
    pub fn say(text: &str) -> Self {
        Self::Say {
            stdout: text.to_owned(),
            stderr: String::new(),
            code: 0,
        }
    }

    /// The command line for a box with a POSIX shell and the usual small tools. `Egress` needs `/bin/bash`, which can
    /// open a connection without another program.
    #[must_use]
    pub fn in_shell(&self, shell: &str) -> Vec<String> {
        let line = |script: &str, arguments: &[&str]| {
            [shell, "-c", script, "probe"]
                .iter()
                .chain(arguments)
                .map(|part| (*part).to_owned())
                .collect()
        };
        match self {
            Self::Copy => line("exec cat", &[]),
            Self::Count { lines } => line(
                "i=1; while [ $i -le $1 ]; do echo \"line $i\"; i=$((i+1)); done",
                &[&lines.to_string()],
            ),
            Self::Say {
                stdout,
                stderr,
                code,
            } => line(
                "printf %s \"$1\"; printf %s \"$2\" >&2; exit $3",
                &[stdout, stderr, &code.to_string()],
            ),
            Self::Wait => line("exec sleep 100000", &[]),
            Self::Tick => line(
                "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done",
                &[],
            ),
            Self::Mark { path } => line("printf x >> \"$1\"; exec sleep 100000", &[path]),
            Self::Surroundings => line("env; echo \"cwd=$(pwd)\"; echo \"arg=$1\"", &["a b"]),
            Self::Link { target, path } => line("exec ln -s \"$1\" \"$2\"", &[target, path]),
            Self::Egress => line(
                "exec /bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128 || exit 7; \
                 read -r line <&3 || exit 7; echo \"$line\"'",
                &[],
            ),
            Self::Script(script) => line(script, &[]),
        }
    }
}
