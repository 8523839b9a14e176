//! The part that the nemeses of all runs share. A nemesis causes faults at random intervals: it kills processes and
//! restarts them, and pauses other processes until a condition holds.
//!
//! Invariants
//! - Every choice comes from the seed.
//! - A killed process is restarted. A nemesis ends when all of its faults are over.
//!
//! Not here: the choice of targets (`strict::nemesis`, `long::nemesis`, `mixed::nemesis`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use store::connect::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::ms;
use super::retrying_client::tell_bases;
use crate::random::Random;
use crate::service::Fleet;

/// How often a pause checks whether it has lasted long enough.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A run's choice of targets and faults.
pub(super) trait Strikes: Send {
    fn strike(&mut self, nemesis: &mut Nemesis, strike: usize) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// The file to which the addresses of the service are written each time a process was restarted.
#[derive(Clone, Debug)]
pub(super) struct Bases {
    pub(super) servers: Arc<Fleet>,
    pub(super) file: PathBuf,
}

pub(super) struct Nemesis {
    pub(super) random: Random,
    pub(super) stop: CancellationToken,
    pub(super) client: Arc<Client>,
    /// From one fault to the next, in ms.
    every: (u64, u64),
    bases: Option<Bases>,
    faults: JoinSet<anyhow::Result<()>>,
}

impl Nemesis {
    pub(super) fn new(
        random: Random,
        every: (u64, u64),
        stop: CancellationToken,
        client: Client,
        bases: Option<Bases>,
    ) -> Nemesis {
        Nemesis { random, stop, client: Arc::new(client), every, bases, faults: JoinSet::new() }
    }

    /// Strikes until stopped. Fails if a process cannot be restarted.
    pub(super) async fn run(mut self, mut strikes: impl Strikes) -> anyhow::Result<()> {
        let mut count = 0usize;
        loop {
            let next = ms(self.random.between(self.every.0, self.every.1));
            tokio::select! {
                () = tokio::time::sleep(next) => {
                    strikes.strike(&mut self, count).await?;
                    count += 1;
                }
                Some(done) = self.faults.join_next() => done.context("a fault stopped early")??,
                () = self.stop.cancelled() => break,
            }
        }
        while let Some(done) = self.faults.join_next().await {
            done.context("a fault stopped early")??;
        }
        Ok(())
    }

    /// Starts a fault that takes some time.
    pub(super) fn spawn(&mut self, fault: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.faults.spawn(fault);
    }

    /// One of the healthy processes. Returns none if only `spared` processes or fewer are healthy.
    pub(super) fn one_of(&mut self, fleet: &Fleet, spared: usize) -> Option<usize> {
        let healthy = fleet.healthy();
        (healthy.len() > spared).then(|| healthy[self.random.below(healthy.len())])
    }

    /// Kills a process, and restarts it after at most this many ms.
    pub(super) fn kill(&mut self, fleet: &Arc<Fleet>, place: usize, longest_ms: u64) {
        let away = ms(self.random.between(0, longest_ms));
        if fleet.kill(place).is_none() {
            return;
        }
        let (fleet, bases) = (Arc::clone(fleet), self.bases.clone());
        self.spawn(async move {
            tokio::time::sleep(away).await;
            fleet.restart(place).await?;
            bases.map_or(Ok(()), |bases| tell_bases(&bases.servers, &bases.file))
        });
    }

    /// Pauses a process until a condition holds, and then for at most this many ms more.
    pub(super) fn pause(&mut self, fleet: &Arc<Fleet>, longest: Duration, wakes_ms: u64) -> Pause {
        Pause {
            fleet: Arc::clone(fleet),
            client: Arc::clone(&self.client),
            longest,
            wakes: ms(self.random.between(0, wakes_ms)),
            stop: self.stop.clone(),
        }
    }
}

/// A paused process that is resumed when other processes have taken over its work.
pub(super) struct Pause {
    pub(super) fleet: Arc<Fleet>,
    pub(super) client: Arc<Client>,
    pub(super) stop: CancellationToken,
    pub(super) longest: Duration,
    wakes: Duration,
}

impl Pause {
    /// Polls until the condition holds, then waits a little longer. Returns false if the condition did not hold in
    /// time, or if the run stops.
    pub(super) async fn until<R>(&self, look: impl FnMut() -> R) -> anyhow::Result<bool>
    where
        R: Future<Output = anyhow::Result<bool>>,
    {
        let so = self.within(self.longest, look).await?;
        if so {
            tokio::time::sleep(self.wakes).await;
        }
        Ok(so)
    }

    /// Polls until the condition holds. Returns false if it did not hold in time, or if the run stops.
    pub(super) async fn within<R>(&self, longest: Duration, mut look: impl FnMut() -> R) -> anyhow::Result<bool>
    where
        R: Future<Output = anyhow::Result<bool>>,
    {
        let began = Instant::now();
        while began.elapsed() < longest && !self.stop.is_cancelled() {
            if look().await? {
                return Ok(true);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(false)
    }

    /// Runs a statement that returns what each process holds: the name of the process, the id of the object, and the id
    /// of the claim or owner.
    pub(super) async fn held(&self, statement: &str) -> anyhow::Result<Vec<(String, Uuid, Uuid)>> {
        let rows = self.client.query(statement, &[]).await.context("read what each process holds")?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
    }
}
