//! The end of an attempt: this worker stores it under the attempt's fence, and reports it to the workflow.
//!
//! Invariants
//! - The write of a result is repeated until it is stored or a fence refuses it. No transient database error loses it.
//! - If another worker has started the attempt again, the node's fence refuses the result, and the row decides.
//! - The kernel decides whether there is another attempt, and when. Temporal waits for the next attempt of a call. If
//!   the workflow may have to stop the node meanwhile, it waits for the next attempt itself.

use std::time::Duration;

use engine::attempt::{check_output, fact, refused};
use engine::backoff::retry_until_stored;
use engine::nodes::{self, NodeOutput};
use kernel::definition::{self, Manner};
use kernel::run::Outcome;
use kernel::run::attempts::{AfterFailure, AttemptRules};
use kernel::run::failure::Failure;
use kernel::run::node::Status;
use store::run::attempt::{AttemptReport, Ownership, ReportOutcome};
use store::run::{End, NodeFact, StoredNode};

use super::runs::LoadedRun;
use super::{Activity, RunActivities, SOON, repeat_after, repeat_on, settled, whole_ms};
use crate::message::PerformResult;

/// An attempt at a node, or at an item of a loop, that this worker performs.
pub(super) struct Attempt<'a> {
    pub(super) hold: Ownership,
    pub(super) spec: &'a definition::Node,
    pub(super) iteration: i32,
    pub(super) attempt: u32,
    pub(super) fence: i32,
    /// Set if the run completes when this attempt succeeds.
    pub(super) last_of: Option<&'a LoadedRun>,
}

impl RunActivities {
    /// Stores the result of an attempt, and returns the node's state after it.
    pub(super) async fn end_attempt(
        &self,
        attempt: &Attempt<'_>,
        result: Result<NodeOutput, Failure>,
    ) -> Activity<PerformResult> {
        let failure = match check_output(result) {
            Ok(NodeOutput { output, label, stored }) => {
                let output = (!stored).then_some(output);
                let fact = NodeFact { output, label: label.clone(), ..attempt.fact(Status::Completed) };
                let changed = match attempt.last_of {
                    Some(run) => self.store_with_end(attempt, run, &fact).await?,
                    None => self.store_fact(attempt, &fact).await?,
                };
                return Ok(changed.unwrap_or_else(|| settled(Status::Completed, label, None)));
            }
            Err(failure) => failure,
        };
        let after = attempt.rules().after_failure(&failure, attempt.attempt);
        let (class, message) = (failure.class, failure.message.clone());
        let error = Some(failure.at(attempt.spec.key.clone()));
        let fact = match &after {
            AfterFailure::Retry { attempt: next, wait } => {
                NodeFact { attempt: *next, next_in: Some(*wait), error, ..attempt.fact(Status::Retrying) }
            }
            AfterFailure::Settle(end) => NodeFact { error, ..attempt.fact(end.status()) },
        };
        if let Some(ended) = self.store_fact(attempt, &fact).await? {
            return Ok(ended);
        }
        match after {
            AfterFailure::Retry { attempt: next, wait } if attempt.waits_in_workflow() => {
                Ok(PerformResult::Retry { attempt: next, ms: whole_ms(wait) })
            }
            AfterFailure::Retry { wait, .. } => Err(repeat_after(class.name(), &message, wait)),
            AfterFailure::Settle(end) => Ok(settled(end.status(), None, Some(class))),
        }
    }

    /// Ends an attempt as UNKNOWN: it may be performed at most once, and it is not known whether it took effect.
    pub(super) async fn end_unknown(&self, attempt: &Attempt<'_>) -> Activity<PerformResult> {
        let failure = Failure::unknown();
        let class = Some(failure.class);
        let error = Some(failure.at(attempt.spec.key.clone()));
        let changed = self.store_fact(attempt, &NodeFact { error, ..attempt.fact(Status::Unknown) }).await?;
        Ok(changed.unwrap_or_else(|| settled(Status::Unknown, None, class)))
    }

