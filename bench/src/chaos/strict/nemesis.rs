//! The faults for processes: kills and pauses.
//!
//! Invariants
//! - Enough processes are neither killed nor paused, so that they can declare the others dead and take over their runs.
//! - Some pauses have a random length of up to twice the lease. Every third strike, beginning with the first, pauses
//!   the process with the most runs. This pause lasts until another process has taken over and repeats the calls in
//!   flight. Then the delayed records of the paused process arrive, and it is resumed.

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

/// How long before a pause the records of the process are delayed.
const KEPT_BACK: Duration = Duration::from_millis(250);
/// The name of the process, the execution and the owner of every run.
const HELD: &str = "SELECT p.name, e.id, e.owner FROM execution_queue q JOIN workflow_execution e ON e.id = q.id
                      JOIN chaos_process p ON p.id = e.owner WHERE q.stage = 5 ORDER BY p.name";

pub(super) struct Faults {
    pub(super) fleet: Arc<Fleet>,
    pub(super) receiver: Receiver,
    pub(super) leases: Leases,
    /// Counts processes that woke after others had taken over their runs.
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

    /// Pauses the process that holds the most runs, or the process at `place` if no process holds a run.
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

/// A paused process that is resumed when another process has taken over its runs.
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
        client.execute(late, &[&self.name]).await.context("delay the records of the paused process")?;
        tokio::time::sleep(KEPT_BACK).await;
        let paused = fleet.pause(self.place).filter(|name| *name == self.name);
        let held = self.pause.held(HELD).await?.into_iter();
        let runs: BTreeSet<Uuid> = held.filter(|(name, ..)| *name == self.name).map(|(_, run, _)| run).collect();
        let seen = self.receiver.count();
        let repeated = || async { Ok(self.receiver.repeats(&runs, seen)) };
        if paused.is_some() && self.pause.until(repeated).await? {
            self.made.fetch_add(1, Ordering::Relaxed);
        }
        client
            .execute("DELETE FROM chaos_late WHERE name = $1", &[&self.name])
            .await
            .context("end the delay of records")?;
        fleet.resume(self.place, &self.name);
        Ok(())
    }
}
