//! Nodes that an external engine hands out to workers: a worker starts an attempt, performs it and reports the result.
//!
//! Invariants
//! - The node's row is the only record of its attempts. If a worker dies before it reports, that costs no attempt. If
//!   another worker has started the attempt again, a late report changes nothing.
//! - Every write here is fenced twice: by the run's owner and epoch, and by the fence that starting the attempt
//!   returned.
//!
//! Not here: runs of this process, which are recorded in batches (`run`), what to perform (`engine`).

use std::time::Duration;

use kernel::ids::{DefinitionId, ExecutionId, Label, NodeKey, ProcessId, VersionId, WorkspaceId};
use kernel::queue::Priority;
use kernel::run::failure::Failure;
use kernel::run::node;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::queue::claim::millis;
use crate::run::{End, NodeFact, OwnedRun, StoredNode, failure_json, failure_of, owned_run, stored_node, whole_ms};
use crate::sql::sql;
use crate::wait::{WaitState, finished_state, wait_key};
use crate::{Error, Store, parsed};

/// How the workers of a run identify it: every write passes the execution, its owner and the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    pub execution: ExecutionId,
    pub owner: ProcessId,
    pub epoch: i64,
}

/// The result of starting an attempt at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptStart {
    /// Another process owns this run, or it has ended.
    Lost,
    /// The node has already settled, with this status.
    Settled { status: node::Status, label: Option<Label>, error: Option<Failure> },
    /// The next attempt is due after this time.
    NotDue(Duration),
    /// The worker has to perform this attempt, and report it under this fence. `wait`: how long a wait that was stored
    /// before has left. `begun`: another worker began a call that may be made at most once, and did not report its
    /// result.
    Perform { attempt: u32, fence: i32, wait: Option<Duration>, begun: bool },
}

/// An attempt at a node, or at an iteration of a loop, to start.
#[derive(Clone, Debug)]
pub struct NewAttempt {
    pub ownership: Ownership,
    pub node: NodeKey,
    pub iteration: i32,
    pub input: Option<Value>,
}

/// The result of an attempt, to report under the fence that starting it returned.
#[derive(Clone, Debug)]
pub struct AttemptReport {
    pub ownership: Ownership,
    pub fence: i32,
    pub fact: NodeFact,
    /// With this result the run ends.
    pub end: Option<End>,
}

/// The result of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    Stored,
    /// Stored, together with the end of the run. The end freed a slot in this workspace.
    Ended {
        freed: Option<WorkspaceId>,
    },
    /// Another process owns this run, or it has ended.
    Lost,
    /// Another worker started the attempt again, or the node had already settled.
    Superseded,
}

/// An open node whose wait was answered or has expired, and that has not received that result.
#[derive(Clone, Debug, PartialEq)]
pub struct UndeliveredResult {
    pub node: NodeKey,
    pub iteration: i32,
    pub attempt: u32,
    pub fence: i32,
    /// The node's input.
    pub input: Option<Value>,
    /// The wait's state; never open.
    pub state: WaitState,
}

/// What an external engine needs to know about an execution to start it.
#[derive(Clone, Debug, PartialEq)]
pub struct StartDetails {
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub version: VersionId,
    pub semantics: i32,
    pub priority: Priority,
    pub weight: i16,
}

impl Store {
    /// Reads what the start requests of these executions pass to the engine. Executions without a row are left out.
    pub async fn start_details(&self, executions: &[ExecutionId]) -> Result<Vec<(ExecutionId, StartDetails)>, Error> {
        let ids: Vec<Uuid> = executions.iter().map(|execution| execution.0).collect();
        let rows = self.query(sql!("workflow_execution/start_details"), &[&ids]).await?;
        let details = |row: &Row| {
            let priority = Priority::new(row.try_get("priority")?).map_err(|bad| Error::Corrupt(bad.to_string()))?;
            let details = StartDetails {
                workspace: WorkspaceId(row.try_get("workspace_id")?),
                definition: DefinitionId(row.try_get("workflow_definition_id")?),
                version: VersionId(row.try_get("version_id")?),
                semantics: row.try_get("semantics")?,
                priority,
                weight: row.try_get("weight")?,
            };
            Ok((ExecutionId(row.try_get("id")?), details))
        };
        rows.iter().map(details).collect()
    }

    /// A run of this owner, without its nodes. None if another process owns it, or it has ended.
    pub async fn owned_run(&self, execution: ExecutionId, owner: ProcessId) -> Result<Option<OwnedRun>, Error> {
        let rows = self.query(sql!("workflow_execution/load_runs"), &[&vec![execution.0], &owner.0]).await?;
        rows.first().map(owned_run).transpose()
    }

