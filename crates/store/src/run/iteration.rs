//! Iterations of loops: their states and their outputs, a page at a time.
//!
//! Invariants
//! - States are read without outputs, so a loop of ten thousand items needs little memory until it ends.
//!
//! Not here: storing them (`run`: an iteration is a node row), which is next (`kernel::run::item_loop`).

use std::time::Duration;

use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{MAX_OUTPUT_BYTES, OnItemError};
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use tokio_postgres::Row;

use crate::queue::claim::millis;
use crate::run::attempt::Ownership;
use crate::run::failure_of;
use crate::sql::sql;
use crate::{Error, Params, Store, parsed};

/// The state of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    pub iteration: i32,
    pub status: node::Status,
    pub attempt: u32,
    pub next_in: Option<Duration>,
}

/// The result of an iteration.
#[derive(Clone, Debug)]
pub struct IterationResult {
    pub iteration: i32,
    pub status: node::Status,
    pub output: Option<Value>,
    pub error: Option<Failure>,
}

/// Which part of a loop's output its readers use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputUse {
    All,
    /// Everything except its items.
    Some,
    None,
}

/// The result of collecting the outputs of a loop's iterations.
#[derive(Clone, Debug, PartialEq)]
pub enum CollectedOutput {
    /// The output is stored; the value is the part of it that readers use.
    Stored(Option<Value>),
    /// The output exceeds the limit, and nothing is stored.
    TooLarge,
}

impl Store {
    /// Collects the results of a loop's iterations into the loop's own row, which stays open. The fact that completes
    /// the loop then needs no output. None if this process no longer owns the run. Repeatable.
    pub async fn collect_iterations(
        &self,
        ownership: Ownership,
        execution: ExecutionId,
        node: &NodeKey,
        mode: OnItemError,
        usage: OutputUse,
    ) -> Result<Option<CollectedOutput>, Error> {
        let (collect, most) = (mode == OnItemError::Collect, i64::try_from(MAX_OUTPUT_BYTES).unwrap_or(i64::MAX));
        let usage = match usage {
            OutputUse::All => "all",
            OutputUse::Some => "some",
            OutputUse::None => "none",
        };
        let Ownership { execution: holder, owner, epoch } = ownership;
        let params: Params<'_> = &[&holder.0, &owner.0, &epoch, &execution.0, &node.as_str(), &collect, &most, &usage];
        let row = self.one(sql!("workflow_execution_node/collect"), params).await?;
        Ok(match (row.try_get("held")?, row.try_get("large")?) {
            (false, _) => None,
            (true, true) => Some(CollectedOutput::TooLarge),
            (true, false) => Some(CollectedOutput::Stored(row.try_get("output")?)),
        })
    }

    /// The states of a loop's iterations after `after`, in order.
    pub async fn iterations(
        &self,
        execution: ExecutionId,
        node: &NodeKey,
        after: i32,
        limit: i64,
    ) -> Result<Vec<Iteration>, Error> {
        let sql = sql!("workflow_execution_node/iterations");
        let rows = self.query(sql, &[&execution.0, &node.as_str(), &after, &limit]).await?;
        let iteration = |row: &Row| {
            let attempt: i32 = row.try_get("attempt")?;
            Ok(Iteration {
                iteration: row.try_get("iteration")?,
                status: parsed(row, "status", node::Status::parse)?,
                attempt: u32::try_from(attempt).map_err(|bad| Error::Corrupt(format!("node row: {bad}")))?,
                next_in: row.try_get::<_, Option<i64>>("next_in_ms")?.map(millis),
            })
        };
        rows.iter().map(iteration).collect()
    }

    /// The results of a loop's iterations after `after`, in order.
    pub async fn iteration_results(
        &self,
        execution: ExecutionId,
        node: &NodeKey,
        after: i32,
        limit: i64,
    ) -> Result<Vec<IterationResult>, Error> {
        let sql = sql!("workflow_execution_node/iteration_results");
        let rows = self.query(sql, &[&execution.0, &node.as_str(), &after, &limit]).await?;
        let result = |row: &Row| {
            Ok(IterationResult {
                iteration: row.try_get("iteration")?,
                status: parsed(row, "status", node::Status::parse)?,
                output: row.try_get("output")?,
                error: row.try_get::<_, Option<Value>>("error")?.map(failure_of),
            })
        };
        rows.iter().map(result).collect()
    }

    /// A node's input, if it has begun.
    pub async fn node_input(
        &self,
        execution: ExecutionId,
        node: &NodeKey,
        iteration: i32,
    ) -> Result<Option<Value>, Error> {
        let sql = sql!("workflow_execution_node/input");
        let rows = self.query(sql, &[&execution.0, &node.as_str(), &iteration]).await?;
        rows.first().map_or(Ok(None), |row| Ok(row.try_get(0)?))
    }
}
