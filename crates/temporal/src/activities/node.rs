//! Performs one node: begins an attempt in the node's row, does the work, and stores the result.
//!
//! Invariants
//! - Nothing is sent before the row is RUNNING, and a settled node is never performed again.
//! - The row counts the attempts. The death of a worker uses up no attempt. The kernel decides whether there is another
//!   attempt and when; Temporal only waits.
//! - A call that may be made at most once is not made again if an earlier worker began it: the node ends as UNKNOWN.
//!
//! What happens if this process dies: before the attempt begins, nothing has happened. After it, the node is performed
//! again under the same attempt and with the same token. After its result is stored, the row returns that result.
//!
//! Not here: calls (`calls`), the end of an attempt (`attempt_end`), loops (`loops`), children (`children`), waits and
//! users' tasks (`waits`).

use std::time::Duration;

use engine::nodes::call::{CallBuilder, Caller};
use engine::nodes::{self, Work};
use engine::{trace, vault};
use jiff::Timestamp;
use kernel::definition::plan::NodeIx;
use kernel::definition::{self, Delivery, Manner};
use kernel::expression::Scope;
use kernel::kind::delay;
use kernel::run::failure::{Class, Failure};
use kernel::run::item_loop;
use kernel::run::node::{NodeEnd, Status};
use kernel::signals::spans;
use serde_json::Value;
use store::run::attempt::{AttemptStart, NewAttempt, Ownership};
use store::run::{NodeFact, StoredNode};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tracing::Instrument as _;

use super::attempt_end::Attempt;
use super::calls::CallOutcome;
use super::runs::LoadedRun;
use super::{Activity, RunActivities, repeat_after, repeat_on, settled, whole_ms};
use crate::message::{CloseReason, PerformRequest, PerformResult};

/// If an attempt is due within this time, the activity waits for it. Otherwise Temporal repeats the activity then.
const WAIT_HERE: Duration = Duration::from_secs(2);

/// If this worker cannot decrypt the secrets of a call, Temporal repeats the activity after this pause. Another worker
/// may have the key, or this worker may have it after a restart.
const RETRY_SECRETS: Duration = Duration::from_secs(10);

/// What the row of an attempt says.
pub(super) struct AttemptState {
    /// The time that is left of a delay stored earlier.
    wait: Option<Duration>,
    /// True if a call that may be made at most once was begun, and its result is not stored.
    begun: bool,
}

impl RunActivities {
    pub(super) async fn perform(&self, context: &ActivityContext, call: PerformRequest) -> Activity<PerformResult> {
        let hold = call.hold;
        let Some(run) = self.load_run(hold).await? else { return Ok(PerformResult::Lost) };
        let Some(spec) = run.spec(call.node, call.iteration) else {
            return Err(repeat_after("FAULT", "the node does not exist in this version of the workflow", WAIT_HERE));
        };
        if spec.kind.manner() == Manner::Loops {
            return self.begin_loop(hold, &run, call.node).await;
        }
        if let (Some(closed), Delivery::AtMostOnce) = (call.closed, spec.delivery) {
            return self.resolve_interrupted(hold, &spec, call.iteration, closed).await;
        }
        if call.earlier_child == Some(CloseReason::Stopped) && !self.is_begun(hold, &spec, call.iteration).await? {
            return Ok(PerformResult::Stopped);
        }
        let scope = self.scope_at(hold, &run, call.node, call.iteration).await?;
        let ready = nodes::prepare_on_thread(run.begun.workspace, &spec, &scope).await;
        let input = ready.as_ref().ok().map(|(input, _)| input);
        let (attempt, state) = match self.begin_attempt(hold, &spec, call.iteration, input).await? {
            Ok(taken) => taken,
            Err(ended) => return Ok(ended),
        };
        if attempt.rules().interrupted(state.begun, false).is_some() {
            return self.end_unknown(&attempt).await;
        }
        // What is being stopped never completes its run.
        let stops = [call.closed, call.earlier_child].contains(&Some(CloseReason::Stopped));
        let attempt = Attempt { last_of: (call.is_last && !stops).then_some(&run), ..attempt };
        let (input, work) = match ready {
            Ok(ready) => ready,
            Err(failure) => return self.end_attempt(&attempt, Err(failure)).await,
        };
        match work {
            Work::Done(done) => self.end_attempt(&attempt, Ok(done)).await,
            Work::Delay(config) => self.delay(&attempt, state.wait, config).await,
            // An earlier step evaluated the condition as true, with the same stored values. So this is a bug.
            Work::Skip => {
                let failure = Failure::bug("the node's condition was true and is now false");
                self.end_attempt(&attempt, Err(failure)).await
            }
            Work::Task(config) if config.activity.is_some() => self.start_user_task(&attempt, config).await,
            Work::Wait(_) | Work::Task(_) => self.store_wait(&attempt, &run, (work, &input)).await,
            Work::Workflow(config) => {
                self.start_child(context, &attempt, &run, &config, (call.closed, call.earlier_child)).await
            }
            Work::Call(make) => self.call_out(context, &attempt, &run, (make, &scope)).await,
            // Loops are begun in `begin_loop`.
            Work::ForEach(_) => self.end_attempt(&attempt, Err(nodes::of_another_kind())).await,
        }
    }

