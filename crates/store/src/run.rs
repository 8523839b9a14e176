//! Runs in flight: begun, recorded, ended, taken up again.
//!
//! Invariants
//! - Every fact is fenced: it is stored only while this process owns the run under that epoch.
//! - Two ways to end, `complete` and `record` with an end; what follows an end is one function for both.
//! - A successor reads node rows in a statement after its own ownership update.
//!
//! Not here: runs that change hands (`adopt`), what to do next (`kernel::run`), performing nodes (`engine`).

pub mod adopt;
pub mod attempt;
pub mod child;
pub mod handed_over;
pub mod iteration;

use std::collections::BTreeMap;
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
use crate::{Error, Params, Store, parsed};

/// One thing that happened to a node.
#[derive(Clone, Debug)]
pub struct NodeFact {
    pub node: NodeKey,
    pub iteration: i32,
    pub status: node::Status,
    pub attempt: u32,
    /// When it goes on by itself: the end of a delay, the next attempt.
    pub next_in: Option<Duration>,
    pub label: Option<Label>,
    pub input: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Failure>,
    /// It may be performed at most once: whoever ends its execution while it is RUNNING cannot know whether it took
    /// effect.
    pub once: bool,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    pub outcome: execution::Status,
    pub output: Option<Value>,
    pub error: Option<Failure>,
}

/// What one run did since it last said.
#[derive(Clone, Debug)]
pub struct Record {
    pub execution: ExecutionId,
    /// Whose owner runs it: itself, or the root whose tree it is in.
    pub holder: ExecutionId,
    /// The holder's.
    pub epoch: i64,
    /// In the order in which they happened, at most one a node and iteration.
    pub facts: Vec<NodeFact>,
    pub end: Option<End>,
    /// The run, with all its tree, needs no process for so long, unless something comes for it.
    pub park: Option<Duration>,
}

impl Record {
    /// A record of this execution, under the hold of its tree's root, that says nothing yet.
    pub fn new(execution: ExecutionId, root: attempt::Hold) -> Record {
        let (holder, epoch) = (root.execution, root.epoch);
        Record { execution, holder, epoch, facts: Vec::new(), end: None, park: None }
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// This process still owned the run; if not, nothing was stored.
    pub held: bool,
    pub ended: bool,
    /// The workspace that has a slot more now.
    pub freed: Option<WorkspaceId>,
}

/// An execution that somebody ends.
#[derive(Clone, Debug)]
pub struct Ending {
    pub execution: ExecutionId,
    /// The claim that must still hold the item.
    pub claim: Option<ClaimId>,
    pub end: End,
}

/// What became of an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub execution: ExecutionId,
    /// This call ended it; otherwise it had ended before and its outcome stands.
    pub applied: bool,
    /// It still had a ticket.
    pub ticket: bool,
    pub workspace: WorkspaceId,
    pub freed: bool,
}

/// What `begin` answered for one run.
#[derive(Clone, Debug)]
pub enum BeginAnswer {
    Granted(Box<Begun>),
    Ended,
    NotYet,
    Gone,
}

/// A stored node of a run.
#[derive(Clone, Debug)]
pub struct StoredNode {
    pub node: NodeKey,
    pub status: node::Status,
    pub attempt: u32,
    pub label: Option<Label>,
    pub output: Option<Value>,
    pub error: Option<Failure>,
    pub next_in: Option<Duration>,
}

/// A run that its owner may go on with, and whether it should.
#[derive(Clone, Debug)]
pub struct Owned {
    pub begun: Begun,
    pub canceling: bool,
    /// It is to be ended, not gone on with.
    pub terminating: bool,
}

/// A run to go on with: what it is, and the nodes it left.
#[derive(Debug)]
pub struct Loaded {
    pub begun: Begun,
    pub canceling: bool,
    /// It is to be ended, not gone on with.
    pub terminating: bool,
    /// Its nodes, or why they cannot be read: one run's trouble is its own.
    pub nodes: Result<Vec<StoredNode>, Error>,
}

impl Store {
    /// May these runs of this process perform nodes?
    pub async fn begin(
        &self,
        runs: &[ExecutionId],
        engine: &str,
        process: ProcessId,
    ) -> Result<Vec<(ExecutionId, BeginAnswer)>, Error> {
        self.begin_at(runs, engine, None, process).await
    }

