//! The faults for workers of jobs: kills of workers of every sort, and pauses of HTTP workers until other workers have
//! claimed their jobs.
//!
//! Invariants
//! - One process of the service is always alive, so that jobs are recovered and the API stays available.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use uuid::Uuid;

use super::super::nemesis::{Nemesis, Pause, Strikes};
use super::journal;
use crate::service::Fleet;

/// How long to wait until the worker to be paused holds a job.
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

pub(super) struct Faults {
    pub(super) crews: Crews,
    pub(super) journals: PathBuf,
    pub(super) lease: Duration,
    /// Counts the paused workers that woke after others had taken their jobs, and requested an end anyway.
    pub(super) late: Arc<AtomicUsize>,
}

impl Strikes for Faults {
    async fn strike(&mut self, nemesis: &mut Nemesis, strike: usize) -> anyhow::Result<()> {
        let (fleet, spared) = match strike % 4 {
            0 | 2 => (&self.crews.http, 0),
            1 => (&self.crews.sql, 0),
            _ => (&self.crews.ours, 1),
        };
        let Some(place) = nemesis.one_of(fleet, spared) else { return Ok(()) };
        if strike.is_multiple_of(4) {
            let pause = nemesis.pause(fleet, 3 * self.lease + Duration::from_secs(5), 300);
            let (journals, late) = (self.journals.clone(), Arc::clone(&self.late));
            nemesis.spawn(Worker { pause, place, journals, late }.sleep_until_its_jobs_are_gone());
        } else {
            nemesis.kill(fleet, place, 500);
        }
        Ok(())
    }
}

/// A paused worker that is resumed when other workers have claimed its jobs.
struct Worker {
    pause: Pause,
    place: usize,
    journals: PathBuf,
    late: Arc<AtomicUsize>,
}

impl Worker {
    async fn sleep_until_its_jobs_are_gone(self) -> anyhow::Result<()> {
        let fleet = &self.pause.fleet;
        let Some(busy) = fleet.name(self.place) else { return Ok(()) };
        self.pause.within(BUSY_WITHIN, || async { Ok(!self.held(&busy).await?.is_empty()) }).await?;
        let Some(name) = fleet.pause(self.place) else { return Ok(()) };
        let jobs = self.held(&name).await?;
        let gone = !jobs.is_empty() && self.pause.until(|| self.are_others(&name, &jobs)).await?;
        fleet.resume(self.place, &name);
        let answered = || async { journal::has_answer(&self.journals, &name, &jobs) };
        if gone && self.pause.within(self.pause.longest, answered).await? {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn held(&self, name: &str) -> anyhow::Result<Vec<Uuid>> {
        let held = "SELECT id FROM workflow_queue_projection WHERE status = 'processing' AND worker_id = $1";
        let rows = self.pause.client.query(held, &[&name]).await.context("read the jobs that a worker holds")?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// True if other workers have claimed all of these jobs.
    async fn are_others(&self, name: &str, jobs: &[Uuid]) -> anyhow::Result<bool> {
        let left = "SELECT count(*) FROM workflow_queue_projection
                     WHERE id = ANY ($2) AND (status = 'pending' OR status = 'processing' AND worker_id = $1)";
        let row = self
            .pause
            .client
            .query_one(left, &[&name, &jobs])
            .await
            .context("check whether the worker still holds its jobs")?;
        Ok(row.get::<_, i64>(0) == 0)
    }
}