    /// Makes the call of a node, and stores its result.
    async fn call_out(
        &self,
        context: &ActivityContext,
        attempt: &Attempt<'_>,
        run: &LoadedRun,
        (make, scope): (CallBuilder, &Scope),
    ) -> Activity<PerformResult> {
        let Attempt { hold, spec, .. } = attempt;
        let span = tracing::info_span!(
            parent: None,
            spans::RUN_NODE.name,
            execution_id = %hold.execution,
            node = %spec.key,
            kind = spec.kind.name(),
            attempt = attempt.attempt,
        );
        trace::put_below(&span, run.begun.trace);
        let trace = trace::of(&span).unwrap_or(run.begun.trace);
        let caller = Caller { spec, scope, begun: &run.begun, iteration: attempt.iteration, trace };
        match self.make_call(context, attempt, make.call(&caller)).instrument(span).await {
            CallOutcome::Ended(result) => self.end_attempt(attempt, result).await,
            CallOutcome::Overtaken => self.stored_state(attempt).await,
            CallOutcome::SecretsUnavailable(vault::Error::Store(error)) => Err(repeat_on(error)),
            CallOutcome::SecretsUnavailable(error) => {
                tracing::warn!(execution_id = %hold.execution, node = %spec.key, %error,
                    "Call waits: its secrets cannot be decrypted; check secrets.key_file");
                Err(repeat_after("SECRETS", &error.to_string(), RETRY_SECRETS))
            }
            CallOutcome::Stopped { begun } => match attempt.rules().interrupted(begun, true) {
                Some(NodeEnd::Lost) => self.end_unknown(attempt).await,
                _ => Err(ActivityError::cancelled()),
            },
        }
    }

    /// Settles a node that may be performed at most once and whose activity reported no result. The node is never
    /// performed here.
    async fn resolve_interrupted(
        &self,
        hold: Ownership,
        spec: &definition::Node,
        iteration: i32,
        closed: CloseReason,
    ) -> Activity<PerformResult> {
        if closed == CloseReason::Stopped && !self.is_begun(hold, spec, iteration).await? {
            return Ok(PerformResult::Stopped);
        }
        let (attempt, state) = match self.begin_attempt(hold, spec, iteration, None).await? {
            Ok(taken) => taken,
            Err(ended) => return Ok(ended),
        };
        match attempt.rules().interrupted(state.begun, closed == CloseReason::Stopped) {
            Some(NodeEnd::Lost) => self.end_unknown(&attempt).await,
            Some(_) => Ok(PerformResult::Stopped),
            None => {
                let failure = Failure::new(Class::ExecutionError, "Temporal could not run the activity");
                self.end_attempt(&attempt, Err(failure)).await
            }
        }
    }

