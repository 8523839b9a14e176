//! Runs that change hands: of the dead, of those who gave them up, parked and woken.
//!
//! Invariants
//! - Every change of owner raises the epoch, so that the last owner's facts are refused from then on.
//! - Taking skips locked rows: two takers never wait for each other, and never take the same run.
//!
//! Not here: who is dead (`process`), resuming (`engine`).

use std::time::Duration;

use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::run::crash::Deaths;
use tokio_postgres::Row;

use crate::queue::claim::{Silence, millis};
use crate::run::uuids;
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// A run whose owner died, now owned by this process.
#[derive(Clone, Copy, Debug)]
pub struct Orphan {
    pub execution: ExecutionId,
    pub epoch: i64,
    pub deaths: Deaths,
    /// Its owner died, rather than leaving it.
    pub dead: bool,
    /// It recorded something since its previous death.
    pub progressed: bool,
}

impl Store {
    /// Takes the runs of dead owners in these shards, at most `room` of them.
    pub async fn adopt_orphans(
        &self,
        shards: &[i16],
        process: ProcessId,
        silence: Silence,
        engine: &str,
        room: usize,
    ) -> Result<Vec<Orphan>, Error> {
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        let rows = self
            .query(
                sql!("workflow_execution/adopt_orphans"),
                &[
                    &shards,
                    &process.0,
                    &silence.dead_after.as_secs_f64(),
                    &silence.steady,
                    &engine,
                    &room,
                    &kernel::SEMANTICS,
                ],
            )
            .await?;
        let orphan = |row: &Row| {
            let last: i64 = row.try_get("last_seq")?;
            let before: Option<i64> = row.try_get("deaths_seq")?;
            Ok(Orphan {
                execution: ExecutionId(row.try_get("id")?),
                epoch: row.try_get("owner_epoch")?,
                deaths: Deaths { count: row.try_get("deaths")?, alone: row.try_get("alone")? },
                dead: row.try_get("dead")?,
                progressed: before != Some(last),
            })
        };
        rows.iter().map(orphan).collect()
    }

    /// How many runs of dead owners wait in these shards; no more than `most` are counted.
    pub async fn count_orphans(
        &self,
        shards: &[i16],
        silence: Silence,
        engine: &str,
        most: usize,
    ) -> Result<usize, Error> {
        let (dead_after, most) = (silence.dead_after.as_secs_f64(), i64::try_from(most).unwrap_or(i64::MAX));
        let sql = sql!("workflow_execution/count_orphans");
        let row = self.one(sql, &[&shards, &dead_after, &silence.steady, &engine, &most, &kernel::SEMANTICS]).await?;
        Ok(usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0))
    }

    /// Takes parked runs whose time has come, at most `room` of them.
    pub async fn wake(&self, process: ProcessId, engine: &str, room: usize) -> Result<Vec<ExecutionId>, Error> {
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        let rows =
            self.query(sql!("workflow_execution/wake"), &[&process.0, &room, &engine, &kernel::SEMANTICS]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get(0)?))).collect()
    }

    /// How long until the next deadline of anything that has not ended and that nobody runs.
    pub async fn next_deadline(&self) -> Result<Option<Duration>, Error> {
        let row = self.one(sql!("workflow_execution/next_deadline"), &[]).await?;
        Ok(row.try_get::<_, Option<i64>>(0)?.map(millis))
    }

    /// How long until the next parked run is due.
    pub async fn next_wake(&self) -> Result<Option<Duration>, Error> {
        let row = self.one(sql!("workflow_execution/next_wake"), &[]).await?;
        Ok(row.try_get::<_, Option<i64>>(0)?.map(millis))
    }

    /// Keeps the number of a run's deaths before it is resumed; false if it is no longer this process's.
    pub async fn note_deaths(&self, process: ProcessId, orphan: &Orphan, deaths: i32) -> Result<bool, Error> {
        let sql = sql!("workflow_execution/note_deaths");
        let rows = self.query(sql, &[&orphan.execution.0, &process.0, &orphan.epoch, &deaths]).await?;
        Ok(!rows.is_empty())
    }

    /// Notes that a suspect runs alone from now on; false if it is no longer this process's.
    pub async fn note_alone(&self, process: ProcessId, execution: ExecutionId, epoch: i64) -> Result<bool, Error> {
        let rows = self.query(sql!("workflow_execution/note_alone"), &[&execution.0, &process.0, &epoch]).await?;
        Ok(!rows.is_empty())
    }

    /// The runs of this engine in slots that name this process as owner, with their epochs.
    pub async fn owned(&self, process: ProcessId, engine: &str) -> Result<Vec<(ExecutionId, i64)>, Error> {
        let rows = self.query(sql!("workflow_execution/owned"), &[&process.0, &engine]).await?;
        rows.iter().map(|row| Ok((ExecutionId(row.try_get(0)?), row.try_get(1)?))).collect()
    }

    /// Executions whose deadline has passed and that nobody runs.
    pub async fn overdue(&self) -> Result<Vec<(ExecutionId, execution::Status)>, Error> {
        let rows = self.query(sql!("workflow_execution/overdue"), &[]).await?;
        rows.iter()
            .map(|row| Ok((ExecutionId(row.try_get("id")?), parsed(row, "status", execution::Status::parse)?)))
            .collect()
    }

    /// Wakes parked runs now; answers how many were parked.
    pub async fn rouse(&self, runs: &[ExecutionId]) -> Result<usize, Error> {
        let rows = self.query(sql!("workflow_execution/rouse"), &[&uuids(runs)]).await?;
        Ok(rows.len())
    }
}
