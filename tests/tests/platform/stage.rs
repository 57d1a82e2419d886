//! A stage on which one server follows another.

use std::future::Future;

use astrabox_platform::{
    AgentDraft, Error, InteractionRecord, PageRequest, Platform, SessionView, Subscription,
    WatchItem,
};
use astrabox_types::{
    AgentId, ContentPart, InputId, InteractionAnswer, InteractionId, JournalEvent, SandboxId,
    SessionId, TurnId,
};

use crate::fault::Faults;
use crate::server::{Broken, PATIENCE, Server, agent, caller, draft, environment, key};
use crate::world::World;

/// A world with one server at a time. When the server is stopped at a fault point, the stage kills it, starts the
/// next one, and repeats the call with the same key, as a client does.
pub(crate) struct Stage {
    pub(crate) world: World,
    server: Option<Server>,
    /// Where the first server was stopped.
    pub(crate) stopped_at: Option<String>,
    agent: Option<AgentId>,
    keys: u32,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::of(World::new(), Faults::none()).await
    }

    pub(crate) async fn of(world: World, faults: Faults) -> Self {
        let server = Server::start(&world, faults.clone()).await;
        let mut stage = Self {
            world,
            server,
            stopped_at: None,
            agent: None,
            keys: 0,
        };
        if stage.server.is_none() {
            stage.stopped_at = Some(faults.reached().await);
            stage.restart().await;
        }
        stage
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("a server runs")
    }

    /// Kills the server and starts the next one.
    pub(crate) async fn restart(&mut self) {
        self.kill().await;
        self.start().await;
    }

    /// Ends the server in order.
    pub(crate) async fn drain(&mut self) {
        if let Some(server) = self.server.take() {
            server.drain().await;
        }
    }

    /// Kills the server.
    pub(crate) async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill().await;
        }
    }

    pub(crate) async fn start(&mut self) {
        self.server = Server::start(&self.world, Faults::none()).await;
    }

    /// Ends the server in order and starts the next one.
    pub(crate) async fn drain_and_restart(&mut self) {
        self.drain().await;
        self.start().await;
    }

    async fn after_stop(&mut self) {
        if self.stopped_at.is_none() {
            self.stopped_at = Some(self.server().faults.reached().await);
        }
        self.restart().await;
    }

    /// Calls until a server answers.
    pub(crate) async fn call<T, F, E>(&mut self, call: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(Platform) -> E,
        E: Future<Output = astrabox_platform::Result<T>> + Send + 'static,
    {
        loop {
            match self.server().call(&call).await {
                Ok(value) => return Ok(value),
                Err(Broken::Refused(error)) => return Err(error),
                Err(Broken::Stopped) => self.after_stop().await,
            }
        }
    }

    fn next_key(&mut self) -> String {
        self.keys += 1;
        format!("key-{}", self.keys)
    }

    pub(crate) async fn agent(&mut self) -> AgentId {
        if let Some(agent) = self.agent {
            return agent;
        }
        self.make_agent(agent("test")).await
    }

    /// Makes this agent, in the environment `test`, and takes it for the sessions to come.
    pub(crate) async fn make_agent(&mut self, draft: AgentDraft) -> AgentId {
        let made = self.call(move |platform| {
            let draft = draft.clone();
            async move {
                let spec = environment("test");
                platform
                    .create_environment(&caller(), key("environment", ""), spec)
                    .await?;
                platform
                    .create_agent(&caller(), key("agent", ""), draft)
                    .await
            }
        });
        let agent = made.await.expect("an agent").id;
        self.agent = Some(agent);
        agent
    }

    /// A session with this first prompt, or with none.
    pub(crate) async fn create(&mut self, prompt: &str) -> SessionId {
        let draft = draft(self.agent().await, prompt);
        let key = key(self.next_key(), prompt);
        let made = self.call(move |platform| {
            let (draft, key) = (draft.clone(), key.clone());
            async move { platform.create_session(&caller(), key, draft).await }
        });
        made.await.expect("a session").0.session.id
    }

    pub(crate) async fn try_send(
        &mut self,
        id: SessionId,
        text: &str,
    ) -> Result<(InputId, u64), Error> {
        let key = key(self.next_key(), text);
        let content = vec![ContentPart::text(text)];
        self.call(move |platform| {
            let (content, key) = (content.clone(), key.clone());
            async move { platform.send_input(&caller(), key, id, content).await }
        })
        .await
    }

    pub(crate) async fn send(&mut self, id: SessionId, text: &str) -> InputId {
        self.try_send(id, text).await.expect("the input is taken").0
    }

    pub(crate) async fn interrupt(&mut self, id: SessionId) -> Option<TurnId> {
        let key = key(self.next_key(), "interrupt");
        let done = self.call(move |platform| {
            let key = key.clone();
            async move { platform.interrupt(&caller(), key, id).await }
        });
        done.await.expect("an interrupt is taken")
    }

    pub(crate) async fn try_respond(
        &mut self,
        id: SessionId,
        interaction: InteractionId,
        answer: InteractionAnswer,
    ) -> Result<u64, Error> {
        let key = key(self.next_key(), "respond");
        self.call(move |platform| {
            let (answer, key) = (answer.clone(), key.clone());
            async move {
                platform
                    .respond(&caller(), key, id, interaction, answer)
                    .await
            }
        })
        .await
    }

    pub(crate) async fn open_interactions(&mut self, id: SessionId) -> Vec<InteractionRecord> {
        let all = self.call(move |platform| async move {
            platform.list_interactions(&caller(), id, false).await
        });
        all.await.expect("the session is there")
    }

    pub(crate) async fn release_sandbox(
        &mut self,
        id: SessionId,
    ) -> Result<Option<SandboxId>, Error> {
        let key = key(self.next_key(), "release");
        self.call(move |platform| {
            let key = key.clone();
            async move { platform.release_sandbox(&caller(), key, id).await }
        })
        .await
    }

    pub(crate) async fn delete(&mut self, id: SessionId) -> Result<(), Error> {
        let key = key(self.next_key(), "delete");
        self.call(move |platform| {
            let key = key.clone();
            async move { platform.delete(&caller(), key, id).await }
        })
        .await
    }

    pub(crate) async fn archive(&mut self, id: SessionId) -> Result<SessionView, Error> {
        let key = key(self.next_key(), "archive");
        self.call(move |platform| {
            let key = key.clone();
            async move { platform.archive(&caller(), key, id).await }
        })
        .await
    }

    pub(crate) async fn recover(&mut self, id: SessionId) -> Result<SessionView, Error> {
        let key = key(self.next_key(), "recover");
        self.call(move |platform| {
            let key = key.clone();
            async move { platform.recover(&caller(), key, id).await }
        })
        .await
    }

    pub(crate) async fn set_mode(
        &mut self,
        id: SessionId,
        mode: &'static str,
    ) -> Result<Option<String>, Error> {
        let key = key(self.next_key(), mode);
        self.call(move |platform| {
            let key = key.clone();
            async move { platform.set_permission_mode(&caller(), key, id, mode).await }
        })
        .await
    }

    pub(crate) async fn view(&mut self, id: SessionId) -> Result<SessionView, Error> {
        self.call(move |platform| async move { platform.get_session(&caller(), id).await })
            .await
    }

    /// The whole journal, read page by page.
    pub(crate) async fn journal(&mut self, id: SessionId) -> Vec<JournalEvent> {
        let mut events = Vec::new();
        let mut token = None;
        loop {
            let request = PageRequest { size: 100, token };
            let page = self.call(move |platform| {
                let request = request.clone();
                async move { platform.list_events(&caller(), id, 0, request).await }
            });
            let page = page.await.expect("the journal can be read");
            events.extend(page.items);
            token = page.next;
            if token.is_none() {
                return events;
            }
        }
    }

    pub(crate) async fn watch(&mut self, id: SessionId, after: u64) -> Subscription {
        let watch = self
            .call(move |platform| async move { platform.watch(&caller(), id, after, true).await });
        watch.await.expect("the session can be watched")
    }

    /// Waits until the journal has what is looked for.
    pub(crate) async fn until<T>(
        &mut self,
        id: SessionId,
        what: &str,
        look: impl Fn(&[JournalEvent]) -> Option<T>,
    ) -> T {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut events = Vec::new();
        loop {
            if let Some(found) = look(&events) {
                return found;
            }
            let after = events.last().map_or(0, |event: &JournalEvent| event.seq);
            let mut watch = self.watch(id, after).await;
            let faults = self.server().faults.clone();
            loop {
                let item = tokio::select! {
                    item = tokio::time::timeout_at(deadline, watch.next()) => item,
                    _ = faults.reached() => {
                        self.after_stop().await;
                        break;
                    }
                };
                match item {
                    Ok(Some(Ok(WatchItem::Event(event)))) => {
                        events.push(event);
                        if let Some(found) = look(&events) {
                            return found;
                        }
                    }
                    Ok(Some(Ok(_))) => {}
                    Ok(Some(Err(_)) | None) => break,
                    Err(_) => panic!("{what} did not come: {}", crate::told::show(&events)),
                }
            }
        }
    }
}