    /// The states of a run's nodes, without outputs.
    pub async fn node_states(&self, execution: ExecutionId) -> Result<Vec<StoredNode>, Error> {
        let rows = self.query(sql!("workflow_execution_node/states"), &[&execution.0]).await?;
        rows.iter().map(stored_node).collect()
    }

    /// Some nodes of a run, with outputs.
    pub async fn some_nodes(&self, execution: ExecutionId, nodes: &[&str]) -> Result<Vec<StoredNode>, Error> {
        let rows = self.query(sql!("workflow_execution_node/some"), &[&execution.0, &nodes]).await?;
        rows.iter().map(stored_node).collect()
    }

    /// Some nodes and iterations of a run, without outputs.
    pub async fn nodes_at(
        &self,
        execution: ExecutionId,
        positions: &[(&NodeKey, i32)],
    ) -> Result<Vec<(i32, StoredNode)>, Error> {
        let nodes: Vec<&str> = positions.iter().map(|(node, _)| node.as_str()).collect();
        let iterations: Vec<i32> = positions.iter().map(|(_, iteration)| *iteration).collect();
        let rows = self.query(sql!("workflow_execution_node/states_at"), &[&execution.0, &nodes, &iterations]).await?;
        rows.iter().map(|row| Ok((row.try_get("iteration")?, stored_node(row)?))).collect()
    }

    /// Open nodes of a run whose waits were answered or have expired (`read_answers` returned them), with the result
    /// that each node has to receive. This only reads, so it may be repeated until the node's row contains the result.
    pub async fn undelivered_results(
        &self,
        execution: ExecutionId,
        limit: i64,
    ) -> Result<Vec<UndeliveredResult>, Error> {
        let rows = self.query(sql!("workflow_execution_wait/undelivered"), &[&execution.0, &limit]).await?;
        let undelivered = |row: &Row| {
            let attempt: i32 = row.try_get("attempt")?;
            let key = wait_key(row, execution)?;
            Ok(UndeliveredResult {
                node: key.node,
                iteration: key.iteration,
                attempt: u32::try_from(attempt).map_err(|bad| Error::Corrupt(format!("node row: {bad}")))?,
                fence: row.try_get("fence")?,
                input: row.try_get("input")?,
                state: finished_state(parsed(row, "status", kernel::wait::Status::parse)?, row)?,
            })
        };
        rows.iter().map(undelivered).collect()
    }

    /// Starts attempts at nodes, all in one commit. A crash before the commit leaves the nodes unchanged. After the
    /// commit, the next worker that starts an attempt gets the same attempt. Results are in the order of the attempts.
    pub async fn start_attempts(&self, attempts: &[NewAttempt]) -> Result<Vec<AttemptStart>, Error> {
        let (executions, owners, epochs) = fences(attempts.iter().map(|attempt| &attempt.ownership));
        let nodes: Vec<&str> = attempts.iter().map(|attempt| attempt.node.as_str()).collect();
        let iterations: Vec<i32> = attempts.iter().map(|attempt| attempt.iteration).collect();
        let inputs: Vec<Option<&Value>> = attempts.iter().map(|attempt| attempt.input.as_ref()).collect();
        let params: crate::Params<'_> = &[&executions, &owners, &epochs, &nodes, &iterations, &inputs];
        let rows = self.query(sql!("workflow_execution_node/start_attempts"), params).await?;
        rows.iter().map(attempt_start).collect()
    }

    /// Records that a call that may be made at most once begins now. False: the caller must not send it. If the reply
    /// is lost, this may be repeated. After a crash before the commit, the next worker makes the call. After a crash
    /// after the commit, nobody knows whether the call was made.
    pub async fn begin_once(
        &self,
        ownership: Ownership,
        node: &NodeKey,
        iteration: i32,
        fence: i32,
    ) -> Result<bool, Error> {
        let Ownership { execution, owner, epoch } = ownership;
        let params: crate::Params<'_> = &[&execution.0, &owner.0, &epoch, &node.as_str(), &iteration, &fence];
        Ok(self.execute(sql!("workflow_execution_node/begin_once"), params).await? > 0)
    }

    /// Removes the record that `begin_once` made, because the call was not sent. Returns false if there is no such
    /// record. May be repeated if the database's reply was lost. Raises the node's fence, so the caller cannot report
    /// anything else for this attempt.
    pub async fn withdraw_once(
        &self,
        ownership: Ownership,
        node: &NodeKey,
        iteration: i32,
        fence: i32,
    ) -> Result<bool, Error> {
        let Ownership { execution, owner, epoch } = ownership;
        let params: crate::Params<'_> = &[&execution.0, &owner.0, &epoch, &node.as_str(), &iteration, &fence];
        Ok(self.execute(sql!("workflow_execution_node/withdraw_once"), params).await? > 0)
    }