    /// The same for an engine that is not this process: `place` says where its runs live, and the
    /// owner is the engine's run itself, so that whoever performs it may ask again.
    pub async fn begin_at(
        &self,
        runs: &[ExecutionId],
        engine: &str,
        place: Option<&str>,
        owner: ProcessId,
    ) -> Result<Vec<(ExecutionId, BeginAnswer)>, Error> {
        let ids = uuids(runs);
        let params: Params<'_> = &[&ids, &engine, &place, &owner.0, &kernel::SEMANTICS];
        let rows = self.query(sql!("workflow_execution/begin"), params).await?;
        let answer = |row: &Row| {
            let execution = ExecutionId(row.try_get("execution")?);
            let answer = match row.try_get("answer")? {
                "granted" => {
                    let workspace = WorkspaceId(row.try_get("workspace")?);
                    let definition = DefinitionId(row.try_get("definition")?);
                    BeginAnswer::Granted(Box::new(begun(row, execution, workspace, definition, row.try_get("epoch")?)?))
                }
                "ended" => BeginAnswer::Ended,
                "not_yet" => BeginAnswer::NotYet,
                _ => BeginAnswer::Gone,
            };
            Ok((execution, answer))
        };
        rows.iter().map(answer).collect()
    }

    /// Stores what runs of this process did, all in one commit. Answers are in the order of the records.
    pub async fn record(&self, process: ProcessId, records: &[Record], actor: &str) -> Result<Vec<Recorded>, Error> {
        let (runs, holders): (Vec<_>, Vec<_>) = records.iter().map(|it| (it.execution.0, it.holder.0)).unzip();
        let epochs: Vec<i64> = records.iter().map(|record| record.epoch).collect();
        let park: Vec<Option<i64>> = records.iter().map(|record| record.park.map(whole_ms)).collect();
        // Whose a fact is, by its place among the records: the same execution may be there twice.
        let placed = || (1i32..).zip(records);
        let facts: Vec<(i32, &NodeFact)> =
            placed().flat_map(|(at, record)| record.facts.iter().map(move |fact| (at, fact))).collect();
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
        let errors: Vec<Option<Value>> = facts.iter().map(|(_, fact)| fact.error.as_ref().map(json)).collect();
        let once: Vec<bool> = facts.iter().map(|(_, fact)| fact.once).collect();
        let ends: Vec<(i32, &End)> = placed().filter_map(|(at, record)| Some((at, record.end.as_ref()?))).collect();
        let end_ids: Vec<i32> = ends.iter().map(|(at, _)| *at).collect();
        let end_settled: Vec<i32> = records.iter().filter(|record| record.end.is_some()).map(settled).collect();
        let outcomes: Vec<&str> = ends.iter().map(|(_, end)| end.outcome.name()).collect();
        let end_outputs: Vec<Option<&Value>> = ends.iter().map(|(_, end)| end.output.as_ref()).collect();
        let end_errors: Vec<Option<Value>> = ends.iter().map(|(_, end)| end.error.as_ref().map(json)).collect();
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
        rows.iter().map(recorded).collect::<Result<_, _>>().map(|told| warned(records, told))
    }

    /// Ends executions. `from` narrows which status is meant; what had ended already is answered
    /// with `applied` false, and what the claim no longer holds is not answered at all. A ticket whose
    /// execution is missing becomes a dead letter.
    pub async fn complete(
        &self,
        endings: &[Ending],
        from: Option<execution::Status>,
        actor: &str,
    ) -> Result<Vec<Ended>, Error> {
        let ids: Vec<Uuid> = endings.iter().map(|ending| ending.execution.0).collect();
        let outcomes: Vec<&str> = endings.iter().map(|ending| ending.end.outcome.name()).collect();
        let outputs: Vec<Option<&Value>> = endings.iter().map(|ending| ending.end.output.as_ref()).collect();
        let errors: Vec<Option<Value>> = endings.iter().map(|ending| ending.end.error.as_ref().map(json)).collect();
        let claims: Vec<Option<Uuid>> = endings.iter().map(|ending| ending.claim.map(|claim| claim.0)).collect();
        let from = from.map(execution::Status::name);
        let sql = sql!("workflow_execution/complete");
        let rows = self.query(sql, &[&ids, &outcomes, &outputs, &errors, &claims, &from, &actor]).await?;
        let told: Vec<Ended> = rows.iter().map(ended).collect::<Result<_, _>>()?;
        for ended in told.iter().filter(|ended| ended.ticket && !ended.applied) {
            let (execution_id, workspace_id) = (ended.execution, ended.workspace);
            tracing::warn!(%execution_id, %workspace_id, "Removed the queue item of an execution that is over or gone");
        }
        Ok(told)
    }

    /// Everything that runs owned by this process need to go on.
    pub async fn load_runs(&self, process: ProcessId, runs: &[ExecutionId]) -> Result<Vec<Loaded>, Error> {
        let ids = uuids(runs);
        let rows = self.query(sql!("workflow_execution/load_runs"), &[&ids, &process.0]).await?;
        let mut nodes = self.load_nodes(&ids).await?;
        let loaded = |row: &Row| {
            let Owned { begun, canceling, terminating } = owned_run(row)?;
            let nodes = nodes.remove(&begun.execution).unwrap_or_else(|| Ok(Vec::new()));
            Ok(Loaded { begun, canceling, terminating, nodes })
        };
        rows.iter().map(loaded).collect()
    }

