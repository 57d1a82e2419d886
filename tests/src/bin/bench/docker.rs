//! The same program in a container of docker, where a docker daemon answers: over its API, not its command line.
//!
//! Paths and fields are those of the Docker Engine API v1.41.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::boxes::{ARGUMENT, PROGRAM};

const SOCKET: &str = "/var/run/docker.sock";
/// Longer than any of these calls takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A docker daemon with an image of the program.
pub(crate) struct Docker {
    socket: PathBuf,
    image: String,
}

impl Docker {
    /// Finds the daemon and gives it an image with nothing but this program.
    ///
    /// # Errors
    /// When no daemon answers.
    pub(crate) async fn find(program: &Path) -> Result<Self> {
        let named = std::env::var("DOCKER_HOST").ok();
        let socket = match named.as_deref() {
            None => PathBuf::from(SOCKET),
            Some(host) => match host.strip_prefix("unix://") {
                Some(path) => path.into(),
                None => bail!("DOCKER_HOST names no unix socket"),
            },
        };
        let docker = Self {
            socket,
            image: format!("astrabox-bench-{}:1", std::process::id()),
        };
        let answers = docker.call("GET", "/_ping", "text/plain", &[]).await;
        answers.context("no docker daemon answers")?;
        let mut tar = tar::Builder::new(Vec::new());
        tar.append_path_with_name(program, PROGRAM)?;
        let (repository, tag) = docker.image.split_once(':').context("a tag")?;
        let path = format!("/images/create?fromSrc=-&repo={repository}&tag={tag}");
        let tar = tar.into_inner()?;
        let made = docker.call("POST", &path, "application/x-tar", &tar);
        made.await.context("the image cannot be imported")?;
        Ok(docker)
    }

    /// Makes and starts containers, one after the other; how long each took until docker said that it runs.
    pub(crate) async fn create_and_start(&self, times: usize) -> Result<Vec<Duration>> {
        let body = json!({
            "Image": self.image,
            "Entrypoint": [format!("/{PROGRAM}"), ARGUMENT],
            "HostConfig": {"NetworkMode": "none"},
        });
        let body = serde_json::to_vec(&body)?;
        let mut taken = Vec::new();
        // The first one is not counted, as our own is not.
        for n in 0..=times {
            let start = Instant::now();
            let made = self
                .call("POST", "/containers/create", "application/json", &body)
                .await?;
            let made: Value = serde_json::from_slice(&made)?;
            let id = made["Id"].as_str().context("the container's id")?;
            let path = format!("/containers/{id}/start");
            let started = self.call("POST", &path, "application/json", &[]).await;
            let time = start.elapsed();
            let path = format!("/containers/{id}?force=true");
            self.call("DELETE", &path, "text/plain", &[]).await?;
            started?;
            if n > 0 {
                taken.push(time);
            }
        }
        Ok(taken)
    }

    /// Removes the image.
    pub(crate) async fn leave(&self) -> Result<()> {
        let path = format!("/images/{}?force=true", self.image);
        self.call("DELETE", &path, "text/plain", &[]).await?;
        Ok(())
    }

    /// One call; the body of its answer.
    async fn call(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Vec<u8>> {
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            // Of this version: the answer is neither in chunks nor kept open.
            let head = format!(
                "{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = tokio::time::timeout(PATIENCE, exchange)
            .await
            .context("docker is silent")??;
        let (status, body) = split(&answer).context("docker's answer is no HTTP")?;
        ensure!(
            (200..300).contains(&status),
            "docker answers {status} to {method} {path}: {}",
            String::from_utf8_lossy(body).trim()
        );
        Ok(body.to_vec())
    }
}

/// The status and the body of an answer.
fn split(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, &answer[end + 4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = b"HTTP/1.0 201 Created\r\nA: b\r\n\r\n{\"Id\":\"x\"}";
        assert_eq!(split(answer), Some((201, &b"{\"Id\":\"x\"}"[..])));
        assert_eq!(
            split(b"HTTP/1.0 204 No Content\r\n\r\n"),
            Some((204, &b""[..]))
        );
        assert_eq!(split(b"nothing"), None);
    }
}
