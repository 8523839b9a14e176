//! Nodes of runs that an engine elsewhere hands out to workers: one is taken, performed and told of.
//!
//! Invariants
//! - The node's row is the truth of its attempts: a worker that dies before it tells costs none, and one that
//!   tells after its successor took the node changes nothing.
//! - Every write here is fenced twice: by the run's owner and epoch, and by the number the taking gave.
//!
//! Not here: runs of this very process, which record in batches (`run`), what to perform (`engine`).

use std::time::Duration;

use kernel::ids::{DefinitionId, ExecutionId, Label, NodeKey, ProcessId, VersionId, WorkspaceId};
use kernel::queue::Priority;
use kernel::run::failure::Failure;
use kernel::run::node;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::Row;

use crate::queue::claim::millis;
use crate::run::{NodeFact, Owned, StoredNode, failure, json, owned_run, stored_node, whole_ms};
use crate::sql::sql;
use crate::wait::{Standing, over, place_of};
use crate::{Error, Store, parsed};

/// A run as its workers name it: each write shows all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub execution: ExecutionId,
    pub owner: ProcessId,
    pub epoch: i64,
}

/// A node that somebody wants to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The run is another's by now, or over.
    Lost,
    /// It settled so before.
    Settled { status: node::Status, label: Option<Label>, error: Option<Failure> },
    /// Its next attempt is due in so long.
    Early(Duration),
    /// To be performed: this attempt, told of under this fence. A wait that was noted before has so long to go.
    /// `begun`: somebody had begun a call that may be made at most once, and did not tell of it.
    Go { attempt: u32, fence: i32, wait: Option<Duration>, begun: bool },
}

/// What became of telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Stored,
    /// The run is another's by now, or over.
    Lost,
    /// Another attempt took the node meanwhile, or it was settled before.
    Overtaken,
}

/// A node whose ask is over, and that does not know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unheard {
    pub node: NodeKey,
    pub iteration: i32,
    pub attempt: u32,
    pub fence: i32,
    /// What the node was given.
    pub input: Option<Value>,
    /// Never open.
    pub standing: Standing,
}

/// What an engine elsewhere is told of an execution when it is started.
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub version: VersionId,
    pub semantics: i32,
    pub priority: Priority,
    pub weight: i16,
}

impl Store {
    /// What a start tells the engine.
    pub async fn brief(&self, execution: ExecutionId) -> Result<Brief, Error> {
        let row = self.one(sql!("workflow_execution/brief"), &[&execution.0]).await?;
        let priority = Priority::new(row.try_get("priority")?).map_err(|bad| Error::Corrupt(bad.to_string()))?;
        Ok(Brief {
            workspace: WorkspaceId(row.try_get("workspace_id")?),
            definition: DefinitionId(row.try_get("workflow_definition_id")?),
            version: VersionId(row.try_get("version_id")?),
            semantics: row.try_get("semantics")?,
            priority,
            weight: row.try_get("weight")?,
        })
    }

    /// A run of this owner, without its nodes; none if it is another's by now, or over.
    pub async fn owned_run(&self, execution: ExecutionId, owner: ProcessId) -> Result<Option<Owned>, Error> {
        let rows = self.query(sql!("workflow_execution/load_runs"), &[&vec![execution.0], &owner.0]).await?;
        rows.first().map(owned_run).transpose()
    }

    /// How a run's nodes stand, without what they produced.
    pub async fn node_states(&self, execution: ExecutionId) -> Result<Vec<StoredNode>, Error> {
        let rows = self.query(sql!("workflow_execution_node/shape"), &[&execution.0]).await?;
        rows.iter().map(stored_node).collect()
    }

    /// Some nodes of a run, with what they produced.
    pub async fn some_nodes(&self, execution: ExecutionId, nodes: &[&str]) -> Result<Vec<StoredNode>, Error> {
        let rows = self.query(sql!("workflow_execution_node/some"), &[&execution.0, &nodes]).await?;
        rows.iter().map(stored_node).collect()
    }

    /// Some nodes and iterations of a run as they stand, without what they produced.
    pub async fn placed_nodes(
        &self,
        execution: ExecutionId,
        places: &[(&NodeKey, i32)],
    ) -> Result<Vec<(i32, StoredNode)>, Error> {
        let nodes: Vec<&str> = places.iter().map(|(node, _)| node.as_str()).collect();
        let iterations: Vec<i32> = places.iter().map(|(_, iteration)| *iteration).collect();
        let rows = self.query(sql!("workflow_execution_node/placed"), &[&execution.0, &nodes, &iterations]).await?;
        rows.iter().map(|row| Ok((row.try_get("iteration")?, stored_node(row)?))).collect()
    }