    /// The nodes of one run, without the iterations of its loops.
    pub async fn run_nodes(&self, execution: ExecutionId) -> Result<Vec<StoredNode>, Error> {
        let mut nodes = self.load_nodes(&[execution.0]).await?;
        nodes.remove(&execution).unwrap_or_else(|| Ok(Vec::new()))
    }

    async fn load_nodes(&self, ids: &[Uuid]) -> Result<BTreeMap<ExecutionId, Result<Vec<StoredNode>, Error>>, Error> {
        let rows = self.query(sql!("workflow_execution_node/load"), &[&ids]).await?;
        let mut nodes: BTreeMap<ExecutionId, Result<Vec<StoredNode>, Error>> = BTreeMap::new();
        for row in &rows {
            let of = nodes.entry(ExecutionId(row.try_get("execution_id")?)).or_insert_with(|| Ok(Vec::new()));
            match (of.as_mut(), stored_node(row)) {
                (Ok(known), Ok(node)) => known.push(node),
                (Ok(_), Err(error)) => *of = Err(error),
                (Err(_), _) => {}
            }
        }
        Ok(nodes)
    }
}

pub(crate) fn ended(row: &Row) -> Result<Ended, Error> {
    Ok(Ended {
        execution: ExecutionId(row.try_get("execution")?),
        // Null: there is no such execution.
        applied: row.try_get::<_, Option<bool>>("applied")?.unwrap_or(false),
        ticket: row.try_get("ticket")?,
        workspace: WorkspaceId(row.try_get("workspace")?),
        freed: row.try_get("freed")?,
    })
}

pub(crate) fn owned_run(row: &Row) -> Result<Owned, Error> {
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
    Ok(Owned { begun, canceling: row.try_get("canceling")?, terminating: row.try_get("terminating")? })
}

fn all_answered(rows: &[Row], records: &[Record]) -> Result<(), Error> {
    let missing = || Error::Corrupt("a record was not answered".to_owned());
    if rows.len() == records.len() { Ok(()) } else { Err(missing()) }
}

/// How many of its nodes a record settles.
fn settled(record: &Record) -> i32 {
    let settled = record.facts.iter().filter(|fact| fact.status.is_settled()).count();
    i32::try_from(settled).unwrap_or(i32::MAX)
}

/// A root that runs has an item in a slot; a child has none. One that is missing when its execution ends is told of.
fn warned(records: &[Record], told: Vec<Recorded>) -> Vec<Recorded> {
    for (record, told) in records.iter().zip(&told) {
        if told.ended && told.freed.is_none() && record.execution == record.holder {
            tracing::warn!(execution_id = %record.execution, "The queue item of an execution was missing at its end");
        }
    }
    told
}

fn recorded(row: &Row) -> Result<Recorded, Error> {
    let freed: bool = row.try_get("freed")?;
    let workspace = row.try_get::<_, Option<Uuid>>("workspace")?.map(WorkspaceId);
    Ok(Recorded { held: row.try_get("held")?, ended: row.try_get("ended")?, freed: workspace.filter(|_| freed) })
}

pub(crate) fn stored_node(row: &Row) -> Result<StoredNode, Error> {
    let corrupt = |what: &dyn std::fmt::Display| Error::Corrupt(format!("a node row: {what}"));
    let label: Option<&str> = row.try_get("label")?;
    let error: Option<Value> = row.try_get("error")?;
    let attempt: i32 = row.try_get("attempt")?;
    Ok(StoredNode {
        node: NodeKey::new(row.try_get("node")?).map_err(|bad| corrupt(&bad))?,
        status: parsed(row, "status", node::Status::parse)?,
        attempt: u32::try_from(attempt).map_err(|bad| corrupt(&bad))?,
        label: label.map(Label::new).transpose().map_err(|bad| corrupt(&bad))?,
        output: row.try_get("output")?,
        error: error.map(failure),
        next_in: row.try_get::<_, Option<i64>>("next_in_ms")?.map(millis),
    })
}

/// A failure as it was stored; a class that only a newer build knows is read as the general one.
pub(crate) fn failure(stored: Value) -> Failure {
    let message = stored["message"].as_str().unwrap_or_default().to_owned();
    serde_json::from_value(stored).unwrap_or_else(|_| Failure::new(Class::ExecutionError, message))
}

pub(crate) fn json(failure: &Failure) -> Value {
    serde_json::to_value(failure).unwrap_or_else(|_| Value::String(failure.message.clone()))
}

pub(crate) fn uuids(runs: &[ExecutionId]) -> Vec<Uuid> {
    runs.iter().map(|run| run.0).collect()
}

pub(crate) fn whole_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
