//! Sessions on a server process of their own: with a real engine, or with the fake one.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use astrabox_client::{Client, Watch, WatchItem, WatchOptions, text_part, v1};
use astrabox_testkit::fake_engine::KIND;
use astrabox_testkit::model::ScriptedModel;
use astrabox_testkit::server::{ServerOptions, ServerProcess};
use v1::event::Payload;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What figures say that are measured with the fake engine.
pub(crate) const FAKE_NOTE: &str = "engine: the test kit's fake engine, a real program in real sandboxes, on a server process \
                             that is astraboxd but for that engine";

/// A server process, and an agent on it.
pub(crate) struct Served {
    pub(crate) server: ServerProcess,
    pub(crate) client: Client,
    agent_id: String,
}

impl Served {
    /// A server with the fake engine, and an agent of it.
    pub(crate) async fn fake() -> Result<Self> {
        let options = ServerOptions {
            // It never asks a model, but it is started only when there is one.
            model: Some("http://model.test:80".to_owned()),
            command: vec![std::env::current_exe()?.into(), "serve".into()],
            ..ServerOptions::default()
        };
        Self::start(&options, KIND).await
    }

    /// `astraboxd` over this model, and an agent of a linked engine.
    pub(crate) async fn real(engine: &str, model: &ScriptedModel) -> Result<Self> {
        Self::start(&ServerOptions::with_model(model.address()), engine).await
    }

    async fn start(options: &ServerOptions, engine: &str) -> Result<Self> {
        let server = ServerProcess::start(options).await?;
        let client = server.client().await?;
        let environment = v1::EnvironmentSpec {
            name: "bench".to_owned(),
            engine: engine.to_owned(),
            ..Default::default()
        };
        let request = v1::CreateEnvironmentRequest {
            spec: Some(environment),
            ..Default::default()
        };
        client.create_environment(request).await?;
        let spec = v1::AgentSpec {
            name: "bench".to_owned(),
            environment: "bench".to_owned(),
            model: "scripted".to_owned(),
            ..Default::default()
        };
        let request = v1::CreateAgentRequest {
            spec: Some(spec),
            ..Default::default()
        };
        let agent = client.create_agent(request).await?.agent;
        Ok(Self {
            server,
            client,
            agent_id: agent.context("an agent in the answer")?.id,
        })
    }

    /// A new session, as soon as it is READY; and how long that took from the call on.
    pub(crate) async fn session(&self) -> Result<(Session, Duration)> {
        let start = Instant::now();
        let request = v1::CreateSessionRequest {
            agent_id: self.agent_id.clone(),
            ..Default::default()
        };
        let session = self.client.create_session(request).await?.session;
        let id = session.context("a session in the answer")?.id;
        let watch = self.client.watch(&id, WatchOptions::default()).await?;
        let mut session = Session {
            client: self.client.clone(),
            id,
            watch,
        };
        let ready = session.until(|payload| match payload {
            Payload::SessionStatus(status) => match status.state() {
                v1::SessionState::Ready => Some(Ok(())),
                v1::SessionState::RecoveryRequired => Some(Err(status.reason.clone())),
                _ => None,
            },
            _ => None,
        });
        if let Err(reason) = ready.await.with_context(|| self.server.log())? {
            bail!("the session does not become ready: {reason}");
        }
        Ok((session, start.elapsed()))
    }

    /// Removes every session and ends the server in order.
    pub(crate) async fn clear(mut self) -> Result<()> {
        for session in self.client.all_sessions(None, true).await? {
            let request = v1::DeleteSessionRequest {
                session_id: session.id,
                ..Default::default()
            };
            self.client.delete_session(request).await?;
        }
        self.server.stop().await
    }
}

/// A session and a watch on it.
pub(crate) struct Session {
    client: Client,
    pub(crate) id: String,
    watch: Watch,
}

/// How long a turn took from the prompt on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) first: Duration,
    pub(crate) whole: Duration,
}

impl Session {
    pub(crate) async fn send(&self, prompt: &str) -> Result<()> {
        let request = v1::SendInputRequest {
            session_id: self.id.clone(),
            content: vec![text_part(prompt)],
            ..Default::default()
        };
        self.client.send_input(request).await?;
        Ok(())
    }

    /// The next thing that the watch gives.
    pub(crate) async fn next(&mut self) -> Result<WatchItem> {
        let item = tokio::time::timeout(PATIENCE, self.watch.next()).await;
        item.context("nothing came in time")??
            .context("the watch ended")
    }

    /// Watches again, from the last event that was given.
    pub(crate) async fn watch_again(&mut self) -> Result<()> {
        let options = WatchOptions {
            after_seq: self.watch.last_seq(),
            ..WatchOptions::default()
        };
        self.watch = self.client.watch(&self.id, options).await?;
        Ok(())
    }

    /// Reads events until one gives something.
    pub(crate) async fn until<T>(&mut self, look: impl Fn(&Payload) -> Option<T>) -> Result<T> {
        loop {
            if let WatchItem::Event(event) = self.next().await?
                && let Some(found) = event.payload.as_ref().and_then(&look)
            {
                return Ok(found);
            }
        }
    }

    /// Reads until the turn's end, which must be a completion; gives each piece of text to `piece`.
    pub(crate) async fn turn(&mut self, mut piece: impl FnMut(&v1::Delta)) -> Result<()> {
        loop {
            match self.next().await? {
                WatchItem::Delta(delta) => piece(&delta),
                WatchItem::Event(event) => {
                    if let Some(Payload::TurnEnded(ended)) = &event.payload {
                        if ended.outcome() != v1::TurnOutcome::Completed {
                            bail!("the turn ended as {ended:?}");
                        }
                        return Ok(());
                    }
                }
                WatchItem::CaughtUp { .. } => {}
            }
        }
    }

    /// Says something and times the answer.
    pub(crate) async fn timed(&mut self, prompt: &str) -> Result<Taken> {
        let start = Instant::now();
        let mut first = None;
        self.send(prompt).await?;
        self.turn(|_| {
            first.get_or_insert_with(|| start.elapsed());
        })
        .await?;
        Ok(Taken {
            first: first.context("an answer in pieces")?,
            whole: start.elapsed(),
        })
    }

    pub(crate) async fn delete(self) -> Result<()> {
        let request = v1::DeleteSessionRequest {
            session_id: self.id,
            ..Default::default()
        };
        self.client.delete_session(request).await?;
        Ok(())
    }
}
