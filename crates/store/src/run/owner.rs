//! Runs that change owner: runs of dead processes, runs that their owner gave up, and parked runs that wake.
//!
//! Invariants
//! - Every change of owner raises the epoch, so the previous owner's facts are refused from then on.
//! - Changing the owner skips locked rows: two processes never wait for each other, and never get the same run.
//!
//! Not here: who is dead (`process`), resuming (`engine`).

use std::time::Duration;

use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::run::crash::Deaths;
use tokio_postgres::Row;

use crate::queue::claim::{LivenessRule, millis};
use crate::run::uuids;
use crate::sql::sql;
use crate::{Error, Store, parsed};

/// A run that this process took over: its owner died, or gave it up.
#[derive(Clone, Copy, Debug)]
pub struct TakenOverRun {
    pub execution: ExecutionId,
    pub epoch: i64,
    pub deaths: Deaths,
    /// The previous owner died; false: it gave the run up.
    pub dead: bool,
    /// The run recorded progress between its last two deaths.
    pub progressed: bool,
}

impl Store {
    /// Takes over runs of dead owners in these shards, at most `room` runs.
    pub async fn take_over_orphans(
        &self,
        shards: &[i16],
        process: ProcessId,
        rule: LivenessRule,
        engine: &str,
        room: usize,
    ) -> Result<Vec<TakenOverRun>, Error> {
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        let rows = self
            .query(
                sql!("workflow_execution/take_over_orphans"),
                &[
                    &shards,
                    &process.0,
                    &rule.dead_after.as_secs_f64(),
                    &rule.steady,
                    &engine,
                    &room,
                    &kernel::SEMANTICS,
                ],
            )
            .await?;
        let taken_over = |row: &Row| {
            let last: i64 = row.try_get("last_seq")?;
            let before: Option<i64> = row.try_get("deaths_seq")?;
            Ok(TakenOverRun {
                execution: ExecutionId(row.try_get("id")?),
                epoch: row.try_get("owner_epoch")?,
                deaths: Deaths { count: row.try_get("deaths")?, alone: row.try_get("alone")? },
                dead: row.try_get("dead")?,
                progressed: before != Some(last),
            })
        };
        rows.iter().map(taken_over).collect()
    }

    /// Counts the runs of dead owners in these shards, up to `most`.
    pub async fn count_orphans(
        &self,
        shards: &[i16],
        rule: LivenessRule,
        engine: &str,
        most: usize,
    ) -> Result<usize, Error> {
        let (dead_after, most) = (rule.dead_after.as_secs_f64(), i64::try_from(most).unwrap_or(i64::MAX));
        let sql = sql!("workflow_execution/count_orphans");
        let row = self.one(sql, &[&shards, &dead_after, &rule.steady, &engine, &most, &kernel::SEMANTICS]).await?;
        Ok(usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0))
    }

    /// Becomes the owner of parked runs that are due, at most `room` runs.
    pub async fn wake_due(&self, process: ProcessId, engine: &str, room: usize) -> Result<Vec<ExecutionId>, Error> {
        let room = i64::try_from(room).unwrap_or(i64::MAX);
        let rows =
            self.query(sql!("workflow_execution/wake_due"), &[&process.0, &room, &engine, &kernel::SEMANTICS]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get(0)?))).collect()
    }

    /// How long until the next deadline of an execution that has not begun.
    pub async fn next_deadline(&self) -> Result<Option<Duration>, Error> {
        let row = self.one(sql!("workflow_execution/next_deadline"), &[]).await?;
        Ok(row.try_get::<_, Option<i64>>(0)?.map(millis))
    }

    /// How long until the next parked run of this engine is due.
    pub async fn next_wake(&self, engine: &str) -> Result<Option<Duration>, Error> {
        let row = self.one(sql!("workflow_execution/next_wake"), &[&engine]).await?;
        Ok(row.try_get::<_, Option<i64>>(0)?.map(millis))
    }

    /// Stores how often the owners of a run have died, before the run is resumed. False if this process no longer owns
    /// the run.
    pub async fn record_deaths(&self, process: ProcessId, run: &TakenOverRun, deaths: i32) -> Result<bool, Error> {
        let sql = sql!("workflow_execution/record_deaths");
        let rows = self.query(sql, &[&run.execution.0, &process.0, &run.epoch, &deaths]).await?;
        Ok(!rows.is_empty())
    }

    /// Records that a suspected run runs alone from now on. False if this process no longer owns the run.
    pub async fn mark_alone(&self, process: ProcessId, execution: ExecutionId, epoch: i64) -> Result<bool, Error> {
        let rows = self.query(sql!("workflow_execution/mark_alone"), &[&execution.0, &process.0, &epoch]).await?;
        Ok(!rows.is_empty())
    }

    /// The runs of this engine that have a slot and whose owner is this process, with their epochs.
    pub async fn owned_runs(&self, process: ProcessId, engine: &str) -> Result<Vec<(ExecutionId, i64)>, Error> {
        let rows = self.query(sql!("workflow_execution/owned"), &[&process.0, &engine]).await?;
        rows.iter().map(|row| Ok((ExecutionId(row.try_get(0)?), row.try_get(1)?))).collect()
    }

    /// Executions whose deadline has passed and that no process owns.
    pub async fn overdue_executions(&self) -> Result<Vec<(ExecutionId, execution::Status)>, Error> {
        let rows = self.query(sql!("workflow_execution/overdue"), &[]).await?;
        rows.iter()
            .map(|row| Ok((ExecutionId(row.try_get("id")?), parsed(row, "status", execution::Status::parse)?)))
            .collect()
    }

    /// Makes parked runs due now. Returns how many were parked.
    pub async fn make_parked_due(&self, runs: &[ExecutionId]) -> Result<usize, Error> {
        let rows = self.query(sql!("workflow_execution/make_parked_due"), &[&uuids(runs)]).await?;
        Ok(rows.len())
    }
}