    /// Nodes of a run whose asks are over (`answers` saw them) and that are open all the same: what there is to be told
    /// of them. Read, not taken, so that it may be repeated until their rows say it.
    pub async fn unheard(&self, execution: ExecutionId, limit: i64) -> Result<Vec<Unheard>, Error> {
        let rows = self.query(sql!("workflow_execution_ask/unheard"), &[&execution.0, &limit]).await?;
        let unheard = |row: &Row| {
            let attempt: i32 = row.try_get("attempt")?;
            let place = place_of(row, execution)?;
            Ok(Unheard {
                node: place.node,
                iteration: place.iteration,
                attempt: u32::try_from(attempt).map_err(|bad| Error::Corrupt(format!("a node row: {bad}")))?,
                fence: row.try_get("fence")?,
                input: row.try_get("input")?,
                standing: over(parsed(row, "status", kernel::wait::Status::parse)?, row)?,
            })
        };
        rows.iter().map(unheard).collect()
    }

    /// Takes a node for an attempt. Dying before the commit leaves it as it was; after it, whoever takes it next has
    /// the same attempt.
    pub async fn take_node(
        &self,
        hold: Hold,
        node: &NodeKey,
        iteration: i32,
        input: Option<&Value>,
    ) -> Result<Taken, Error> {
        let Hold { execution, owner, epoch } = hold;
        let row = self
            .one(
                sql!("workflow_execution_node/take"),
                &[&execution.0, &owner.0, &epoch, &node.as_str(), &iteration, &input],
            )
            .await?;
        if !row.try_get::<_, bool>("held")? {
            return Ok(Taken::Lost);
        }
        let status = parsed(&row, "status", node::Status::parse)?;
        let wait = row.try_get::<_, Option<i64>>("next_in_ms")?.map(millis);
        let corrupt = |what: &dyn std::fmt::Display| Error::Corrupt(format!("a node row: {what}"));
        Ok(match status {
            node::Status::Retrying => Taken::Early(wait.unwrap_or_default()),
            node::Status::Pending | node::Status::Running => {
                let attempt: i32 = row.try_get("attempt")?;
                let attempt = u32::try_from(attempt).map_err(|bad| corrupt(&bad))?;
                Taken::Go { attempt, fence: row.try_get("fence")?, wait, begun: row.try_get("begun")? }
            }
            settled => {
                let label: Option<&str> = row.try_get("label")?;
                Taken::Settled {
                    status: settled,
                    label: label.map(Label::new).transpose().map_err(|bad| corrupt(&bad))?,
                    error: row.try_get::<_, Option<Value>>("error")?.map(failure),
                }
            }
        })
    }

    /// Notes that a call which may be made at most once begins now; false: nothing is to be sent. It may be repeated
    /// until it is answered. Dying before the commit leaves the call to the next worker; after it, nobody knows whether
    /// it was made.
    pub async fn begin_once(&self, hold: Hold, node: &NodeKey, iteration: i32, fence: i32) -> Result<bool, Error> {
        let Hold { execution, owner, epoch } = hold;
        let params: crate::Params<'_> = &[&execution.0, &owner.0, &epoch, &node.as_str(), &iteration, &fence];
        Ok(self.execute(sql!("workflow_execution_node/begin_once"), params).await? > 0)
    }

    /// Takes that note back: nothing was sent. False: there is no such note to take back any more. It may be repeated
    /// until it is answered. Nothing else may be told under this fence afterwards.
    pub async fn withdraw_once(&self, hold: Hold, node: &NodeKey, iteration: i32, fence: i32) -> Result<bool, Error> {
        let Hold { execution, owner, epoch } = hold;
        let params: crate::Params<'_> = &[&execution.0, &owner.0, &epoch, &node.as_str(), &iteration, &fence];
        Ok(self.execute(sql!("workflow_execution_node/withdraw_once"), params).await? > 0)
    }

    /// Tells what became of an attempt; a repeat of what was stored is answered `Overtaken`.
    pub async fn tell_node(&self, hold: Hold, fence: i32, fact: &NodeFact) -> Result<Told, Error> {
        let Hold { execution, owner, epoch } = hold;
        let attempt = i32::try_from(fact.attempt).unwrap_or(i32::MAX);
        let row = self
            .one(
                sql!("workflow_execution_node/tell"),
                &[
                    &execution.0,
                    &owner.0,
                    &epoch,
                    &fact.node.as_str(),
                    &fact.iteration,
                    &fence,
                    &fact.status.name(),
                    &attempt,
                    &fact.next_in.map(whole_ms),
                    &fact.label.as_ref().map(Label::as_str),
                    &fact.output,
                    &fact.error.as_ref().map(json),
                    &"engine",
                ],
            )
            .await?;
        Ok(match (row.try_get("held")?, row.try_get("current")?) {
            (false, _) => Told::Lost,
            (true, false) => Told::Overtaken,
            (true, true) => Told::Stored,
        })
    }
}
