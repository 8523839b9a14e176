//! Runs in flight: begin, record, end, resume.
//!
//! Invariants
//! - Every fact is fenced: it is stored only while this process owns the run with the same epoch.
//! - There are two ways to end a run: `complete`, and `record` with an end. Both call the same SQL function for
//!   everything that follows.
//! - A new owner reads the node rows in a later statement than the one that made it the owner.
//!
//! Not here: changes of owner (`owner`), what to do next (`kernel::run`), performing nodes (`engine`).

pub mod attempt;
pub mod child;
pub mod dispatched_run;
pub mod iteration;
pub mod owner;
mod stored_node;

use std::time::Duration;

use kernel::execution;
use kernel::ids::{ClaimId, DefinitionId, ExecutionId, Label, NodeKey, ProcessId, VersionId, WorkspaceId};
use kernel::run::failure::{Class, Failure};
use kernel::run::node;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::json::Json;
use crate::queue::claim::{Begun, begun, millis, trace};
use crate::sql::sql;
use crate::{Error, Params, Store};

pub use stored_node::StoredNode;
pub(crate) use stored_node::stored_node;

/// A change of a node's status, to be stored.
#[derive(Clone, Debug)]
pub struct NodeFact {
    pub node: NodeKey,
    pub iteration: i32,
    pub status: node::Status,
    pub attempt: u32,
    /// When the node continues by itself: at the end of a delay, or at the next attempt.
    pub next_in: Option<Duration>,
    pub label: Option<Label>,
    pub input: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Failure>,
    /// The node may be performed at most once. If its execution ends while the node is RUNNING, nobody knows whether
    /// the node took effect.
    pub once: bool,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    pub outcome: execution::Status,
    pub output: Option<Value>,
    pub error: Option<Failure>,
}

/// What one run did since its last record.
#[derive(Clone, Debug)]
pub struct Record {
    pub execution: ExecutionId,
    /// The execution whose owner runs this one: itself, or the root of its tree.
    pub holder: ExecutionId,
    /// The holder's epoch.
    pub epoch: i64,
    /// In the order in which they happened; at most one per node and iteration.
    pub facts: Vec<NodeFact>,
    pub end: Option<End>,
    /// The run and its whole tree need no process for this long, unless an answer or another change arrives for them.
    pub park: Option<Duration>,
}

impl Record {
    /// An empty record of this execution, held by its tree's root.
    pub fn new(execution: ExecutionId, root: attempt::Ownership) -> Record {
        let (holder, epoch) = (root.execution, root.epoch);
        Record { execution, holder, epoch, facts: Vec::new(), end: None, park: None }
    }
}

/// The result of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// This process still owned the run. If false, nothing was stored.
    pub held: bool,
    pub ended: bool,
    /// The workspace in which a slot became free.
    pub freed: Option<WorkspaceId>,
}

/// An execution to end.
#[derive(Clone, Debug)]
pub struct Ending {
    pub execution: ExecutionId,
    /// The claim that must still hold the item.
    pub claim: Option<ClaimId>,
    pub end: End,
}

/// The result of ending an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndResult {
    pub execution: ExecutionId,
    /// This call ended the execution. False: it had ended before, and its outcome is unchanged.
    pub applied: bool,
    /// The execution still had a queue item, which this call removed or failed.
    pub had_queue_item: bool,
    pub workspace: WorkspaceId,
    pub freed: bool,
}

/// The result of `begin` for one run.
#[derive(Clone, Debug)]
pub enum BeginOutcome {
    Granted(Box<Begun>),
    Ended,
    NotYet,
    Missing,
}

/// A run that this process owns, and whether it has to be canceled or ended.
#[derive(Clone, Debug)]
pub struct OwnedRun {
    pub begun: Begun,
    pub canceling: bool,
    /// It has to be ended, not continued.
    pub terminating: bool,
}

/// A run to continue: its data and its stored nodes.
#[derive(Debug)]
pub struct LoadedRun {
    pub begun: Begun,
    pub canceling: bool,
    /// It has to be ended, not continued.
    pub terminating: bool,
    /// The run's nodes, or why they cannot be read. An unreadable run does not affect other runs.
    pub nodes: Result<Vec<StoredNode>, Error>,
}

impl Store {
    /// May these runs of this process perform nodes?
    pub async fn begin(
        &self,
        runs: &[ExecutionId],
        engine: &str,
        process: ProcessId,
    ) -> Result<Vec<(ExecutionId, BeginOutcome)>, Error> {
        self.begin_on_engine(runs, engine, None, process).await
    }

