//! Kills processes and stops them for a while, as the seed says.
//!
//! Invariants
//! - Enough processes stay untouched that the rest can be told dead and taken over.
//! - Some pauses are as long as the seed says, up to twice the lease. The others, every third strike and
//!   the first among them, hit the busiest process and last until somebody has taken over and repeats
//!   what was in flight; then its last records, sent before the pause, arrive, and it wakes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use store::connect::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Leases, ms};
use crate::random::Random;
use crate::receiver::Receiver;
use crate::service::Fleet;

/// How often a waiting pause looks for repeats.
const LOOK: Duration = Duration::from_millis(20);
/// For how long before a pause the records of the process are kept back.
const KEPT_BACK: Duration = Duration::from_millis(250);

pub(super) struct Nemesis {
    pub(super) fleet: Arc<Fleet>,
    pub(super) receiver: Receiver,
    pub(super) random: Random,
    pub(super) leases: Leases,
    /// From one fault to the next, in ms.
    pub(super) every: (u64, u64),
    pub(super) stop: CancellationToken,
    pub(super) client: Arc<Client>,
    /// Counts those who woke after their runs had been taken over.
    pub(super) zombies: Arc<AtomicUsize>,
}

impl Nemesis {
    /// Does its worst until told to stop. Fails if a process cannot be started again.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let mut strikes = 0usize;
        loop {
            let next = ms(self.random.between(self.every.0, self.every.1));
            tokio::select! {
                () = tokio::time::sleep(next) => {
                    self.strike(strikes, &mut tasks).await?;
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

    async fn strike(&mut self, strike: usize, tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
        let healthy = self.fleet.healthy();
        if healthy.len() <= self.fleet.len() / 2 {
            return Ok(());
        }
        let place = healthy[self.random.below(healthy.len())];
        if strike.is_multiple_of(3) {
            let busiest = self.busiest().await?.and_then(|name| self.fleet.place_of(&name));
            self.pause_until_taken_over(busiest.unwrap_or(place), tasks);
        } else if self.random.below(4) < 3 {
            self.kill(place, tasks);
        } else {
            self.pause(place, tasks);
        }
        Ok(())
    }

    /// The process that holds the most runs.
    async fn busiest(&self) -> anyhow::Result<Option<String>> {
        let row = self
            .client
            .query_opt(
                "SELECT p.name FROM execution_queue q JOIN workflow_execution e ON e.id = q.id
                   JOIN chaos_process p ON p.id = e.owner
                  WHERE q.stage = 5 GROUP BY p.name ORDER BY count(*) DESC, p.name LIMIT 1",
                &[],
            )
            .await
            .context("look for the busiest process")?;
        Ok(row.map(|row| row.get(0)))
    }

    fn kill(&mut self, place: usize, tasks: &mut JoinSet<anyhow::Result<()>>) {
        let pause = ms(self.random.between(0, self.leases.shards));
        if self.fleet.kill(place).is_none() {
            return;
        }
        let fleet = Arc::clone(&self.fleet);
        tasks.spawn(async move {
            tokio::time::sleep(pause).await;
            fleet.restart(place).await
        });
    }

    fn pause(&mut self, place: usize, tasks: &mut JoinSet<anyhow::Result<()>>) {
        let lease = self.leases.runs;
        let length = ms(self.random.between(lease / 3, 2 * lease));
        let Some(name) = self.fleet.pause(place) else { return };
        let (fleet, stop) = (Arc::clone(&self.fleet), self.stop.clone());
        tasks.spawn(async move {
            tokio::select! { () = tokio::time::sleep(length) => {}, () = stop.cancelled() => {} }
            fleet.resume(place, &name);
            Ok(())
        });
    }

    fn pause_until_taken_over(&mut self, place: usize, tasks: &mut JoinSet<anyhow::Result<()>>) {
        let Some(name) = self.fleet.name(place) else { return };
        let zombie = Zombie {
            fleet: Arc::clone(&self.fleet),
            receiver: self.receiver.clone(),
            client: Arc::clone(&self.client),
            place,
            name,
            longest: 2 * ms(self.leases.runs),
            wakes: ms(self.random.between(0, 200)),
            stop: self.stop.clone(),
            made: Arc::clone(&self.zombies),
        };
        tasks.spawn(zombie.make());
    }
}

/// A process that is to wake when another has taken its runs over.
struct Zombie {
    fleet: Arc<Fleet>,
    receiver: Receiver,
    client: Arc<Client>,
    place: usize,
    name: String,
    longest: Duration,
    wakes: Duration,
    stop: CancellationToken,
    made: Arc<AtomicUsize>,
}

impl Zombie {
    async fn make(self) -> anyhow::Result<()> {
        let late = "INSERT INTO chaos_late (name) VALUES ($1) ON CONFLICT DO NOTHING";
        self.client.execute(late, &[&self.name]).await.context("keep records back")?;
        tokio::time::sleep(KEPT_BACK).await;
        let paused = self.fleet.pause(self.place).filter(|name| *name == self.name);
        let (runs, seen) = (self.runs().await?, self.receiver.count());
        let began = Instant::now();
        while paused.is_some() && began.elapsed() < self.longest && !self.stop.is_cancelled() {
            tokio::time::sleep(LOOK).await;
            if self.receiver.repeats(&runs, seen) {
                tokio::time::sleep(self.wakes).await;
                self.made.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        self.client.execute("DELETE FROM chaos_late WHERE name = $1", &[&self.name]).await.context("let records go")?;
        self.fleet.resume(self.place, &self.name);
        Ok(())
    }

    /// What it holds now.
    async fn runs(&self) -> anyhow::Result<BTreeSet<Uuid>> {
        let held = "SELECT e.id FROM execution_queue q JOIN workflow_execution e ON e.id = q.id
                      JOIN chaos_process p ON p.id = e.owner WHERE q.stage = 5 AND p.name = $1";
        let rows = self.client.query(held, &[&self.name]).await.context("look for what a process holds")?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
