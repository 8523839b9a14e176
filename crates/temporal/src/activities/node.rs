//! One node: taken by its row, performed, and told of.
//!
//! Invariants
//! - Nothing is sent before the row says RUNNING, and a settled node is never performed again.
//! - The row counts the attempts: a worker that dies costs none. The kernel says whether there is another and when;
//!   Temporal only keeps the time.
//! - An attempt that was overtaken by its successor tells nothing: the node's fence refuses it.
//!
//! What happens if this process dies: before the taking, nothing has happened; after it, the node is taken again
//! under the same attempt and called with the same token; after telling, the row answers for it.

use std::time::{Duration, Instant};

use engine::nodes::{self, Done, Work};
use engine::trace;
use jiff::Timestamp;
use kernel::definition;
use kernel::expression::Scope;
use kernel::failure::{Class, Failure};
use kernel::kind::delay;
use kernel::node::Status;
use kernel::signals::{metrics, spans};
use kernel::trace::TraceParent;
use serde_json::Value;
use store::admission::Begun;
use store::run::NodeFact;
use store::taken::{Hold, Taken, Told};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use tracing::Instrument as _;

use super::{Kit, SOON, again, later, settled, whole_ms};
use crate::message::{Call, Ended};

/// An attempt that is due within this is waited for here.
const NEARLY: Duration = Duration::from_secs(2);

/// A node that was taken.
struct Attempt<'a> {
    hold: Hold,
    spec: &'a definition::Node,
    attempt: u32,
    fence: i32,
}

impl Kit {
    pub(super) async fn perform(&self, context: &ActivityContext, call: Call) -> Result<Ended, ActivityError> {
        let hold = call.hold;
        let Some(held) = self.held(hold).await? else { return Ok(Ended::Lost) };
        let spec = &held.version.definition.nodes[call.node];
        let mut scope = engine::scope::scope(&held.begun, &held.version);
        let looked_at: Vec<_> = held.version.looked_at_by(call.node).into_iter().collect();
        self.look_at(hold, &looked_at, &mut scope).await?;
        let scope = held.version.view(call.node, &scope);
        let ready = nodes::ready(spec, &scope);
        let input = ready.as_ref().ok().map(|(input, _)| input);
        let (attempt, wait) = match self.take(hold, spec, input).await? {
            Ok(taken) => taken,
            Err(ended) => return Ok(ended),
        };
        let work = match ready {
            Ok((_, work)) => work,
            Err(failure) => return self.ended(&attempt, Err(failure)).await,
        };
        match work {
            Work::Done(done) => self.ended(&attempt, nodes::storable(done)).await,
            Work::Delay(config) => self.delay(&attempt, wait, config).await,
            // The step before this saw it hold, by the same stored values.
            Work::Skip => {
                let failure = Failure::new(Class::ExecutionError, "its condition held, and does not any more");
                self.ended(&attempt, Err(failure)).await
            }
            Work::Workflow(_) | Work::ForEach(_) | Work::Wait(_) | Work::Task(_) => {
                let failure = Failure::new(Class::ValidationError, "this engine cannot perform this kind of node");
                self.ended(&attempt, Err(failure)).await
            }
            work @ (Work::HttpRequest(_) | Work::EmitEvent(_)) => {
                let span = tracing::info_span!(
                    parent: None,
                    spans::RUN_NODE.name,
                    execution_id = %hold.execution,
                    node = %spec.key,
                    kind = spec.kind.name(),
                    attempt = attempt.attempt,
                );
                trace::put_below(&span, held.begun.trace);
                let trace = trace::of(&span).unwrap_or(held.begun.trace);
                let work = self.outgoing(work, spec, &scope, &held.begun, trace);
                match self.call(context, spec, work).instrument(span).await {
                    Some(result) => self.ended(&attempt, result.and_then(nodes::storable)).await,
                    None => Err(ActivityError::cancelled()),
                }
            }
        }
    }