    /// Stores a fact of an attempt, and retries until the database answers, because only this worker knows the result.
    /// Returns the node's state if something else changed the node meanwhile.
    pub(super) async fn store_fact(&self, attempt: &Attempt<'_>, fact: &NodeFact) -> Activity<Option<PerformResult>> {
        let Attempt { hold, spec, .. } = attempt;
        let report = async |fact: &NodeFact| self.report_attempt(attempt, fact, None).await;
        let (reported, ended) = match report(fact).await {
            Err(error @ store::Error::Refused { .. }) => {
                tracing::warn!(execution_id = %hold.execution, node = %spec.key, error = %error,
                    "Node result cannot be stored");
                let failed = refused(fact);
                let class = failed.error.as_ref().map(|failure| failure.class);
                (report(&failed).await, Some(settled(failed.status, None, class)))
            }
            reported => (reported, None),
        };
        match reported.map_err(repeat_on)? {
            ReportOutcome::Stored | ReportOutcome::Ended { .. } => Ok(ended),
            ReportOutcome::Lost => Ok(Some(PerformResult::Lost)),
            ReportOutcome::Superseded => self.stored_state(attempt).await.map(Some),
        }
    }

    /// Stores the fact of the last attempt of a run, and the end of the run. Like `store_fact` if the end cannot be
    /// stored.
    async fn store_with_end(
        &self,
        attempt: &Attempt<'_>,
        run: &LoadedRun,
        fact: &NodeFact,
    ) -> Activity<Option<PerformResult>> {
        let (hold, of) = (attempt.hold, (&*run.begun, &*run.version));
        let scope = engine::scope::scope(&run.begun, &run.version);
        let end = self.build_end(hold, of, &Outcome::Completed, scope, std::slice::from_ref(fact)).await?;
        match self.report_attempt(attempt, fact, Some(end.clone())).await {
            Ok(ReportOutcome::Ended { freed }) => {
                Ok(Some(PerformResult::Completed(self.announce_end(hold, &end, freed))))
            }
            Ok(ReportOutcome::Stored) => Ok(None),
            Ok(ReportOutcome::Lost) => Ok(Some(PerformResult::Lost)),
            Ok(ReportOutcome::Superseded) => self.stored_state(attempt).await.map(Some),
            Err(store::Error::Refused { .. }) => self.store_fact(attempt, fact).await,
            Err(error) => Err(repeat_on(error)),
        }
    }

    async fn report_attempt(
        &self,
        attempt: &Attempt<'_>,
        fact: &NodeFact,
        end: Option<End>,
    ) -> Result<ReportOutcome, store::Error> {
        let report = AttemptReport { ownership: attempt.hold, fence: attempt.fence, fact: fact.clone(), end };
        let outputs = [report.fact.output.as_ref(), report.end.as_ref().and_then(|end| end.output.as_ref())];
        let bytes = outputs.into_iter().flatten().map(nodes::size).sum();
        retry_until_stored(|| self.reports.write(report.clone(), bytes)).await
    }

    /// The node's stored state, after another attempt changed it or the reply to this attempt's write was lost.
    pub(super) async fn stored_state(&self, attempt: &Attempt<'_>) -> Activity<PerformResult> {
        let place = [(&attempt.spec.key, attempt.iteration)];
        let rows = self.store.nodes_at(attempt.hold.execution, &place).await.map_err(repeat_on)?;
        match rows.into_iter().next().and_then(|(_, row)| result_of(row)) {
            Some(ended @ PerformResult::Settled { .. }) => Ok(ended),
            Some(ended) if attempt.waits_in_workflow() => Ok(ended),
            _ => Err(repeat_after("OVERTAKEN", "another attempt has taken over this node", SOON)),
        }
    }
}

/// The state that a row reports to the workflow. None while the node is pending or an attempt runs.
pub(super) fn result_of(row: StoredNode) -> Option<PerformResult> {
    match row.status {
        Status::Pending | Status::Running => None,
        Status::Retrying => {
            Some(PerformResult::Retry { attempt: row.attempt, ms: whole_ms(row.next_in.unwrap_or(Duration::ZERO)) })
        }
        status => Some(settled(status, row.label, row.error.map(|error| error.class))),
    }
}

impl Attempt<'_> {
    pub(super) fn fact(&self, status: Status) -> NodeFact {
        fact(&self.spec.key, self.iteration, status, self.attempt)
    }

    /// The rules that decide what follows the attempt.
    pub(super) fn rules(&self) -> AttemptRules<'_> {
        AttemptRules::new(self.hold.execution, self.spec, self.iteration)
    }

    /// True if the workflow waits for the next attempt itself. It may have to stop an item meanwhile, and it starts
    /// children and users' tasks itself.
    fn waits_in_workflow(&self) -> bool {
        self.iteration > 0 || matches!(self.spec.kind.manner(), Manner::WaitsForAnswer | Manner::Spawns)
    }
}
