//! A watch that goes on when the connection or the server does not.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::watch as signal;
use tokio::time::Instant;
use tonic::Streaming;

use crate::dedupe::Seen;
use crate::v1::watch_session_response::Item;
use crate::{Client, ClientError, v1};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How to watch.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Events after this one; 0 means from the first.
    pub after_seq: u64,
    /// Whether pieces of messages come too.
    pub deltas: bool,
    /// How long to try again when the server is away; zero means not at all.
    pub reconnect_for: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            after_seq: 0,
            deltas: true,
            reconnect_for: Duration::from_secs(60),
        }
    }
}

/// One thing that a watch gives.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchItem {
    /// A durable event; each comes once, in order.
    Event(Box<v1::Event>),
    /// A piece of a message; what was given before is cut off.
    Delta(v1::Delta),
    /// What was durable at the begin of the watch was given. Comes once, also when the watch was begun again.
    CaughtUp {
        /// The last sequence number given.
        seq: u64,
    },
}

/// Whether a watch has its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// It has.
    Up,
    /// The server is away; the watch tries again until [`WatchOptions::reconnect_for`] is over.
    Down,
}

/// A watch on one session.
pub struct Watch {
    client: Client,
    session_id: String,
    options: WatchOptions,
    stream: Option<Streaming<v1::WatchSessionResponse>>,
    seen: Seen,
    caught_up: bool,
    ready: VecDeque<WatchItem>,
    /// Since when the server is away.
    away_since: Option<Instant>,
    pause: Duration,
    link: signal::Sender<Link>,
}

impl Client {
    /// Watches a session.
    ///
    /// # Errors
    /// What the server answers, or [`crate::UNREACHABLE`].
    pub async fn watch(
        &self,
        session_id: impl Into<String>,
        options: WatchOptions,
    ) -> Result<Watch, ClientError> {
        let mut watch = Watch {
            client: self.clone(),
            session_id: session_id.into(),
            seen: Seen::after(options.after_seq),
            options,
            stream: None,
            caught_up: false,
            ready: VecDeque::new(),
            away_since: None,
            pause: FIRST_PAUSE,
            link: signal::Sender::new(Link::Up),
        };
        watch.stream = Some(watch.begin().await?);
        Ok(watch)
    }
}

impl Watch {
    /// The next thing; `None` when the session is deleted. Connects again, after the last event that was given, when
    /// the connection breaks or the server drains. Cancel-safe.
    ///
    /// # Errors
    /// What the server answers; [`crate::UNREACHABLE`] when it stays away too long.
    pub async fn next(&mut self) -> Result<Option<WatchItem>, ClientError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            match self.step().await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                // It was there when the watch began, so it was deleted meanwhile.
                Err(error) if error.reason == "SESSION_NOT_FOUND" => return Ok(None),
                Err(error) => self.wait_or_fail(error).await?,
            }
        }
    }

    /// The last event that was given.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.seen.seq
    }

    /// Tells whether the server is there while [`Watch::next`] waits, so that a program can say so.
    #[must_use]
    pub fn link(&self) -> signal::Receiver<Link> {
        self.link.subscribe()
    }

    async fn begin(&self) -> Result<Streaming<v1::WatchSessionResponse>, ClientError> {
        let request = v1::WatchSessionRequest {
            session_id: self.session_id.clone(),
            after_seq: self.seen.seq,
            no_deltas: !self.options.deltas,
        };
        self.client
            .streaming("/astrabox.v1.SessionService/WatchSession", request)
            .await
    }

    /// Takes one message from the server; false at the true end.
    async fn step(&mut self) -> Result<bool, ClientError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = self.begin().await?;
                self.tell(Link::Up);
                self.stream.insert(stream)
            }
        };
        let Some(response) = stream.message().await? else {
            return Ok(false);
        };
        self.away_since = None;
        self.pause = FIRST_PAUSE;
        match response.item {
            Some(Item::Event(event)) => {
                let rest = self.seen.rest_of(&event);
                self.ready.extend(rest.map(WatchItem::Delta));
                let event = self.seen.event(event);
                self.ready
                    .extend(event.map(|event| WatchItem::Event(Box::new(event))));
            }
            Some(Item::Delta(delta)) => {
                let delta = self.seen.delta(delta);
                self.ready.extend(delta.map(WatchItem::Delta));
            }
            Some(Item::CaughtUp(v1::CaughtUp { seq })) if !self.caught_up => {
                self.caught_up = true;
                self.ready.push_back(WatchItem::CaughtUp { seq });
            }
            Some(Item::CaughtUp(_)) => {}
            // A newer server says something that this client does not know.
            None => {}
        }
        Ok(true)
    }

    async fn wait_or_fail(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.stream = None;
        let lost = error.is_unreachable() || error.reason == "DRAINING";
        let since = *self.away_since.get_or_insert_with(Instant::now);
        if !lost || since.elapsed() + self.pause > self.options.reconnect_for {
            return Err(error);
        }
        self.tell(Link::Down);
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    fn tell(&self, link: Link) {
        self.link
            .send_if_modified(|told| std::mem::replace(told, link) != link);
    }
}