    /// Reports the results of attempts, all in one commit. Repeating a stored report returns `Superseded`; after a
    /// report that ended the run it returns `Lost`. Results are in the order of the reports.
    pub async fn report_attempts(&self, reports: &[AttemptReport]) -> Result<Vec<ReportOutcome>, Error> {
        let (executions, owners, epochs) = fences(reports.iter().map(|report| &report.ownership));
        let facts = || reports.iter().map(|report| &report.fact);
        let ends = || reports.iter().map(|report| report.end.as_ref());
        let fences: Vec<i32> = reports.iter().map(|report| report.fence).collect();
        let nodes: Vec<&str> = facts().map(|fact| fact.node.as_str()).collect();
        let iterations: Vec<i32> = facts().map(|fact| fact.iteration).collect();
        let statuses: Vec<&str> = facts().map(|fact| fact.status.name()).collect();
        let attempts: Vec<i32> = facts().map(|fact| i32::try_from(fact.attempt).unwrap_or(i32::MAX)).collect();
        let next: Vec<Option<i64>> = facts().map(|fact| fact.next_in.map(whole_ms)).collect();
        let labels: Vec<Option<&str>> = facts().map(|fact| fact.label.as_ref().map(Label::as_str)).collect();
        let outputs: Vec<Option<&Value>> = facts().map(|fact| fact.output.as_ref()).collect();
        let errors: Vec<Option<Value>> = facts().map(|fact| fact.error.as_ref().map(failure_json)).collect();
        let outcomes: Vec<Option<&str>> = ends().map(|end| Some(end?.outcome.name())).collect();
        let end_outputs: Vec<Option<&Value>> = ends().map(|end| end?.output.as_ref()).collect();
        let end_errors: Vec<Option<Value>> = ends().map(|end| end?.error.as_ref().map(failure_json)).collect();
        let params: crate::Params<'_> = &[
            &executions,
            &owners,
            &epochs,
            &fences,
            &nodes,
            &iterations,
            &statuses,
            &attempts,
            &next,
            &labels,
            &outputs,
            &errors,
            &outcomes,
            &end_outputs,
            &end_errors,
            &"engine",
        ];
        let rows = self.query(sql!("workflow_execution_node/report_attempts"), params).await?;
        rows.iter().map(report_outcome).collect()
    }
}

/// The executions, owners and epochs of runs, as parallel arrays.
fn fences<'a>(all: impl Iterator<Item = &'a Ownership>) -> (Vec<Uuid>, Vec<Uuid>, Vec<i64>) {
    all.map(|run| (run.execution.0, run.owner.0, run.epoch)).collect()
}

fn attempt_start(row: &Row) -> Result<AttemptStart, Error> {
    if !row.try_get::<_, bool>("held")? {
        return Ok(AttemptStart::Lost);
    }
    let status = parsed(row, "status", node::Status::parse)?;
    let wait = row.try_get::<_, Option<i64>>("next_in_ms")?.map(millis);
    let corrupt = |what: &dyn std::fmt::Display| Error::Corrupt(format!("node row: {what}"));
    Ok(match status {
        node::Status::Retrying => AttemptStart::NotDue(wait.unwrap_or_default()),
        node::Status::Pending | node::Status::Running => {
            let attempt: i32 = row.try_get("attempt")?;
            let attempt = u32::try_from(attempt).map_err(|bad| corrupt(&bad))?;
            AttemptStart::Perform { attempt, fence: row.try_get("fence")?, wait, begun: row.try_get("begun")? }
        }
        settled => {
            let label: Option<&str> = row.try_get("label")?;
            AttemptStart::Settled {
                status: settled,
                label: label.map(Label::new).transpose().map_err(|bad| corrupt(&bad))?,
                error: row.try_get::<_, Option<Value>>("error")?.map(failure_of),
            }
        }
    })
}

fn report_outcome(row: &Row) -> Result<ReportOutcome, Error> {
    Ok(match (row.try_get("held")?, row.try_get("current")?, row.try_get("ended")?) {
        (false, _, _) => ReportOutcome::Lost,
        (true, false, _) => ReportOutcome::Superseded,
        (true, true, false) => ReportOutcome::Stored,
        (true, true, true) => ReportOutcome::Ended { freed: row.try_get::<_, Option<Uuid>>("freed")?.map(WorkspaceId) },
    })
}
