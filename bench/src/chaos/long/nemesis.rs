//! The faults for servers and workers: kills of both, servers paused until they are declared dead, workers paused until
//! others have their tasks.
//!
//! Invariants
//! - One server always lives, so that it can declare the others dead and the API stays available.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::nemesis::{LOOK, Nemesis, Pause, Strikes};
use super::super::{Leases, ms};
use crate::service::Fleet;

/// How long to wait for a process that holds something.
const BUSY_WITHIN: Duration = Duration::from_secs(2);

/// How many paused processes woke after others had taken their work.
#[derive(Debug, Default)]
pub(super) struct Late {
    pub(super) servers: AtomicUsize,
    pub(super) workers: AtomicUsize,
}

pub(super) struct Faults {
    pub(super) servers: Arc<Fleet>,
    pub(super) workers: Arc<Fleet>,
    pub(super) leases: Leases,
    /// Of tasks.
    pub(super) lease: Duration,
    pub(super) late: Arc<Late>,
}

impl Strikes for Faults {
    async fn strike(&mut self, nemesis: &mut Nemesis, strike: usize) -> anyhow::Result<()> {
        match strike % 6 {
            2 => self.pause(nemesis, Sort::Server),
            4 => self.pause(nemesis, Sort::Worker),
            0 | 5 => self.kill(nemesis, Sort::Server),
            _ => self.kill(nemesis, Sort::Worker),
        }
        Ok(())
    }
}

impl Faults {
    fn fleet(&self, sort: Sort) -> &Arc<Fleet> {
        if sort == Sort::Server { &self.servers } else { &self.workers }
    }

    fn kill(&self, nemesis: &mut Nemesis, sort: Sort) {
        let fleet = self.fleet(sort);
        if let Some(place) = nemesis.one_of(fleet, sort.spared()) {
            nemesis.kill(fleet, place, self.leases.shards / 3);
        }
    }

    fn pause(&self, nemesis: &mut Nemesis, sort: Sort) {
        let longest = match sort {
            Sort::Server => 2 * ms(self.leases.runs),
            Sort::Worker => 3 * self.lease + Duration::from_secs(2),
        };
        let pause = nemesis.pause(self.fleet(sort), longest, 300);
        nemesis.spawn(until_another_has_it(pause, sort, Arc::clone(&self.late)));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Server,
    Worker,
}

impl Sort {
    /// How many are always left alone.
    fn spared(self) -> usize {
        usize::from(self == Sort::Server)
    }

    /// Who holds what: runs by their owners, and tasks that take longer than a lease by their claims.
    fn held(self) -> &'static str {
        match self {
            Sort::Server => {
                "SELECT p.name, e.id, e.owner FROM workflow_execution e JOIN chaos_process p ON p.id = e.owner
                  WHERE e.status = 'RUNNING' ORDER BY e.descendants DESC, e.id"
            }
            Sort::Worker => {
                "SELECT worker, id, claim_id FROM workflow_execution_wait
                  WHERE status = 'CLAIMED' AND (input ->> 'ms')::float8 >= lease_s * 1000 ORDER BY id"
            }
        }
    }
}

/// Pauses a process that holds something. It wakes when another process has part of it.
async fn until_another_has_it(pause: Pause, sort: Sort, late: Arc<Late>) -> anyhow::Result<()> {
    let Some((place, name)) = busy(&pause, sort).await? else { return Ok(()) };
    if pause.fleet.pause(place).is_none_or(|paused| paused != name) {
        return Ok(());
    }
    let held = pause.held(sort.held()).await?.into_iter();
    let held: Vec<_> = held.filter(|(holder, ..)| *holder == name).map(|(_, what, hold)| (what, hold)).collect();
    let is_anothers = || async {
        let now = pause.held(sort.held()).await?;
        Ok(held.iter().any(|(what, hold)| now.iter().any(|(_, other, by)| other == what && by != hold)))
    };
    if !held.is_empty() && pause.until(is_anothers).await? {
        let count = if sort == Sort::Server { &late.servers } else { &late.workers };
        count.fetch_add(1, Ordering::Relaxed);
    }
    pause.fleet.resume(place, &name);
    Ok(())
}

/// A process that may be paused and holds something.
async fn busy(pause: &Pause, sort: Sort) -> anyhow::Result<Option<(usize, String)>> {
    let began = Instant::now();
    while began.elapsed() < BUSY_WITHIN && !pause.stop.is_cancelled() {
        let healthy = pause.fleet.healthy();
        for (name, ..) in pause.held(sort.held()).await? {
            let place = pause.fleet.place_of(&name).filter(|place| healthy.contains(place));
            if let Some(place) = place.filter(|_| healthy.len() > sort.spared()) {
                return Ok(Some((place, name)));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}
