//! Ends a run: builds its end from the rows, and records it.
//!
//! Invariants
//! - The end is recorded with the last node if an activity knows that it is the last (`step`, `attempt_end`), else by
//!   an activity of its own.
//! - If the database cannot store the outputs of the workflow, the execution fails with that reason.
//!
//! What happens if this process dies: before the commit, the activity is repeated. After it, the repeat finds that the
//! run has ended, and changes nothing.
//!
//! Not here: which outcome a run has (`kernel::run`), what it means (`engine::ending`).

use engine::embedded::RunExit;
use engine::ending;
use engine::versions::LoadedVersion;
use kernel::expression::Scope;
use kernel::ids::{NodeKey, ProcessId, WorkspaceId};
use kernel::run::Outcome;
use kernel::run::failure::Failure;
use serde_json::Value;
use store::batch::{BatchResult, by_halves};
use store::queue::claim::Begun;
use store::run::attempt::Ownership;
use store::run::{End, NodeFact, Record};

use super::runs::LoadedRun;
use super::{Activity, RunActivities, SOON, repeat_after, repeat_on};
use crate::message::CompletedRun;

impl RunActivities {
    pub(super) async fn try_complete(&self, hold: Ownership, outcome: &Outcome) -> Activity<Option<CompletedRun>> {
        let Some(LoadedRun { begun, version, .. }) = self.load_run(hold).await? else {
            return self.end_terminated(hold).await;
        };
        let scope = engine::scope::scope(&begun, &version);
        let end = self.build_end(hold, (&begun, &version), outcome, scope, &[]).await?;
        match self.end(hold, end).await? {
            Some(completed) => Ok(Some(completed)),
            None => self.end_terminated(hold).await,
        }
    }

    /// Builds the end for an outcome. `facts`: the nodes that settle in the same commit.
    pub(super) async fn build_end(
        &self,
        hold: Ownership,
        (begun, version): (&Begun, &LoadedVersion),
        outcome: &Outcome,
        mut scope: Scope,
        facts: &[NodeFact],
    ) -> Activity<End> {
        let mut read_nodes: Vec<NodeKey> = match outcome {
            Outcome::Completed => version.read_by_outputs().into_iter().collect(),
            _ => Vec::new(),
        };
        if let Outcome::Failed { node } = outcome {
            read_nodes.push(version.plan.node(*node).key.clone());
        }
        let (new, stored): (Vec<NodeKey>, Vec<NodeKey>) =
            read_nodes.into_iter().partition(|node| facts.iter().any(|fact| fact.iteration == 0 && fact.node == *node));
        let mut errors = self.load_outputs(hold, &stored, &mut scope).await?;
        for fact in facts.iter().filter(|fact| fact.iteration == 0 && new.contains(&fact.node)) {
            add_to_scope(&mut scope, version, fact);
            errors.extend(fact.error.clone());
        }
        let failure = |_| errors.into_iter().next_back();
        Ok(ending::end(outcome, begun.workspace, version, &scope, failure).await)
    }

    /// Loads the outputs of these nodes into a scope. Returns the errors of those that failed, in order.
    pub(super) async fn load_outputs(
        &self,
        hold: Ownership,
        nodes: &[NodeKey],
        scope: &mut Scope,
    ) -> Activity<Vec<Failure>> {
        if nodes.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = nodes.iter().map(NodeKey::as_str).collect();
        let mut errors = Vec::new();
        for row in self.store.some_nodes(hold.execution, &names).await.map_err(repeat_on)? {
            if row.status.is_settled() {
                let seen = engine::scope::seen(row.status, row.output.unwrap_or_default(), row.error.as_ref());
                scope.nodes.insert(row.node, seen);
                errors.extend(row.error);
            }
        }
        Ok(errors)
    }

    /// Ends the execution if it was terminated and its end is not stored yet. None if there was nothing to do.
    pub(super) async fn end_terminated(&self, hold: Ownership) -> Activity<Option<CompletedRun>> {
        let owned = self.store.owned_run(hold.execution, hold.owner).await.map_err(repeat_on)?;
        let Some(owned) = owned.filter(|owned| owned.terminating) else {
            tracing::warn!(execution_id = %hold.execution,
                "Run ended in Temporal after its execution had ended or was deleted");
            return Ok(None);
        };
        self.end(Ownership { epoch: owned.begun.epoch, ..hold }, ending::terminated()).await
    }

    /// Ends the execution. None if another run owns it.
    pub(super) async fn end(&self, hold: Ownership, end: End) -> Activity<Option<CompletedRun>> {
        let record = Record { end: Some(end.clone()), ..Record::new(hold.execution, hold) };
        let recorded = match self.record(hold.owner, record).await? {
            BatchResult::Done(recorded) => recorded,
            BatchResult::Refused(_) => return Box::pin(self.end(hold, ending::unstorable())).await,
        };
        if !recorded.held {
            self.runs.forget(hold.execution);
            // The execution may have been deleted. Its run is over, so the slot is freed.
            for workspace in self.store.fail_items_of_missing(&[hold.execution], "engine").await.map_err(repeat_on)? {
                (self.on_run_exit)(hold.execution, RunExit::Ended { freed: Some(workspace) });
            }
            return Ok(None);
        }
        Ok(Some(self.announce_end(hold, &end, recorded.freed)))
    }

    /// Counts an end that was recorded, and reports the slot that it freed.
    pub(super) fn announce_end(&self, hold: Ownership, end: &End, freed: Option<WorkspaceId>) -> CompletedRun {
        let (status, class) = (end.outcome, end.error.as_ref().map(|error| error.class));
        self.runs.forget(hold.execution);
        ending::counted(status, class);
        (self.on_run_exit)(hold.execution, RunExit::Ended { freed });
        CompletedRun { status, class }
    }

    /// Writes one record. A record that the database can never store is `Refused`; an unavailable database is an error.
    pub(super) async fn record(&self, owner: ProcessId, record: Record) -> Activity<BatchResult<store::run::Recorded>> {
        let records = [record];
        let fates = by_halves(&records, |some| self.store.record(owner, some, "engine")).await.map_err(repeat_on)?;
        fates.into_iter().next().ok_or_else(|| repeat_after("DATABASE", "the database did not confirm a record", SOON))
    }
}

/// Adds a node that settles to a scope, for the nodes after it. The output is added only if something reads it.
pub(super) fn add_to_scope(scope: &mut Scope, version: &LoadedVersion, fact: &NodeFact) {
    if fact.iteration == 0 && fact.status.is_settled() {
        let read = version.read_nodes.contains(&fact.node);
        let output = fact.output.as_ref().filter(|_| read).map_or(Value::Null, Value::clone);
        scope.nodes.insert(fact.node.clone(), engine::scope::seen(fact.status, output, fact.error.as_ref()));
    }
}
