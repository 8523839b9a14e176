//! Samples of the queue's state, from which gauges are set.
//!
//! Invariants
//! - The cost of a sample is bounded: a million queue items cost no more than ten thousand.
//!
//! Not here: when to sample, and publishing the gauges (`server::signals::sampler`).

use crate::sql::sql;
use crate::{Error, Store};

/// The maximum number of items counted per shard and stage.
const MOST: i32 = 10_000;
/// The maximum number of workspaces per shard that are read: those with ready items, and those with slots.
const WORKSPACES: i32 = 500;

/// One shard, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub ready: i64,
    /// Delayed items of all shards together; only the sample of shard 0 has them.
    pub delayed: i64,
    pub for_key: i64,
    pub for_definition: i64,
    pub slots: i64,
    /// The sum of the limits of workspaces that hold slots or have ready items.
    pub slots_limit: i64,
    /// The age of the oldest item that only its turn holds back; zero if there is none.
    pub oldest_for_turn_s: f64,
    /// The age of the oldest ready item of a full or paused workspace.
    pub oldest_for_slot_s: f64,
}

impl Sample {
    /// The two samples combined: counts are added, ages are the maximum.
    #[must_use]
    pub fn and(self, other: Sample) -> Sample {
        Sample {
            ready: self.ready + other.ready,
            delayed: self.delayed + other.delayed,
            for_key: self.for_key + other.for_key,
            for_definition: self.for_definition + other.for_definition,
            slots: self.slots + other.slots,
            slots_limit: self.slots_limit + other.slots_limit,
            oldest_for_turn_s: self.oldest_for_turn_s.max(other.oldest_for_turn_s),
            oldest_for_slot_s: self.oldest_for_slot_s.max(other.oldest_for_slot_s),
        }
    }
}

/// The oldest snapshot, which prevents vacuum from removing deleted rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OldestSnapshot {
    /// For how long the snapshot has been held.
    pub seconds: f64,
    /// How many transactions have begun since the snapshot.
    pub transactions: i64,
}

impl Store {
    /// Reads the age of the oldest snapshot in the database.
    pub async fn oldest_snapshot(&self) -> Result<OldestSnapshot, Error> {
        let row = self.one(sql!("pg_stat_activity/oldest"), &[]).await?;
        Ok(OldestSnapshot { seconds: row.try_get("seconds")?, transactions: row.try_get("transactions")? })
    }

    /// Samples one shard.
    pub async fn sample(&self, shard: i16) -> Result<Sample, Error> {
        let row = self.one(sql!("execution_queue/sample"), &[&shard, &MOST, &WORKSPACES]).await?;
        Ok(Sample {
            ready: row.try_get("ready")?,
            delayed: row.try_get("delayed")?,
            for_key: row.try_get("for_key")?,
            for_definition: row.try_get("for_definition")?,
            slots: row.try_get("slots")?,
            slots_limit: row.try_get("slots_limit")?,
            oldest_for_turn_s: row.try_get("oldest_for_turn_s")?,
            oldest_for_slot_s: row.try_get("oldest_for_slot_s")?,
        })
    }
}
