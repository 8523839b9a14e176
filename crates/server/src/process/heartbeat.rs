//! Says that this process is alive, from its own thread and its own connection, and draws the
//! conclusions when it cannot.
//!
//!     register ──beat each second──▶ steady ──no success for too long, or declared dead──▶ lapse
//!        ▲                                                                                  │
//!        └────────────── new id, once every run is dropped ◀────────────────────────────────┘
//!
//! Invariants
//! - A process that cannot show a recent heartbeat drops its runs and comes back under a new id;
//!   others may own them by then.
//! - Only a process whose own heartbeats succeeded without a gap may call another dead.
//! - A process that dispatches looks after its share of the shards, full or not. Whether it has room only decides
//!   whether it also claims for full owners.
//!
//! Not here: taking runs over (`run::resume`, `queue::takeover`), stopping a call about to be sent (`engine::pulse`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::embedded::Embedded;
use engine::pulse::Pulse;
use engine::say;
use kernel::ids::ProcessId;
use kernel::signals::{events, metrics};
use store::connect::Target;
use store::process::{News, Registration, Standing, beat, end, register};
use store::queue::claim::Silence;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{Process, ms};
use crate::process::pass::keep;
use crate::process::protocol::Rules;

/// What the rest of the process knows of itself.
#[derive(Clone, Debug)]
pub(crate) struct Alive {
    pub(crate) process: ProcessId,
    /// The shards it looks after.
    pub(crate) shards: Arc<[i16]>,
    /// The shards it claims for: its own, and with room a part of those whose owner is full.
    pub(crate) claim_shards: Arc<[i16]>,
    /// Runs of dead processes that no process has had room for yet. They come before new claims.
    pub(crate) waiting: usize,
    /// Since when heartbeats have succeeded without a gap.
    pub(crate) steady_since: Instant,
    /// Processes that are silent or ended lately.
    pub(crate) dead: usize,
}

impl Alive {
    /// May this process call another dead that was silent for so long?
    pub(crate) fn silence(&self, dead_after: Duration) -> Silence {
        Silence { dead_after, steady: self.steady_since.elapsed() > dead_after }
    }
}

pub(crate) struct Heartbeat {
    pub(crate) target: Target,
    pub(crate) settings: Process,
    pub(crate) registration: Registration,
    pub(crate) dispatches: bool,
    /// A process that may not claim takes no share of the shards.
    pub(crate) rules: Rules,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) engine: Option<Arc<dyn Engine>>,
    /// The engine, if this process itself is the one that runs.
    pub(crate) embedded: Option<Embedded>,
    /// Runs of dead processes that this one has no room for.
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(crate) alive: watch::Sender<Option<Alive>>,
    /// Wakes the background loops when somebody turns out to be dead.
    pub(crate) rouse: Arc<Notify>,
    /// Asks for a beat before its time, because another process said goodbye.
    pub(crate) now: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