    /// May these runs perform nodes, on an engine outside this process? `location` says where the runs live. The owner
    /// is the engine's own run, so every worker of that run may repeat the call.
    pub async fn begin_on_engine(
        &self,
        runs: &[ExecutionId],
        engine: &str,
        location: Option<&str>,
        owner: ProcessId,
    ) -> Result<Vec<(ExecutionId, BeginOutcome)>, Error> {
        let ids = uuids(runs);
        let params: Params<'_> = &[&ids, &engine, &location, &owner.0, &kernel::SEMANTICS];
        let rows = self.query(sql!("workflow_execution/begin"), params).await?;
        let answer = |row: &Row| {
            let execution = ExecutionId(row.try_get("execution")?);
            let answer = match row.try_get("answer")? {
                "granted" => {
                    let workspace = WorkspaceId(row.try_get("workspace")?);
                    let definition = DefinitionId(row.try_get("definition")?);
                    BeginOutcome::Granted(Box::new(begun(
                        row,
                        execution,
                        workspace,
                        definition,
                        row.try_get("epoch")?,
                    )?))
                }
                "ended" => BeginOutcome::Ended,
                "not_yet" => BeginOutcome::NotYet,
                _ => BeginOutcome::Missing,
            };
            Ok((execution, answer))
        };
        rows.iter().map(answer).collect()
    }

    /// Stores what runs of this process did, all in one commit. Results are in the order of the records.
    pub async fn record(&self, process: ProcessId, records: &[Record], actor: &str) -> Result<Vec<Recorded>, Error> {
        let (runs, holders): (Vec<_>, Vec<_>) = records.iter().map(|it| (it.execution.0, it.holder.0)).unzip();
        let epochs: Vec<i64> = records.iter().map(|record| record.epoch).collect();
        let park: Vec<Option<i64>> = records.iter().map(|record| record.park.map(whole_ms)).collect();
        // A fact names its record by position, because the same execution may occur twice.
        let numbered = || (1i32..).zip(records);
        let facts: Vec<(i32, &NodeFact)> =
            numbered().flat_map(|(at, record)| record.facts.iter().map(move |fact| (at, fact))).collect();
        let ids: Vec<i32> = facts.iter().map(|(at, _)| *at).collect();
        let nodes: Vec<&str> = facts.iter().map(|(_, fact)| fact.node.as_str()).collect();
        let iterations: Vec<i32> = facts.iter().map(|(_, fact)| fact.iteration).collect();
        let statuses: Vec<&str> = facts.iter().map(|(_, fact)| fact.status.name()).collect();
        let attempts: Vec<i32> =
            facts.iter().map(|(_, fact)| i32::try_from(fact.attempt).unwrap_or(i32::MAX)).collect();
        let next: Vec<Option<i64>> = facts.iter().map(|(_, fact)| fact.next_in.map(whole_ms)).collect();
        let labels: Vec<Option<&str>> = facts.iter().map(|(_, fact)| fact.label.as_ref().map(Label::as_str)).collect();
        let inputs: Vec<Option<&Value>> = facts.iter().map(|(_, fact)| fact.input.as_ref()).collect();
        let outputs: Vec<Option<&Value>> = facts.iter().map(|(_, fact)| fact.output.as_ref()).collect();
        let errors: Vec<Option<Value>> = facts.iter().map(|(_, fact)| fact.error.as_ref().map(failure_json)).collect();
        let once: Vec<bool> = facts.iter().map(|(_, fact)| fact.once).collect();
        let ends: Vec<(i32, &End)> = numbered().filter_map(|(at, record)| Some((at, record.end.as_ref()?))).collect();
        let end_ids: Vec<i32> = ends.iter().map(|(at, _)| *at).collect();
        let end_settled: Vec<i32> = records.iter().filter(|record| record.end.is_some()).map(settled).collect();
        let outcomes: Vec<&str> = ends.iter().map(|(_, end)| end.outcome.name()).collect();
        let end_outputs: Vec<Option<&Value>> = ends.iter().map(|(_, end)| end.output.as_ref()).collect();
        let end_errors: Vec<Option<Value>> = ends.iter().map(|(_, end)| end.error.as_ref().map(failure_json)).collect();
        let rows = self
            .query(
                sql!("workflow_execution/record"),
                &[
                    &process.0,
                    &runs,
                    &holders,
                    &epochs,
                    &park,
                    &ids,
                    &nodes,
                    &iterations,
                    &statuses,
                    &attempts,
                    &next,
                    &labels,
                    &inputs,
                    &outputs,
                    &errors,
                    &once,
                    &end_ids,
                    &end_settled,
                    &outcomes,
                    &end_outputs,
                    &end_errors,
                    &actor,
                ],
            )
            .await?;
        all_answered(&rows, records)?;
        rows.iter().map(recorded).collect::<Result<_, _>>().map(|recorded| warned(records, recorded))
    }