    /// Takes the node, waiting for its time if that is near. `Err`: how it stands instead.
    async fn take<'a>(
        &self,
        hold: Hold,
        spec: &'a definition::Node,
        input: Option<&Value>,
    ) -> Result<Result<(Attempt<'a>, Option<Duration>), Ended>, ActivityError> {
        loop {
            match self.store.take_node(hold, &spec.key, input).await.map_err(again)? {
                Taken::Lost => return Ok(Err(Ended::Lost)),
                Taken::Settled { status, label, error } => {
                    return Ok(Err(settled(status, label, error.map(|error| error.class))));
                }
                Taken::Early(wait) if wait > NEARLY => return Err(later("EARLY", "its next attempt is not due", wait)),
                Taken::Early(wait) => tokio::time::sleep(wait).await,
                Taken::Go { attempt, fence, wait } => return Ok(Ok((Attempt { hold, spec, attempt, fence }, wait))),
            }
        }
    }

    /// What a node does beyond this process.
    async fn outgoing(
        &self,
        work: Work,
        spec: &definition::Node,
        scope: &Scope,
        begun: &Begun,
        trace: TraceParent,
    ) -> Result<Done, Failure> {
        match work {
            Work::HttpRequest(config) => {
                let call = nodes::Call::new(config, spec, scope, begun, 0, trace);
                nodes::http_request(&self.outbound, &self.vault, &self.pulse, call).await
            }
            Work::EmitEvent(config) => {
                nodes::emit_event(&self.store, &self.pulse, nodes::Emit::new(config, spec, begun, 0, trace)).await
            }
            Work::Done(done) => Ok(done),
            Work::Delay(_) | Work::Workflow(_) | Work::ForEach(_) | Work::Wait(_) | Work::Task(_) | Work::Skip => {
                Err(Failure::new(Class::ExecutionError, "a node that does not call out was made to"))
            }
        }
    }

    /// Calls out, telling Temporal that it is at it; none if it is to stop.
    async fn call(
        &self,
        context: &ActivityContext,
        spec: &definition::Node,
        work: impl Future<Output = Result<Done, Failure>>,
    ) -> Option<Result<Done, Failure>> {
        let since = Instant::now();
        // Not at once: the start itself counts as a beat, and a call that is soon over costs Temporal none.
        let every = self.heartbeat / 4;
        let mut beat = tokio::time::interval_at((since + every).into(), every);
        let mut calling = std::pin::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut calling => break Some(result),
                () = context.cancelled() => break None,
                // That nothing can be told of a heartbeat is no reason to stop: a missing one is noticed.
                _ = beat.tick() => drop(context.record_heartbeat(()).await),
            }
        };
        let outcome = match &result {
            Some(Ok(_)) => "completed",
            Some(Err(_)) => "failed",
            None => "canceled",
        };
        ::metrics::histogram!(metrics::NODE_DURATION.name, "kind" => spec.kind.name(), "outcome" => outcome)
            .record(since.elapsed());
        result
    }

    /// A delay is a time on the node's row: one that stands there already stays.
    async fn delay(
        &self,
        attempt: &Attempt<'_>,
        noted: Option<Duration>,
        config: delay::Config,
    ) -> Result<Ended, ActivityError> {
        if let Some(wait) = noted {
            return Ok(Ended::Waiting { ms: whole_ms(wait) });
        }
        let now = Timestamp::now();
        let due = match config.due_at(now) {
            Ok(due) => due,
            Err(failure) => return self.ended(attempt, Err(failure)).await,
        };
        let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
        let fact = NodeFact { next_in: Some(wait), ..attempt.fact(Status::Running) };
        match self.tell(attempt, &fact).await? {
            Some(ended) => Ok(ended),
            None => Ok(Ended::Waiting { ms: whole_ms(wait) }),
        }
    }

    /// Tells how the attempt ended. One that is worth another fails here, and Temporal comes back when it is due.
    async fn ended(&self, attempt: &Attempt<'_>, result: Result<Done, Failure>) -> Result<Ended, ActivityError> {
        let Attempt { hold, spec, attempt: number, .. } = attempt;
        let failure = match result {
            Ok(Done { output, took, .. }) => {
                let label = took.clone();
                let fact = NodeFact { output: Some(output), label: took, ..attempt.fact(Status::Completed) };
                let told = self.tell(attempt, &fact).await?;
                return Ok(told.unwrap_or_else(|| settled(Status::Completed, label, None)));
            }
            Err(failure) => failure,
        };
        let wait = spec.retry.wait_after(&failure, *number, hold.execution, &spec.key);
        let (class, message) = (failure.class, failure.message.clone());
        let error = Some(failure.at(spec.key.clone()));
        let fact = match wait {
            Some(_) => NodeFact { attempt: number + 1, next_in: wait, error, ..attempt.fact(Status::Retrying) },
            None => NodeFact { error, ..attempt.fact(Status::Failed) },
        };
        match (self.tell(attempt, &fact).await?, wait) {
            (Some(ended), _) => Ok(ended),
            (None, Some(wait)) => Err(later(class.name(), &message, wait)),
            (None, None) => Ok(settled(Status::Failed, None, Some(class))),
        }
    }

    /// Stores a fact of an attempt; some if the node came to another end meanwhile.
    async fn tell(&self, attempt: &Attempt<'_>, fact: &NodeFact) -> Result<Option<Ended>, ActivityError> {
        let Attempt { hold, spec, fence, .. } = attempt;
        match self.store.tell_node(*hold, *fence, fact).await {
            Ok(Told::Stored) => Ok(None),
            Ok(Told::Lost) => Ok(Some(Ended::Lost)),
            Ok(Told::Overtaken) => self.stands(attempt).await.map(Some),
            Err(error @ store::Error::Refused { .. }) => {
                tracing::warn!(execution_id = %hold.execution, node = %spec.key, error = %error, "A result cannot be stored");
                let reason = "the database cannot hold what this node produced";
                let failure = Failure::new(Class::UnstorableOutput, reason);
                let failed = NodeFact { error: Some(failure.at(spec.key.clone())), ..attempt.fact(Status::Failed) };
                match self.store.tell_node(*hold, *fence, &failed).await.map_err(again)? {
                    Told::Stored => {
                        let class = Some(Class::UnstorableOutput);
                        Ok(Some(settled(Status::Failed, None, class)))
                    }
                    Told::Lost => Ok(Some(Ended::Lost)),
                    Told::Overtaken => self.stands(attempt).await.map(Some),
                }
            }
            Err(error) => Err(again(error)),
        }
    }

    /// How the row stands after another attempt, or an answer of this one that was lost, changed it.
    async fn stands(&self, attempt: &Attempt<'_>) -> Result<Ended, ActivityError> {
        let rows = self.store.some_nodes(attempt.hold.execution, &[attempt.spec.key.as_str()]).await.map_err(again)?;
        match rows.into_iter().next() {
            Some(row) if row.status.is_settled() => {
                Ok(settled(row.status, row.label, row.error.map(|error| error.class)))
            }
            _ => Err(later("OVERTAKEN", "another attempt took the node over", SOON)),
        }
    }
}

impl Attempt<'_> {
    fn fact(&self, status: Status) -> NodeFact {
        NodeFact {
            node: self.spec.key.clone(),
            iteration: 0,
            status,
            attempt: self.attempt,
            next_in: None,
            label: None,
            input: None,
            output: None,
            error: None,
        }
    }
}
