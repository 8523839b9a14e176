//! How the queue stands, for gauges.
//!
//! Invariants
//! - A sample is bounded: it costs no more with a million waiting than with ten thousand.
//!
//! Not here: when to look, and telling (`server::signals::sampler`).

use crate::sql::sql;
use crate::{Error, Store};

/// The most items of one shard and stage that are counted.
const MOST: i32 = 10_000;
/// The most workspaces of one shard that are looked at, with ready items and with slots each.
const WORKSPACES: i32 = 500;

/// One shard, or several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub ready: i64,
    /// Of all shards together; told for shard 0 alone.
    pub delayed: i64,
    pub for_key: i64,
    pub for_definition: i64,
    pub slots: i64,
    /// Limits of the workspaces that hold slots or have ready items.
    pub slots_limit: i64,
    /// Age of the oldest item that only its turn keeps waiting; zero if there is none.
    pub oldest_for_turn_s: f64,
    /// Age of the oldest ready item of a full or paused workspace.
    pub oldest_for_slot_s: f64,
}

impl Sample {
    /// Both together.
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

/// The oldest snapshot that keeps deleted rows from being removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OldestSnapshot {
    /// For how long it has been held.
    pub seconds: f64,
    /// How many transactions have begun since.
    pub transactions: i64,
}

impl Store {
    /// How old the oldest snapshot of the database is.
    pub async fn oldest_snapshot(&self) -> Result<OldestSnapshot, Error> {
        let row = self.one(sql!("pg_stat_activity/oldest"), &[]).await?;
        Ok(OldestSnapshot { seconds: row.try_get("seconds")?, transactions: row.try_get("transactions")? })
    }

    /// How one shard stands.
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