    /// Ends executions, only those with the status `from` if it is given. An execution that had already ended is
    /// returned with `applied` false. If the claim no longer holds the item, the execution is not returned. A queue
    /// item whose execution row is missing becomes a dead letter.
    pub async fn complete(
        &self,
        endings: &[Ending],
        from: Option<execution::Status>,
        actor: &str,
    ) -> Result<Vec<EndResult>, Error> {
        let ids: Vec<Uuid> = endings.iter().map(|ending| ending.execution.0).collect();
        let outcomes: Vec<&str> = endings.iter().map(|ending| ending.end.outcome.name()).collect();
        let outputs: Vec<Option<&Value>> = endings.iter().map(|ending| ending.end.output.as_ref()).collect();
        let errors: Vec<Option<Value>> =
            endings.iter().map(|ending| ending.end.error.as_ref().map(failure_json)).collect();
        let claims: Vec<Option<Uuid>> = endings.iter().map(|ending| ending.claim.map(|claim| claim.0)).collect();
        let from = from.map(execution::Status::name);
        let sql = sql!("workflow_execution/complete");
        let rows = self.query(sql, &[&ids, &outcomes, &outputs, &errors, &claims, &from, &actor]).await?;
        let results: Vec<EndResult> = rows.iter().map(end_result_of).collect::<Result<_, _>>()?;
        for ended in results.iter().filter(|ended| ended.had_queue_item && !ended.applied) {
            let (execution_id, workspace_id) = (ended.execution, ended.workspace);
            tracing::warn!(%execution_id, %workspace_id,
                "Execution had already ended or has no row; its queue item was deleted or is now a dead letter");
        }
        Ok(results)
    }

    /// Loads everything that runs owned by this process need to continue.
    pub async fn load_runs(&self, process: ProcessId, runs: &[ExecutionId]) -> Result<Vec<LoadedRun>, Error> {
        let ids = uuids(runs);
        let rows = self.query(sql!("workflow_execution/load_runs"), &[&ids, &process.0]).await?;
        let mut nodes = self.load_nodes(&ids).await?;
        let loaded = |row: &Row| {
            let OwnedRun { begun, canceling, terminating } = owned_run(row)?;
            let nodes = nodes.remove(&begun.execution).unwrap_or_else(|| Ok(Vec::new()));
            Ok(LoadedRun { begun, canceling, terminating, nodes })
        };
        rows.iter().map(loaded).collect()
    }
}

pub(crate) fn end_result_of(row: &Row) -> Result<EndResult, Error> {
    Ok(EndResult {
        execution: ExecutionId(row.try_get("execution")?),
        // Null: the execution row does not exist.
        applied: row.try_get::<_, Option<bool>>("applied")?.unwrap_or(false),
        had_queue_item: row.try_get("had_queue_item")?,
        workspace: WorkspaceId(row.try_get("workspace")?),
        freed: row.try_get("freed")?,
    })
}

pub(crate) fn owned_run(row: &Row) -> Result<OwnedRun, Error> {
    let execution = ExecutionId(row.try_get("id")?);
    let begun = Begun {
        execution,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        version: VersionId(row.try_get("version_id")?),
        epoch: row.try_get("owner_epoch")?,
        input: row.try_get::<_, Option<Json>>("input")?.unwrap_or_default().0,
        trigger: row.try_get::<_, Json>("trigger")?.0,
        created_at: row.try_get("created_at")?,
        deadline_in: millis(row.try_get("deadline_in_ms")?),
        trace: trace(row.try_get("trace_context")?, execution),
    };
    Ok(OwnedRun { begun, canceling: row.try_get("canceling")?, terminating: row.try_get("terminating")? })
}

fn all_answered(rows: &[Row], records: &[Record]) -> Result<(), Error> {
    let missing = || Error::Corrupt("a record returned no row".to_owned());
    if rows.len() == records.len() { Ok(()) } else { Err(missing()) }
}

/// How many nodes a record settles.
fn settled(record: &Record) -> i32 {
    let settled = record.facts.iter().filter(|fact| fact.status.is_settled()).count();
    i32::try_from(settled).unwrap_or(i32::MAX)
}

/// Warns if a root that ended had no queue item. A running root must have a queue item with a slot; a child has none.
fn warned(records: &[Record], results: Vec<Recorded>) -> Vec<Recorded> {
    for (record, result) in records.iter().zip(&results) {
        if result.ended && result.freed.is_none() && record.execution == record.holder {
            tracing::warn!(execution_id = %record.execution,
                "Execution ended, but it had no queue item; a running root must have one");
        }
    }
    results
}

fn recorded(row: &Row) -> Result<Recorded, Error> {
    let freed: bool = row.try_get("freed")?;
    let workspace = row.try_get::<_, Option<Uuid>>("workspace")?.map(WorkspaceId);
    Ok(Recorded { held: row.try_get("held")?, ended: row.try_get("ended")?, freed: workspace.filter(|_| freed) })
}

/// Reads a stored failure. If only a newer build knows its class, the class becomes `EXECUTION_ERROR`.
pub(crate) fn failure_of(stored: Value) -> Failure {
    let message = stored["message"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(stored).unwrap_or_else(|_| Failure::new(Class::ExecutionError, message))
}

pub(crate) fn failure_json(failure: &Failure) -> Value {
    serde_json::to_value(failure).unwrap_or_else(|_| Value::String(failure.message.clone()))
}

pub(crate) fn uuids(runs: &[ExecutionId]) -> Vec<Uuid> {
    runs.iter().map(|run| run.0).collect()
}

pub(crate) fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