    /// True if a node is in an attempt or settled. False while it waits for its first or next attempt.
    async fn is_begun(&self, hold: Ownership, spec: &definition::Node, iteration: i32) -> Activity<bool> {
        let rows = self.store.nodes_at(hold.execution, &[(&spec.key, iteration)]).await.map_err(repeat_on)?;
        let begun = |row: &StoredNode| !matches!(row.status, Status::Pending | Status::Retrying);
        Ok(rows.first().is_some_and(|(_, row)| begun(row)))
    }

    /// The scope of a node, or of an item of a loop.
    pub(super) async fn scope_at(
        &self,
        hold: Ownership,
        run: &LoadedRun,
        node: NodeIx,
        iteration: i32,
    ) -> Activity<Scope> {
        let mut scope = engine::scope::scope(&run.begun, &run.version);
        let read_nodes: Vec<_> = run.version.read_by(node).into_iter().collect();
        self.load_outputs(hold, &read_nodes, &mut scope).await?;
        let scope = run.version.view(node, &scope).into_owned();
        match item_loop::index(iteration) {
            None => Ok(scope),
            Some(index) => self.with_item(hold, run, node, index, scope).await,
        }
    }

    /// Begins an attempt at the node. Waits here if the attempt is due soon. `Err`: the node's state, if no attempt can
    /// begin.
    pub(super) async fn begin_attempt<'a>(
        &self,
        hold: Ownership,
        spec: &'a definition::Node,
        iteration: i32,
        input: Option<&Value>,
    ) -> Activity<Result<(Attempt<'a>, AttemptState), PerformResult>> {
        let new = NewAttempt { ownership: hold, node: spec.key.clone(), iteration, input: input.cloned() };
        let bytes = input.map_or(0, nodes::size);
        loop {
            let started = match self.starts.write(new.clone(), bytes).await {
                Err(store::Error::Refused { .. }) if input.is_some() => {
                    // The attempt begins without its input, and fails.
                    return match Box::pin(self.begin_attempt(hold, spec, iteration, None)).await? {
                        Ok((attempt, _)) => {
                            let refused = Failure::unstorable_input();
                            Ok(Err(self.end_attempt(&attempt, Err(refused)).await?))
                        }
                        ended => Ok(ended),
                    };
                }
                started => started.map_err(repeat_on)?,
            };
            match started {
                AttemptStart::Lost => return Ok(Err(PerformResult::Lost)),
                AttemptStart::Settled { status, label, error } => {
                    return Ok(Err(settled(status, label, error.map(|error| error.class))));
                }
                AttemptStart::NotDue(wait) if wait > WAIT_HERE => {
                    return Err(repeat_after("EARLY", "the next attempt is not due yet", wait));
                }
                AttemptStart::NotDue(wait) => tokio::time::sleep(wait).await,
                AttemptStart::Perform { attempt, fence, wait, begun } => {
                    let attempt = Attempt { hold, spec, iteration, attempt, fence, last_of: None };
                    return Ok(Ok((attempt, AttemptState { wait, begun })));
                }
            }
        }
    }

    /// Starts a delay. The time of its end is stored on the node's row; a time that was stored earlier stays valid.
    async fn delay(
        &self,
        attempt: &Attempt<'_>,
        stored: Option<Duration>,
        config: delay::Config,
    ) -> Activity<PerformResult> {
        if let Some(wait) = stored {
            return Ok(PerformResult::Waiting { ms: whole_ms(wait) });
        }
        let wait = match config.wait(Timestamp::now()) {
            Ok(wait) => wait,
            Err(failure) => return self.end_attempt(attempt, Err(failure)).await,
        };
        let fact = NodeFact { next_in: Some(wait), ..attempt.fact(Status::Running) };
        match self.store_fact(attempt, &fact).await? {
            Some(ended) => Ok(ended),
            None => Ok(PerformResult::Waiting { ms: whole_ms(wait) }),
        }
    }
}
