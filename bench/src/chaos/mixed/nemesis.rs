//! What is done to the workers of jobs: kills of every sort, and pauses of those over HTTP until others have their
//! jobs.
//!
//! Invariants
//! - One process of the service always lives: jobs come back by it, and the API is there.
//! - What was killed is started again; where the service listens is written down each time it is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use store::connect::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::asking::tell_bases;
use super::super::ms;
use super::journal;
use crate::random::Random;
use crate::service::Fleet;

/// How often it is looked whether a paused worker's jobs are gone.
const LOOK: Duration = Duration::from_millis(25);
/// How long a worker that is to be paused may take to hold something.
const BUSY_WITHIN: Duration = Duration::from_secs(2);

/// The three sorts of workers.
#[derive(Clone, Debug)]
pub(super) struct Crews {
    pub(super) ours: Arc<Fleet>,
    pub(super) http: Arc<Fleet>,
    pub(super) sql: Arc<Fleet>,
}

impl Crews {
    pub(super) fn all(&self) -> [&Arc<Fleet>; 3] {
        [&self.ours, &self.http, &self.sql]
    }
}

pub(super) struct Nemesis {
    pub(super) crews: Crews,
    pub(super) bases: PathBuf,
    pub(super) journals: PathBuf,
    pub(super) random: Random,
    pub(super) lease: Duration,
    /// From one fault to the next, in ms.
    pub(super) every: (u64, u64),
    pub(super) stop: CancellationToken,
    pub(super) client: Arc<Client>,
    /// Counts the paused ones that woke when others had their jobs, and asked for an end all the same.
    pub(super) late: Arc<AtomicUsize>,
}

impl Nemesis {
    /// Does its worst until told to stop.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let mut strikes = 0usize;
        loop {
            let next = ms(self.random.between(self.every.0, self.every.1));
            tokio::select! {
                () = tokio::time::sleep(next) => {
                    self.strike(strikes, &mut tasks);
                    strikes += 1;
                }
                Some(done) = tasks.join_next() => done.context("a fault broke off")??,
                () = self.stop.cancelled() => break,
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.context("a fault broke off")??;
        }
        Ok(())
    }

    fn strike(&mut self, strike: usize, tasks: &mut JoinSet<anyhow::Result<()>>) {
        let (fleet, spared) = match strike % 4 {
            0 | 2 => (&self.crews.http, 0),
            1 => (&self.crews.sql, 0),
            _ => (&self.crews.ours, 1),
        };
        let (fleet, healthy) = (Arc::clone(fleet), fleet.healthy());
        if healthy.len() <= spared {
            return;
        }
        let place = healthy[self.random.below(healthy.len())];
        if strike.is_multiple_of(4) {
            tasks.spawn(self.pause(fleet, place).until_its_jobs_are_gone());
            return;
        }
        let away = ms(self.random.between(0, 500));
        fleet.kill(place);
        let (ours, bases) = (Arc::clone(&self.crews.ours), self.bases.clone());
        tasks.spawn(async move {
            tokio::time::sleep(away).await;
            fleet.restart(place).await?;
            tell_bases(&ours, &bases)
        });
    }

    fn pause(&mut self, fleet: Arc<Fleet>, place: usize) -> Pause {
        Pause {
            fleet,
            place,
            client: Arc::clone(&self.client),
            longest: 3 * self.lease + Duration::from_secs(5),
            wakes: ms(self.random.between(0, 300)),
            stop: self.stop.clone(),
            late: Arc::clone(&self.late),
            journals: self.journals.clone(),
        }
    }
}

/// A worker that is to wake when its jobs are another's.
struct Pause {
    fleet: Arc<Fleet>,
    place: usize,
    client: Arc<Client>,
    longest: Duration,
    wakes: Duration,
    stop: CancellationToken,
    late: Arc<AtomicUsize>,
    journals: PathBuf,
}

impl Pause {
    async fn until_its_jobs_are_gone(self) -> anyhow::Result<()> {
        let Some(busy) = self.fleet.name(self.place) else { return Ok(()) };
        let began = Instant::now();
        while self.held(&busy).await?.is_empty() && began.elapsed() < BUSY_WITHIN {
            tokio::time::sleep(LOOK).await;
        }
        let Some(name) = self.fleet.pause(self.place) else { return Ok(()) };
        let jobs = self.held(&name).await?;
        let gone = !jobs.is_empty() && self.waited_until_gone(&name, &jobs).await?;
        if gone {
            tokio::time::sleep(self.wakes).await;
        }
        self.fleet.resume(self.place, &name);
        if gone && self.waited_for_answer(&name, &jobs).await? {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// False if others have not taken its jobs for too long, or the run stops.
    async fn waited_until_gone(&self, name: &str, jobs: &[Uuid]) -> anyhow::Result<bool> {
        let began = Instant::now();
        while self.may_wait(began) {
            tokio::time::sleep(LOOK).await;
            if self.are_others(name, jobs).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// False if it has not asked for an end for too long, or the run stops.
    async fn waited_for_answer(&self, name: &str, jobs: &[Uuid]) -> anyhow::Result<bool> {
        let began = Instant::now();
        while self.may_wait(began) {
            tokio::time::sleep(LOOK).await;
            if journal::has_answer(&self.journals, name, jobs)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn may_wait(&self, since: Instant) -> bool {
        since.elapsed() < self.longest && !self.stop.is_cancelled()
    }

    async fn held(&self, name: &str) -> anyhow::Result<Vec<Uuid>> {
        let held = "SELECT id FROM workflow_queue_projection WHERE status = 'processing' AND worker_id = $1";
        let rows = self.client.query(held, &[&name]).await.context("look for what a worker holds")?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Have others taken all of these?
    async fn are_others(&self, name: &str, jobs: &[Uuid]) -> anyhow::Result<bool> {
        let left = "SELECT count(*) FROM workflow_queue_projection
                     WHERE id = ANY ($2) AND (status = 'pending' OR status = 'processing' AND worker_id = $1)";
        let row = self.client.query_one(left, &[&name, &jobs]).await.context("look whether it still holds them")?;
        Ok(row.get::<_, i64>(0) == 0)
    }
}
