//! Waits, tasks for workers, and users' own activities.
//!
//! Invariants
//! - Storing a wait is fenced and repeatable: performing the node again returns the wait's current state. Only the
//!   store decides whether a wait was answered or has expired.
//! - A read of answers returns the state of the rows. If a read stored a node's result but could not report it to the
//!   workflow, the next read reports it.
//! - The size of the input and of the result of a user's own activity is limited, because both pass through Temporal.
//!
//! What happens if this process dies: before the wait's commit there is no wait. After the commit, the node is
//! performed again and finds its wait. If an answer was read and its node is not settled yet, the next read finds the
//! answer (`store::run::attempt::undelivered_results`).
//!
//! Not here: storing waits and answers (`store::wait`), what an answer means for its node (`kernel::kind`).

use engine::attempt::wait::{WaitConfig, wait};
use engine::nodes::{self, NodeOutput, Work};
use kernel::definition::Kind;
use kernel::ids::NodeKey;
use kernel::kind::{self, Config, task};
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use store::wait::WaitState;

use super::attempt_end::{Attempt, result_of};
use super::runs::LoadedRun;
use super::{Activity, RunActivities, repeat_on, whole_ms};
use crate::message::{CheckWaitsRequest, CheckWaitsResult, PerformResult, TaskReport, UserTask};

/// The maximum number of answers in one read.
const PAGE: i64 = 100;
/// The maximum size of the input of a user's own activity. Temporal's own limit is two megabytes.
const MAX_INPUT_BYTES: usize = 1 << 20;

impl RunActivities {
    /// Prepares a task that a user's own activity performs. The workflow starts that activity.
    pub(super) async fn start_user_task(&self, attempt: &Attempt<'_>, config: task::Config) -> Activity<PerformResult> {
        if nodes::size(&config.input) > MAX_INPUT_BYTES {
            let message = format!(
                "the input of the activity is larger than {} MiB; pass a reference instead",
                MAX_INPUT_BYTES >> 20
            );
            return self.end_attempt(attempt, Err(Failure::new(Class::ValidationError, message))).await;
        }
        // Only a lease that the author set becomes a heartbeat timeout. Otherwise every activity that sends no
        // heartbeats would time out.
        let lease_ms = attempt.spec.with.get("lease").map(|_| whole_ms(config.lease));
        let Attempt { attempt: number, fence, spec, .. } = attempt;
        let task =
            UserTask { input: config.input, attempt: *number, fence: *fence, limit_ms: spec.timeout_ms, lease_ms };
        Ok(PerformResult::UserTask(Box::new(task)))
    }

    /// Stores a node's wait, and returns the node's state.
    pub(super) async fn store_wait(
        &self,
        attempt: &Attempt<'_>,
        run: &LoadedRun,
        (work, input): (Work, &Value),
    ) -> Activity<PerformResult> {
        let place = (attempt.iteration, attempt.attempt);
        let (new_wait, awaited) = match wait(work, attempt.spec, input, &run.begun, place) {
            Ok(wait) => wait,
            Err(failure) => return self.end_attempt(attempt, Err(failure)).await,
        };
        match self.store.open_wait(attempt.hold, &new_wait).await {
            Ok(None) => Ok(PerformResult::Lost),
            Ok(Some(WaitState::Open { expires_in })) => {
                Ok(PerformResult::WaitStored { expires_ms: expires_in.map(whole_ms) })
            }
            Ok(Some(state)) => self.end_attempt(attempt, awaited.over(state)).await,
            Err(store::Error::Refused { .. }) => self.end_attempt(attempt, Err(Failure::unstorable_input())).await,
            Err(store::Error::Conflict(_)) => self.stored_state(attempt).await,
            Err(error) => Err(repeat_on(error)),
        }
    }

    /// Settles nodes whose waits have ended, and returns the states of the requested ones.
    pub(super) async fn settle_answered(&self, request: CheckWaitsRequest) -> Activity<CheckWaitsResult> {
        let CheckWaitsRequest { hold, waits } = request;
        let Some(run) = self.load_run(hold).await? else { return Ok(CheckWaitsResult::Lost) };
        if self.store.read_answers(hold).await.map_err(repeat_on)?.is_none() {
            return Ok(CheckWaitsResult::Lost);
        }
        let unheard = self.store.undelivered_results(hold.execution, PAGE).await.map_err(repeat_on)?;
        let more = i64::try_from(unheard.len()).is_ok_and(|found| found >= PAGE);
        for one in unheard {
            let node = run.version.plan.index_of(&one.node);
            let Some(spec) = node.and_then(|node| run.spec(node, one.iteration)) else { continue };
            let config = match one.input.map(|input| kind::prepare(spec.kind, &input)) {
                Some(Ok(Config::WaitForEvent(config))) => WaitConfig::Answer(config),
                _ => WaitConfig::Task,
            };
            let (attempt, fence, iteration) = (one.attempt, one.fence, one.iteration);
            let attempt = Attempt { hold, spec: &spec, iteration, attempt, fence, last_of: None };
            self.end_attempt(&attempt, config.over(one.state)).await?;
        }
        let key = |node: usize| run.version.definition.nodes.get(node).map(|node| &node.key);
        let places: Vec<(&NodeKey, i32)> =
            waits.iter().filter_map(|(node, iteration)| Some((key(*node)?, *iteration))).collect();
        let rows = self.store.nodes_at(hold.execution, &places).await.map_err(repeat_on)?;
        let ended = rows.into_iter().filter_map(|(iteration, row)| {
            let node = run.version.plan.index_of(&row.node)?;
            Some((node, iteration, result_of(row)?))
        });
        Ok(CheckWaitsResult::Done { ended: ended.collect(), more })
    }

    /// Settles a task that a user's own activity completed or failed.
    pub(super) async fn end_user_task(&self, report: TaskReport) -> Activity<PerformResult> {
        let TaskReport { hold, node, iteration, attempt, fence, result } = report;
        let Some(run) = self.load_run(hold).await? else { return Ok(PerformResult::Lost) };
        let Some(spec) = run.spec(node, iteration).filter(|spec| spec.kind == Kind::Task) else {
            return Ok(PerformResult::Lost);
        };
        let attempt = Attempt { hold, spec: &spec, iteration, attempt, fence, last_of: None };
        self.end_attempt(&attempt, result.map(NodeOutput::new)).await
    }
}
