//! A git repository over HTTP, served by git's own `http-backend`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{Answer, Received};

/// A bare repository below a folder of its own.
pub struct Repository {
    root: tempfile::TempDir,
    path: String,
}

impl Repository {
    /// Makes a repository at this path, as `acme/tools.git`, with one commit of these files on `main`, and the branch
    /// `side` with one file more, `side.txt`.
    ///
    /// # Errors
    /// When git is not there or refuses.
    pub async fn new(path: &str, files: &[(&str, &str)]) -> Result<Self> {
        let root = tempfile::tempdir()?;
        let bare = root.path().join(path);
        let work = tempfile::tempdir()?;
        for (name, content) in files {
            let file = work.path().join(name);
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(file, content)?;
        }
        git(work.path(), &["init", "-q", "-b", "main"]).await?;
        commit(work.path(), "first").await?;
        git(work.path(), &["checkout", "-q", "-b", "side"]).await?;
        std::fs::write(work.path().join("side.txt"), "aside")?;
        commit(work.path(), "aside").await?;
        git(work.path(), &["checkout", "-q", "main"]).await?;
        std::fs::create_dir_all(&bare)?;
        let from = work.path().display().to_string();
        git(&bare, &["clone", "-q", "--bare", &from, "."]).await?;
        Ok(Self {
            root,
            path: path.to_owned(),
        })
    }

    /// Where it is on disk, for the server's process.
    #[must_use]
    pub fn place(&self) -> (PathBuf, String) {
        (self.root.path().to_owned(), self.path.clone())
    }

    /// Answers one request of a client of git.
    ///
    /// # Errors
    /// When `http-backend` fails.
    pub async fn answer(root: &Path, request: &Received) -> Result<Answer> {
        let (path, query) = request
            .target
            .split_once('?')
            .unwrap_or((&request.target, ""));
        let mut backend = Command::new("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "safe.directory")
            .env("GIT_CONFIG_VALUE_0", "*")
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("REQUEST_METHOD", &request.method)
            .env("REMOTE_ADDR", "127.0.0.1")
            .env(
                "CONTENT_TYPE",
                request.header("content-type").unwrap_or_default(),
            )
            .env("CONTENT_LENGTH", request.body.len().to_string())
            .env(
                "HTTP_CONTENT_ENCODING",
                request.header("content-encoding").unwrap_or_default(),
            )
            .env(
                "GIT_PROTOCOL",
                request.header("git-protocol").unwrap_or_default(),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("git http-backend")?;
        let mut stdin = backend.stdin.take().context("its standard input")?;
        let body = request.body.clone();
        let write = async move {
            // What it does not read it does not need.
            let _ = stdin.write_all(&body).await;
        };
        let ((), output) = tokio::join!(write, backend.wait_with_output());
        parse(&output?.stdout)
    }
}

/// Reads what a CGI program says.
fn parse(output: &[u8]) -> Result<Answer> {
    let end = output
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .context("no head in the answer of git http-backend")?;
    let head = std::str::from_utf8(&output[..end])?;
    let mut answer = Answer {
        status: 200,
        body: Bytes::copy_from_slice(&output[end + 4..]),
        ..Answer::default()
    };
    for line in head.split("\r\n") {
        let Some((name, value)) = line.split_once(": ") else {
            bail!("git http-backend says {line:?}");
        };
        if name == "Status" {
            answer.status = value.get(..3).unwrap_or_default().parse()?;
        } else {
            answer.headers.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(answer)
}

async fn commit(folder: &Path, message: &str) -> Result<()> {
    git(folder, &["add", "-A"]).await?;
    git(folder, &["commit", "-q", "-m", message]).await
}

async fn git(folder: &Path, args: &[&str]) -> Result<()> {
    let output = Command::new("git")
        .current_dir(folder)
        .args(["-c", "user.name=test", "-c", "user.email=test@example.test"])
        .args(args)
        .env_remove("GIT_DIR")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .await
        .context("git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {said}", args[0]);
    Ok(())
}