impl Heartbeat {
    /// Beats until told to stop. Runs on a thread of its own, so that a busy runtime cannot make
    /// this process look dead.
    pub(crate) fn spawn(self) -> std::io::Result<std::thread::JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            runtime.block_on(keep("heartbeat", self.stop.clone(), self.run()));
        })
    }

    async fn run(mut self) {
        let mut before = None;
        while !self.stop.is_cancelled() {
            self.registration.id = ProcessId(store::new_id());
            match self.live(before).await {
                Ok(()) => before = Some(self.registration.id),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "The heartbeat cannot reach the database");
                    tokio::select! {
                        () = tokio::time::sleep(ms(self.settings.heartbeat_ms)) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
            }
        }
    }

    /// One life of this process under one id: ends by a lapse, or when told to stop. `before` is the
    /// id that lapsed: its runs were dropped here, so others need not wait for them.
    async fn live(&mut self, before: Option<ProcessId>) -> Result<(), store::Error> {
        let mut sent = Instant::now();
        let connection = self.target.connect().await?;
        register(&connection, &self.registration).await?;
        if let Some(before) = before {
            end(&connection, before).await?;
        }
        self.pulse.beat(sent);
        if let Some(engine) = &self.embedded {
            engine.assume(self.registration.id);
        }
        say!(events::REGISTERED, process_id = %self.registration.id);
        let mut client = Some(connection);
        let mut steady_since = Instant::now();
        let mut next = tokio::time::interval(ms(self.settings.heartbeat_ms));
        next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = next.tick() => {}
                () = self.now.notified() => {}
                () = self.stop.cancelled() => return Ok(()),
            }
            ::metrics::gauge!(metrics::HEARTBEAT_AGE.name).set(self.pulse.age().as_secs_f64());
            // Looked at before the next beat is sent: a process that was stopped for too long must
            // not come back as if nothing had happened.
            if !self.pulse.is_fresh() {
                self.lapse("its heartbeats did not reach the database in time").await;
                return Ok(());
            }
            if sent.elapsed() > ms(self.settings.shards_after_ms) {
                steady_since = Instant::now();
            }
            sent = Instant::now();
            match self.beat(&mut client).await {
                Ok(news) if news.gone => {
                    self.lapse("it was declared dead by another process").await;
                    return Ok(());
                }
                Ok(news) => {
                    self.pulse.beat(sent);
                    self.publish(news, steady_since);
                }
                Err(()) => steady_since = Instant::now(),
            }
        }
    }

    async fn beat(&self, client: &mut Option<store::connect::Client>) -> Result<News, ()> {
        let timeout = ms(self.settings.shards_after_ms);
        // Of several failures one after the other, the first says why.
        let is_first = client.is_some();
        let failed = |error: store::Error| {
            if is_first {
                tracing::warn!(error = &error as &dyn std::error::Error, "A heartbeat failed; it is sent again");
            }
        };
        let call = async {
            if client.is_none() {
                *client = Some(self.target.connect().await.map_err(drop)?);
            }
            let connection = client.as_ref().ok_or(())?;
            let (lease, dead) = (ms(self.settings.shards_after_ms), ms(self.settings.claims_after_ms));
            beat(connection, self.registration.id, self.standing(), lease, dead).await.map_err(failed)
        };
        let answer = tokio::time::timeout(timeout, call).await.unwrap_or(Err(()));
        if answer.is_err() {
            *client = None;
        }
        answer
    }

    fn standing(&self) -> Standing {
        Standing {
            dispatches: self.dispatches && self.engine.is_some() && self.rules.may_claim(),
            has_room: self.engine.as_ref().is_some_and(|engine| engine.capacity() > 0),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }

    fn publish(&self, news: News, steady_since: Instant) {
        // What a process owns runs in it, whatever the engine for new work is.
        let embedded = self.embedded.as_ref().map(|embedded| embedded as &dyn Engine);
        if let Some(engine) = embedded.or(self.engine.as_deref()) {
            for execution in &news.cancel {
                engine.cancel(*execution);
            }
            for execution in &news.wake {
                engine.signal(*execution);
            }
        }
        let (process, dead) = (self.registration.id, news.dead.len());
        let claim_shards = news.shards.iter().chain(&news.claim_shards).copied().collect::<BTreeSet<_>>();
        let alive = Alive {
            process,
            shards: news.shards.into(),
            claim_shards: claim_shards.into_iter().collect(),
            waiting: news.waiting,
            steady_since,
            dead,
        };
        let before = self.alive.send_replace(Some(alive));
        if before.is_some_and(|before| before.dead < dead) {
            self.rouse.notify_waiters();
        }
    }

    async fn lapse(&self, reason: &str) {
        say!(events::LAPSED, process_id = %self.registration.id, reason);
        ::metrics::counter!(metrics::LAPSES.name).increment(1);
        self.alive.send_replace(None);
        if let Some(engine) = &self.embedded {
            engine.abandon();
            engine.gone().await;
        }
    }
}
