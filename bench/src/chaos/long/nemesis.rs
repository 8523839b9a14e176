//! What is done to servers and workers: kills of both, servers paused until they are dead, workers until others have
//! their tasks.
//!
//! Invariants
//! - One server always lives: the others can be told dead by it, and the API is there.
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
use super::super::{Leases, ms};
use crate::random::Random;
use crate::service::Fleet;

/// How often it is looked whether a paused one's work is another's.
const LOOK: Duration = Duration::from_millis(25);
/// How long it is waited for one that holds something.
const BUSY_WITHIN: Duration = Duration::from_secs(2);

/// How many paused ones woke when others had what they held.
#[derive(Debug, Default)]
pub(super) struct Late {
    pub(super) servers: AtomicUsize,
    pub(super) workers: AtomicUsize,
}

pub(super) struct Nemesis {
    pub(super) servers: Arc<Fleet>,
    pub(super) workers: Arc<Fleet>,
    pub(super) bases: PathBuf,
    pub(super) random: Random,
    pub(super) leases: Leases,
    /// Of tasks.
    pub(super) lease: Duration,
    /// From one fault to the next, in ms.
    pub(super) every: (u64, u64),
    pub(super) stop: CancellationToken,
    pub(super) client: Arc<Client>,
    pub(super) late: Arc<Late>,
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
        match strike % 6 {
            2 => drop(tasks.spawn(self.pause(Sort::Server).until_another_has_it())),
            4 => drop(tasks.spawn(self.pause(Sort::Worker).until_another_has_it())),
            0 | 5 => self.kill(Sort::Server, tasks),
            _ => self.kill(Sort::Worker, tasks),
        }
    }

    fn fleet(&self, sort: Sort) -> Arc<Fleet> {
        Arc::clone(if sort == Sort::Server { &self.servers } else { &self.workers })
    }

    fn kill(&mut self, sort: Sort, tasks: &mut JoinSet<anyhow::Result<()>>) {
        let fleet = self.fleet(sort);
        let healthy = fleet.healthy();
        if healthy.len() <= sort.spared() {
            return;
        }
        let place = healthy[self.random.below(healthy.len())];
        let away = ms(self.random.between(0, self.leases.shards / 3));
        fleet.kill(place);
        let (servers, bases) = (Arc::clone(&self.servers), self.bases.clone());
        tasks.spawn(async move {
            tokio::time::sleep(away).await;
            fleet.restart(place).await?;
            tell_bases(&servers, &bases)
        });
    }

    fn pause(&mut self, sort: Sort) -> Pause {
        let longest = match sort {
            Sort::Server => 2 * ms(self.leases.runs),
            Sort::Worker => 3 * self.lease + Duration::from_secs(2),
        };
        Pause {
            fleet: self.fleet(sort),
            sort,
            client: Arc::clone(&self.client),
            longest,
            wakes: ms(self.random.between(0, 300)),
            stop: self.stop.clone(),
            late: Arc::clone(&self.late),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Server,
    Worker,
}

impl Sort {
    /// So many are always left alone.
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
                "SELECT worker, id, claim_id FROM workflow_execution_ask
                  WHERE status = 'CLAIMED' AND (input ->> 'ms')::float8 >= lease_s * 1000 ORDER BY id"
            }
        }
    }
}

/// One that is to wake when what it held is another's.
struct Pause {
    fleet: Arc<Fleet>,
    sort: Sort,
    client: Arc<Client>,
    longest: Duration,
    wakes: Duration,
    stop: CancellationToken,
    late: Arc<Late>,
}

impl Pause {
    async fn until_another_has_it(self) -> anyhow::Result<()> {
        let Some((place, name)) = self.busy().await? else { return Ok(()) };
        if self.fleet.pause(place).is_none_or(|paused| paused != name) {
            return Ok(());
        }
        let held = self.held_by(&name).await?;
        let (began, mut gone) = (Instant::now(), false);
        while !held.is_empty() && !gone && began.elapsed() < self.longest && !self.stop.is_cancelled() {
            tokio::time::sleep(LOOK).await;
            gone = self.are_others(&held).await?;
        }
        if gone {
            tokio::time::sleep(self.wakes).await;
            let count = if self.sort == Sort::Server { &self.late.servers } else { &self.late.workers };
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.fleet.resume(place, &name);
        Ok(())
    }

    /// One that may be paused and holds something.
    async fn busy(&self) -> anyhow::Result<Option<(usize, String)>> {
        let began = Instant::now();
        while began.elapsed() < BUSY_WITHIN && !self.stop.is_cancelled() {
            let healthy = self.fleet.healthy();
            for (name, ..) in self.held().await? {
                let place = self.fleet.place_of(&name).filter(|place| healthy.contains(place));
                if let Some(place) = place.filter(|_| healthy.len() > self.sort.spared()) {
                    return Ok(Some((place, name)));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(None)
    }

    async fn held_by(&self, name: &str) -> anyhow::Result<Vec<(Uuid, Uuid)>> {
        let all = self.held().await?.into_iter();
        Ok(all.filter(|(holder, ..)| holder == name).map(|(_, what, hold)| (what, hold)).collect())
    }

    /// Has somebody else one of these by now?
    async fn are_others(&self, held: &[(Uuid, Uuid)]) -> anyhow::Result<bool> {
        let now = self.held().await?;
        Ok(held.iter().any(|(what, hold)| now.iter().any(|(_, other, by)| other == what && by != hold)))
    }

    async fn held(&self) -> anyhow::Result<Vec<(String, Uuid, Uuid)>> {
        let rows = self.client.query(self.sort.held(), &[]).await.context("look for what is held")?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect())
    }
}
