//! Iterations of loops: how they stand, and what they produced, a page at a time.
//!
//! Invariants
//! - How they stand is read without what they produced: a loop of ten thousand is small until its end.
//!
//! Not here: storing them (`run`: an iteration is a node row), which is next (`kernel::run::each`).

use std::time::Duration;

use kernel::ids::{ExecutionId, NodeKey};
use kernel::kind::for_each::{MAX_OUTPUT_BYTES, OnItemError};
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use tokio_postgres::Row;

use crate::queue::claim::millis;
use crate::run::attempt::Hold;
use crate::run::failure;
use crate::sql::sql;
use crate::{Error, Params, Store, parsed};

/// How an iteration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iteration {
    pub iteration: i32,
    pub status: node::Status,
    pub attempt: u32,
    pub next_in: Option<Duration>,
}

/// What an iteration came to.
#[derive(Clone, Debug)]
pub struct Produced {
    pub iteration: i32,
    pub status: node::Status,
    pub output: Option<Value>,
    pub error: Option<Failure>,
}

/// What of a loop's output somebody looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looks {
    All,
    /// Not at its items.
    Some,
    None,
}

/// What became of gathering.
#[derive(Clone, Debug, PartialEq)]
pub enum Gathered {
    /// It is stored; here is what is looked at of it.
    Stored(Option<Value>),
    /// It is more than there may be, and nothing is stored.
    TooLarge,
}

impl Store {
    /// Puts what the iterations of a loop came to into its own row, which stays open; the fact that completes it needs
    /// no output then. None if the hold is lost. Repeatable.
    pub async fn gather(
        &self,
        hold: Hold,
        execution: ExecutionId,
        node: &NodeKey,
        mode: OnItemError,
        looks: Looks,
    ) -> Result<Option<Gathered>, Error> {
        let (collect, most) = (mode == OnItemError::Collect, i64::try_from(MAX_OUTPUT_BYTES).unwrap_or(i64::MAX));
        let looks = match looks {
            Looks::All => "all",
            Looks::Some => "some",
            Looks::None => "none",
        };
        let Hold { execution: holder, owner, epoch } = hold;
        let params: Params<'_> = &[&holder.0, &owner.0, &epoch, &execution.0, &node.as_str(), &collect, &most, &looks];
        let row = self.one(sql!("workflow_execution_node/gather"), params).await?;
        Ok(match (row.try_get("held")?, row.try_get("large")?) {
            (false, _) => None,
            (true, true) => Some(Gathered::TooLarge),
            (true, false) => Some(Gathered::Stored(row.try_get("output")?)),
        })
    }

    /// How the iterations of a loop after one stand, in order.
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
                attempt: u32::try_from(attempt).map_err(|bad| Error::Corrupt(format!("a node row: {bad}")))?,
                next_in: row.try_get::<_, Option<i64>>("next_in_ms")?.map(millis),
            })
        };
        rows.iter().map(iteration).collect()
    }

    /// What the iterations of a loop after one came to, in order.
    pub async fn produced(
        &self,
        execution: ExecutionId,
        node: &NodeKey,
        after: i32,
        limit: i64,
    ) -> Result<Vec<Produced>, Error> {
        let sql = sql!("workflow_execution_node/produced");
        let rows = self.query(sql, &[&execution.0, &node.as_str(), &after, &limit]).await?;
        let produced = |row: &Row| {
            Ok(Produced {
                iteration: row.try_get("iteration")?,
                status: parsed(row, "status", node::Status::parse)?,
                output: row.try_get("output")?,
                error: row.try_get::<_, Option<Value>>("error")?.map(failure),
            })
        };
        rows.iter().map(produced).collect()
    }

    /// What a node was given, if it has begun.
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
