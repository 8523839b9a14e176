//! What is done to processes: kills, and pauses.
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
use uuid::Uuid;

use super::super::nemesis::{Nemesis, Pause, Strikes};
use super::super::{Leases, ms};
use crate::receiver::Receiver;
use crate::service::Fleet;

/// For how long before a pause the records of the process are kept back.
const KEPT_BACK: Duration = Duration::from_millis(250);
/// Who runs what.
const HELD: &str = "SELECT p.name, e.id, e.owner FROM execution_queue q JOIN workflow_execution e ON e.id = q.id
                      JOIN chaos_process p ON p.id = e.owner WHERE q.stage = 5 ORDER BY p.name";

pub(super) struct Faults {
    pub(super) fleet: Arc<Fleet>,
    pub(super) receiver: Receiver,
    pub(super) leases: Leases,
    /// Counts those who woke after their runs had been taken over.
    pub(super) zombies: Arc<AtomicUsize>,
}

impl Strikes for Faults {
    async fn strike(&mut self, nemesis: &mut Nemesis, strike: usize) -> anyhow::Result<()> {
        let Some(place) = nemesis.one_of(&self.fleet, self.fleet.len() / 2) else { return Ok(()) };
        if strike.is_multiple_of(3) {
            self.pause_the_busiest(nemesis, place).await?;
        } else if nemesis.random.below(4) < 3 {
            nemesis.kill(&self.fleet, place, self.leases.shards);
        } else {
            self.pause(nemesis, place);
        }
        Ok(())
    }
}

impl Faults {
    fn pause(&self, nemesis: &mut Nemesis, place: usize) {
        let lease = self.leases.runs;
        let length = ms(nemesis.random.between(lease / 3, 2 * lease));
        let Some(name) = self.fleet.pause(place) else { return };
        let (fleet, stop) = (Arc::clone(&self.fleet), nemesis.stop.clone());
        nemesis.spawn(async move {
            tokio::select! { () = tokio::time::sleep(length) => {}, () = stop.cancelled() => {} }
            fleet.resume(place, &name);
            Ok(())
        });
    }

    /// Pauses the process that holds the most runs, or this one if none holds any.
    async fn pause_the_busiest(&self, nemesis: &mut Nemesis, place: usize) -> anyhow::Result<()> {
        let pause = nemesis.pause(&self.fleet, 2 * ms(self.leases.runs), 200);
        let holders: Vec<String> = pause.held(HELD).await?.into_iter().map(|(name, ..)| name).collect();
        let busiest = holders.chunk_by(|one, next| one == next).max_by_key(|runs| runs.len());
        let place = busiest.and_then(|runs| self.fleet.place_of(&runs[0])).unwrap_or(place);
        let Some(name) = self.fleet.name(place) else { return Ok(()) };
        let (receiver, made) = (self.receiver.clone(), Arc::clone(&self.zombies));
        nemesis.spawn(Zombie { pause, receiver, place, name, made }.make());
        Ok(())
    }
}

/// A process that is to wake when another has taken its runs over.
struct Zombie {
    pause: Pause,
    receiver: Receiver,
    place: usize,
    name: String,
    made: Arc<AtomicUsize>,
}

impl Zombie {
    async fn make(self) -> anyhow::Result<()> {
        let Pause { client, fleet, .. } = &self.pause;
        let late = "INSERT INTO chaos_late (name) VALUES ($1) ON CONFLICT DO NOTHING";
        client.execute(late, &[&self.name]).await.context("keep records back")?;
        tokio::time::sleep(KEPT_BACK).await;
        let paused = fleet.pause(self.place).filter(|name| *name == self.name);
        let held = self.pause.held(HELD).await?.into_iter();
        let runs: BTreeSet<Uuid> = held.filter(|(name, ..)| *name == self.name).map(|(_, run, _)| run).collect();
        let seen = self.receiver.count();
        let repeated = || async { Ok(self.receiver.repeats(&runs, seen)) };
        if paused.is_some() && self.pause.until(repeated).await? {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        client.execute("DELETE FROM chaos_late WHERE name = $1", &[&self.name]).await.context("let records go")?;
        fleet.resume(self.place, &self.name);
        Ok(())
    }
}
